package session

import (
	"errors"
	"fmt"

	"github.com/wakebus/wakebus/internal/plan"
)

var (
	// ErrNotFound: there is no entry under the key. Links returns it, wrapped or not.
	ErrNotFound = errors.New("session link not found")
	// ErrConflict: the entry has another revision by now. Read it again and plan again.
	ErrConflict = errors.New("session link has changed")
	// ErrWeakSecret: the naming secret is absent or shorter than MinSecret bytes.
	ErrWeakSecret = fmt.Errorf("the session secret has fewer than %d bytes", MinSecret)
	// ErrBadKey: a part of a session's key is not valid.
	ErrBadKey = errors.New("session key is not valid")
	// ErrEnded: the session has ended and this request may not revive it.
	ErrEnded = errors.New("session has ended")
)

// Busy says that another run holds the link. Wait a second, or take the hold over once that run's journal has ended.
type Busy struct {
	// State is creating or tearing_down.
	State plan.LinkState
	// Holder is that run, "tenant/job.run".
	Holder string
}

func (b *Busy) Error() string {
	return fmt.Sprintf("session link is %s, held by %s", b.State, b.Holder)
}

// Forbidden says that a change does not start from the state in which the link is.
type Forbidden struct {
	Change string
	State  plan.LinkState
}

func (f *Forbidden) Error() string {
	return fmt.Sprintf("session link: %s does not start from %s", f.Change, f.State)
}
