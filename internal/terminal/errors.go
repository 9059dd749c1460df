package terminal

import (
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// The sentinel errors that the gateway's neighbours answer with.
var (
	// ErrShellGone: the shell, or its whole sandbox, does not exist any more.
	ErrShellGone = errors.New("the shell does not exist any more")
	// ErrConflict: the page's record was changed by somebody else in between.
	ErrConflict = errors.New("the page's record was changed meanwhile")
	// ErrNoRecord: the page has no link yet.
	ErrNoRecord = errors.New("the page has no record")
	// ErrStopped: the gateway is shutting down.
	ErrStopped = errors.New("the gateway is stopping")
	errFull    = errors.New("the recording has reached its bound")
)

// Refused is the answer to a person or an open that may not be: a reason code of the contract and its sentence.
type Refused struct {
	Reason     plan.Reason
	Message    string        // a sentence for a person; empty for the reason's own
	RetryAfter time.Duration // zero when unknown
	Retryable  bool
	// Detail is why, for the gateway's log alone: it may describe a forgery. Defaults to empty.
	Detail string
}

// Error names the reason code only: the message may hold a person's words.
func (r *Refused) Error() string { return fmt.Sprintf("refused: %s", r.Reason) }

// Sentence is what to show to a person.
func (r *Refused) Sentence() string {
	if r.Message != "" {
		return r.Message
	}
	return r.Reason.Sentence()
}

// LeaseEnded is the cause with which a lease's context ends.
type LeaseEnded struct {
	// Transferred is true when another gateway took the lease over; else it was revoked or held for too long.
	Transferred bool
	Reason      string
}

// Error says why the lease ended.
func (e *LeaseEnded) Error() string { return "lease ended: " + e.Reason }
