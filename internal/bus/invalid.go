package bus

import (
	"errors"

	"github.com/wakebus/wakebus/internal/plan"
)

// InvalidRequest says what is wrong with a message from outside: which field, and why. It never holds the field's
// value, so that it may be shown, stored and logged.
type InvalidRequest struct {
	// Field is the JSON name of what is wrong, "" for the body as a whole.
	Field string
	// Why is a sentence's end: "must be 1 to 64 of A-Z a-z 0-9 _ -".
	Why string
	// Reason is the code of the denial: invalid_request, empty_command or command_too_large.
	Reason plan.Reason
}

// Error says the field and the fault.
func (e *InvalidRequest) Error() string {
	if e.Field == "" {
		return "the body " + e.Why
	}
	return e.Field + " " + e.Why
}

// ErrDeadlinePassed says that a request may no longer start: the outcome is expired, not denied.
var ErrDeadlinePassed = errors.New("the deadline has passed")

func invalid(field, why string) *InvalidRequest {
	return &InvalidRequest{Field: field, Why: why, Reason: plan.ReasonInvalidRequest}
}
