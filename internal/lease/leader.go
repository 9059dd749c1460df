package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Lead runs fn while this process is the leader called name, one at a time in
// the fleet, and stands for election until ctx ends. fn's context ends, with a
// *Lost as its cause, as soon as the leadership is not confirmed: fn must stop
// within Config.Margin. Lead returns fn's result when fn returned by itself,
// and ctx's cause when ctx ended; what Redis lacks it waits for.
func (m *Manager) Lead(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	if !tokenSafe(name, 64) {
		return fmt.Errorf("lead: name %q is not 1 to 64 of [A-Za-z0-9_.-]", name)
	}
	for {
		done, err := m.term(ctx, name, fn)
		if done {
			return err
		}
		wait := time.NewTimer(m.cfg.jitter(m.cfg.Renew, 0.2))
		select {
		case <-ctx.Done():
			wait.Stop()
			return fmt.Errorf("lead %s: %w", name, context.Cause(ctx))
		case <-wait.C:
		}
	}
}

// term stands once and, if elected, leads. done is false to stand again.
func (m *Manager) term(ctx context.Context, name string, fn func(ctx context.Context) error) (done bool, err error) {
	l, err := m.Acquire(ctx, Request{
		// An id of its own for each term: another process' acquire of the same
		// id would take the leadership over instead of being denied.
		ID: "leader." + name + "." + m.cfg.NewID(), Kind: KindLeader, Job: name, Strict: true,
		// A term has no longest hold: it ends with its process or its outage.
		MaxHold: 10 * 365 * 24 * time.Hour,
		Scopes:  []Scope{{Kind: KindLeader, Name: "l:" + name, Limit: 1}},
	})
	var denied *Denied
	switch {
	case err == nil:
	case errors.As(err, &denied), errors.Is(err, ErrUnavailable):
		return false, nil
	default:
		return true, fmt.Errorf("lead %s: %w", name, err)
	}
	defer func() {
		if _, err := l.Release(ctx); err != nil {
			m.log.Debug().Err(err).Str("leader", name).Msg("leadership expires by itself")
		}
	}()
	leading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })
	defer stop()

	err = fn(leading)
	if ctx.Err() != nil {
		return true, fmt.Errorf("lead %s: %w", name, context.Cause(ctx))
	}
	return l.Context().Err() == nil, err
}
