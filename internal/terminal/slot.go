package terminal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
)

// maxHold is the longest that one terminal may hold its slot: shells are meant to outlive nights, not quarters.
const maxHold = 30 * 24 * time.Hour

// slots counts terminals by leases.
type slots struct {
	leases *lease.Manager
	limits lease.Limits
	ttl    time.Duration // of every lease
}

var _ Leases = slots{}

func (s slots) Take(ctx context.Context, id string, v Visitor, sandbox string, force bool) (Lease, error) {
	l, err := s.leases.Acquire(ctx, lease.Request{ID: id, Kind: lease.KindTerminal, Tenant: v.Page.Tenant, User: v.User, Sandbox: sandbox,
		Scopes: lease.Scopes(lease.KindTerminal, v.Page.Tenant, v.User, string(v.Tier), s.limits), MaxHold: maxHold, Force: force})
	var denied *lease.Denied
	if errors.As(err, &denied) {
		return nil, &Refused{Reason: plan.ReasonConcurrencyLimit, Retryable: true, RetryAfter: denied.RetryAfter}
	}
	if err != nil {
		return nil, fmt.Errorf("acquire lease: %w", err)
	}
	return newSlot(l), nil
}

func (s slots) Drop(ctx context.Context, id string, fence int64) error {
	_, err := s.leases.ReleaseID(ctx, id, fence)
	return err
}

// Live is true as long as the lease has not expired.
func (s slots) Live(ctx context.Context, id string) (bool, error) {
	left, err := s.left(ctx, id)
	return left > 0, err
}

// Renewed is true while the holder renews the lease as due: a dead gateway's shell is adopted before its slot is free.
func (s slots) Renewed(ctx context.Context, id string) (bool, error) {
	left, err := s.left(ctx, id)
	return left > s.ttl/2, err
}

func (s slots) left(ctx context.Context, id string) (time.Duration, error) {
	if id == "" {
		return 0, nil
	}
	return s.leases.Alive(ctx, id)
}

// slot is a lease whose end tells why in the gateway's words.
type slot struct {
	*lease.Lease
	done   context.Context
	unhook func() bool
	cancel context.CancelCauseFunc
}

var _ Lease = (*slot)(nil)

func newSlot(l *lease.Lease) *slot {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &slot{Lease: l, done: ctx, cancel: cancel}
	s.unhook = context.AfterFunc(l.Context(), func() {
		why := &LeaseEnded{Reason: "ended"}
		var lost *lease.Lost
		if errors.As(context.Cause(l.Context()), &lost) {
			why = &LeaseEnded{Transferred: lost.Reason == lease.Transferred, Reason: string(lost.Reason)}
		}
		cancel(why)
	})
	return s
}

func (s *slot) Done() context.Context { return s.done }

func (s *slot) Release(ctx context.Context) error {
	s.unhook()
	_, err := s.Lease.Release(ctx)
	return err
}

func (s *slot) Forget() {
	s.unhook()
	s.Lease.Forget()
}
