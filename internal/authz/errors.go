package authz

import (
	"errors"
	"fmt"

	"github.com/wakebus/wakebus/internal/plan"
)

var (
	// ErrUnavailable: whoever must be asked does not answer, or not sensibly. Ask again later; nothing is denied.
	ErrUnavailable = errors.New("authorisation cannot be asked now")
	// ErrUnknownKey: no key has this id.
	ErrUnknownKey = errors.New("signing key is not known")
	// ErrTicketUsed: the ticket was used before.
	ErrTicketUsed = errors.New("ticket was used before")
	// ErrTicketExpired: the ticket's time is over.
	ErrTicketExpired = errors.New("ticket has expired")
	// ErrTicketsFull: more live tickets are remembered than the bound allows; the ticket is refused, not forgotten.
	ErrTicketsFull = errors.New("too many tickets at once")
)

// Denied is a definite no.
type Denied struct {
	Reason plan.Reason
	// Detail says what was wrong, for logs and audit. It never contains the token.
	Detail string
	// Anomaly marks what an honest caller hardly sends: a forged grant, or one for another tenant or session.
	Anomaly bool
}

func (d *Denied) Error() string {
	if d.Detail == "" {
		return "denied: " + string(d.Reason)
	}
	return "denied: " + string(d.Reason) + ": " + d.Detail
}

// Misconfigured says that a setting which authorisation needs is missing or broken. It denies too, but it is told
// apart from a no: operators must act.
type Misconfigured struct {
	// What names the setting.
	What string
	// Err is the cause; may be nil.
	Err error
}

func (m *Misconfigured) Error() string {
	if m.Err == nil {
		return "authorisation is misconfigured: " + m.What
	}
	return fmt.Sprintf("authorisation is misconfigured: %s: %v", m.What, m.Err)
}

// Unwrap returns the cause.
func (m *Misconfigured) Unwrap() error { return m.Err }

// ReasonOf is the reason code of an error of this package: that of a *Denied, misconfigured, worker_unavailable for
// ErrUnavailable (retry first), "" for nil, error for anything else.
func ReasonOf(err error) plan.Reason {
	var denied *Denied
	var broken *Misconfigured
	switch {
	case err == nil:
		return ""
	case errors.As(err, &denied):
		return denied.Reason
	case errors.As(err, &broken):
		return plan.ReasonMisconfigured
	case errors.Is(err, ErrUnavailable):
		return plan.ReasonWorkerUnavailable
	}
	return plan.ReasonError
}

func forged(format string, args ...any) *Denied {
	return &Denied{Reason: plan.ReasonInvalidRequest, Detail: fmt.Sprintf(format, args...), Anomaly: true}
}

func expired(detail string) *Denied {
	return &Denied{Reason: plan.ReasonAuthorizationExpired, Detail: detail}
}
