package lease

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrUnavailable: Redis gave no word, so there is no grant. It matches
	// every *Unavailable, ErrWarmingUp and ErrUnconfirmed by errors.Is: retry
	// later, deny nothing, dead-letter nothing.
	ErrUnavailable = errors.New("lease store unavailable")
	// ErrWarmingUp: Redis started empty a moment ago and live holders are
	// still coming back (Config.Quarantine). Is an ErrUnavailable.
	ErrWarmingUp = fmt.Errorf("lease store is warming up: %w", ErrUnavailable)
	// ErrUnconfirmed: this process holds leases Redis has not confirmed in
	// time, so it admits nothing new. Is an ErrUnavailable.
	ErrUnconfirmed = fmt.Errorf("held leases are unconfirmed: %w", ErrUnavailable)
	// ErrAbandoned: this very acquire was given up and taken back before it
	// ran. A new Acquire of the same id is free to try.
	ErrAbandoned = errors.New("acquire was abandoned")
	// ErrNotFound: no live lease has this id.
	ErrNotFound = errors.New("no such lease")
	// ErrNotRevocable: the lease is no command's and no terminal's.
	ErrNotRevocable = errors.New("lease is not revocable")
	// ErrClosed: the Manager was closed.
	ErrClosed = errors.New("lease manager is closed")
)

// Denied says that a scope is full. It is a final answer of Redis, never the
// result of an outage.
type Denied struct {
	// Scope is the first full scope, from narrow to wide.
	Scope Scope
	// InUse counts live leases in the scope; Limit is the one asked with.
	InUse, Limit int
	// RetryAfter is when to ask again: the earliest expiry, at most 5 s, with
	// 20 % jitter.
	RetryAfter time.Duration
	// Expires is the time until a slot frees by expiry alone when nobody
	// releases; negative when unknown.
	Expires time.Duration
	// Holders are up to 8 live lease ids of the scope, earliest expiry first.
	Holders []string
	// Standing says that the request now stands in the scope's line.
	Standing Standing
}

func (d *Denied) Error() string {
	return fmt.Sprintf("concurrency limit: scope %s holds %d of %d", d.Scope.key(), d.InUse, d.Limit)
}

// Standing is what became of a denied request that asked to wait.
type Standing string

// The standings.
const (
	NotWaiting Standing = "no"     // did not ask to wait in that scope
	Parked     Standing = "parked" // stands in line; Freed calls it
	LineFull   Standing = "full"   // the scope's line or the tenant's parked count is full
)

// Reason says why a lease's holder must stop or be silent.
type Reason string

// The reasons.
const (
	// Revoked: an operator wants the run to end.
	Revoked Reason = "revoked"
	// MaxHold: the lease was held for its longest time.
	MaxHold Reason = "max_hold"
	// Transferred: another owner has taken the id over. Be silent.
	Transferred Reason = "transferred"
	// Expired: a Strict lease was not confirmed in time. Only for Strict.
	Expired Reason = "expired"
)

// Lost is the cause with which a lease's Context ends, and what Acquire
// returns for an id that was revoked or held for its longest time.
type Lost struct {
	ID     string
	Reason Reason
	// Why and By are the operator's, with Revoked.
	Why, By string
}

func (l *Lost) Error() string {
	if l.Reason == Revoked {
		return fmt.Sprintf("lease %s revoked by %s: %s", l.ID, l.By, l.Why)
	}
	return fmt.Sprintf("lease %s lost: %s", l.ID, l.Reason)
}

// Unavailable is a call that got no usable word of Redis.
type Unavailable struct {
	Op    string
	Class Class
	cause error
}

func (u *Unavailable) Error() string {
	return fmt.Sprintf("lease %s: redis %s: %v", u.Op, u.Class, u.cause)
}

// Unwrap gives the client's error.
func (u *Unavailable) Unwrap() error { return u.cause }

// Is matches ErrUnavailable.
func (u *Unavailable) Is(target error) bool { return target == ErrUnavailable }

// Misconfigured is a server or setting that cannot keep leases whatever one
// retries: a wrong eviction policy, refused credentials, no scripts.
type Misconfigured struct {
	Class Class
	// Fix is a sentence that says what to change.
	Fix   string
	cause error
}

func (m *Misconfigured) Error() string {
	if m.cause != nil {
		return fmt.Sprintf("lease store misconfigured (%s): %s: %v", m.Class, m.Fix, m.cause)
	}
	return fmt.Sprintf("lease store misconfigured (%s): %s", m.Class, m.Fix)
}

// Unwrap gives the client's error, or nil.
func (m *Misconfigured) Unwrap() error { return m.cause }

// GateClosed says that an operation must wait.
type GateClosed struct {
	Op         string
	RetryAfter time.Duration
	// Why is the class that closed it, "probing" while one call tests the
	// provider, or "share" when only this tenant has used up its part.
	Why string
}

func (g *GateClosed) Error() string {
	return fmt.Sprintf("provider gate %s closed (%s), retry in %s", g.Op, g.Why, g.RetryAfter)
}

// OverBudget says that a user has started as many runs as one window allows.
type OverBudget struct {
	Limit      int
	RetryAfter time.Duration
}

func (o *OverBudget) Error() string {
	return fmt.Sprintf("budget of %d runs is used up, retry in %s", o.Limit, o.RetryAfter)
}
