package lease

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// State is what a lease's holder knows of it.
type State string

// The states; see the package's diagram.
const (
	Held        State = "held"
	Unconfirmed State = "unconfirmed"
	Detached    State = "detached"
)

// Lease is one held slot. Its heartbeat renews it from the grant until
// Release, Forget, Extend, a loss, or the Manager's Close. All methods may be
// called concurrently.
type Lease struct {
	m      *Manager
	req    Request
	scopes []string
	grant  int64 // the fence of the acquire: names this holder to the scripts

	ctx    context.Context
	cancel context.CancelCauseFunc
	poked  chan struct{} // asks the heartbeat to renew now; never closed
	quit   chan struct{} // closed once, by the first detach, under mu

	mu        sync.Mutex // protects all below
	fence     int64
	confirmed time.Time     // when the last confirmed call was sent
	ttl       time.Duration // what that call asked for
	until     time.Time     // end of the longest hold, by our clock
	detached  bool          // renewed no more
	settled   bool          // nothing more to release
	inflight  int           // renewals on their way
	unknown   bool          // an earlier renewal may arrive late
	lost      *Lost
}

func newLease(m *Manager, req Request, sent time.Time, reply []string) *Lease {
	// Whoever asked may leave while the run goes on (case 47): the lease ends
	// by its own causes only.
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &Lease{
		m: m, req: req, scopes: scopeKeys(req.Scopes), ctx: ctx, cancel: cancel,
		poked: make(chan struct{}, 1), quit: make(chan struct{}),
		fence: number(field(reply, 1)), grant: number(field(reply, 2)),
		confirmed: sent, ttl: m.cfg.TTL, until: sent.Add(span(field(reply, 3))),
	}
	l.mark(field(reply, 4))
	return l
}

// ID is the lease's id.
func (l *Lease) ID() string { return l.req.ID }

// Fence is the token of the latest grant, transfer or reattachment; it only
// grows. Log it with every provider call made under the lease.
func (l *Lease) Fence() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fence
}

// Context ends, with a *Lost as its cause, when the holder must stop (revoked,
// max_hold, expired for Strict) or be silent (transferred). An outage of Redis
// does not end it, nor do Release and Forget.
func (l *Lease) Context() context.Context { return l.ctx }

// State derives from this process's monotonic clock, never from an old answer
// of Redis. It never blocks.
func (l *Lease) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stateLocked(l.m.cfg.Now())
}

// standing is the state and the time at which it becomes Unconfirmed.
func (l *Lease) standing() (State, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stateLocked(l.m.cfg.Now()), l.deadlineLocked()
}

func (l *Lease) stateLocked(now time.Time) State {
	switch {
	case l.detached:
		return Detached
	case !now.Before(l.deadlineLocked()):
		return Unconfirmed
	default:
		return Held
	}
}

// deadlineLocked is when the lease counts as unconfirmed: Margin before the
// server may give it to somebody else, counted from before the call was sent.
func (l *Lease) deadlineLocked() time.Time { return l.confirmed.Add(l.ttl - l.m.cfg.Margin) }

// mark ends the context of a lease that an operator wants to end; the slot
// stays counted until its holder has stopped. The caller holds mu or owns l.
func (l *Lease) mark(m string) {
	if m == "" || m == noMark || l.lost != nil {
		return
	}
	l.lost = revokedBy(l.req.ID, m)
	l.m.metrics.lost.WithLabelValues(string(Revoked)).Inc()
	l.cancel(l.lost)
}

// detachLocked stops renewals for good.
func (l *Lease) detachLocked() {
	if l.detached {
		return
	}
	l.detached = true
	close(l.quit)
}

// lose ends the lease with a reason. The caller holds mu.
func (l *Lease) loseLocked(lost *Lost) {
	l.detachLocked()
	// At the longest hold a release is still owed: the server's clock may not
	// be there yet.
	l.settled = lost.Reason != MaxHold
	if l.lost == nil {
		l.lost = lost
		l.m.metrics.lost.WithLabelValues(string(lost.Reason)).Inc()
		l.cancel(lost)
	}
	if lost.Reason == MaxHold {
		l.m.metrics.stuck.Inc()
	}
}

// Forget stops renewing and releases nothing: for a hand-over, whose taker
// transfers the id, and for a fenced worker, which must be silent. A later
// Release of this handle does nothing.
func (l *Lease) Forget() {
	l.mu.Lock()
	l.detachLocked()
	l.settled = true
	l.mu.Unlock()
	l.m.drop(l)
}

// Extend renews a last time, with d from now in place of the TTL, and stops
// the heartbeat: what is handed over expires by then unless its taker acquires
// the id. Release still works. Errors: an ErrUnavailable, a *Lost, ctx's cause.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if d < time.Millisecond || d > l.m.cfg.TTL {
		return fmt.Errorf("extend lease %s: %s is not 1ms to the ttl %s", l.req.ID, d, l.m.cfg.TTL)
	}
	l.mu.Lock()
	if l.settled || l.lost != nil && l.lost.Reason == MaxHold {
		err := fmt.Errorf("extend lease %s: %w", l.req.ID, ErrNotFound)
		if l.lost != nil {
			err = fmt.Errorf("extend lease %s: %w", l.req.ID, l.lost)
		}
		l.mu.Unlock()
		return err
	}
	l.detachLocked()
	// A heartbeat on its way would set the full TTL again after us.
	l.unknown = l.unknown || l.inflight > 0
	l.mu.Unlock()
	l.m.drop(l)
	if err := l.renew(ctx, l.m.requests, d); err != nil {
		return fmt.Errorf("extend lease %s: %w", l.req.ID, err)
	}
	return nil
}
