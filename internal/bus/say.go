package bus

import (
	"context"
	"fmt"
	"time"
)

// The methods of this file are State with the right body for each kind. Their bodies' Run is filled in; each mutate is
// applied to the record in turn.

func all(mutate []func(*Record)) func(*Record) {
	return func(r *Record) {
		for _, m := range mutate {
			m(r)
		}
	}
}

// Waiting says that the run waits while this owner keeps it. Whoever stops owning uses Detach or Release.
func (c *Chain) Waiting(ctx context.Context, body WaitingBody, mutate ...func(*Record)) error {
	return c.State(ctx, EventWaiting, func(r Record) any { body.Run = r; return body }, all(mutate))
}

// Planned says which plan was decided on and why, and keeps both in the record.
func (c *Chain) Planned(ctx context.Context, body PlannedBody, mutate ...func(*Record)) error {
	mutate = append([]func(*Record){func(r *Record) { r.Plan, r.Why = body.Plan, body.Why }}, mutate...)
	return c.State(ctx, EventPlanned, func(r Record) any { body.Run = r; return body }, all(mutate))
}

// Dialing says that from here on the command may run.
func (c *Chain) Dialing(ctx context.Context, body DialingBody, mutate ...func(*Record)) error {
	return c.State(ctx, EventDialing, func(r Record) any { body.Run = r; return body }, all(mutate))
}

// Started says that the command runs and its stdin is in.
func (c *Chain) Started(ctx context.Context, body StartedBody, mutate ...func(*Record)) error {
	return c.State(ctx, EventStarted, func(r Record) any { body.Run = r; return body }, all(mutate))
}

// Stopping announces a stop, and keeps it in the record unless one is there. Only after a nil error may the owner signal.
func (c *Chain) Stopping(ctx context.Context, body StoppingBody, mutate ...func(*Record)) error {
	first := func(r *Record) {
		if r.Stop == nil {
			r.Stop = &Stop{Reason: body.Reason, By: body.By, At: c.bus.now().UTC()}
		}
	}
	return c.State(ctx, EventStopping, func(r Record) any { body.Run = r; return body }, all(append([]func(*Record){first}, mutate...)))
}

// Heartbeat says that the run lives; its byte counts are filled in. At most one in 30 s is worth its storage.
func (c *Chain) Heartbeat(ctx context.Context, body HeartbeatBody, mutate ...func(*Record)) error {
	return c.State(ctx, EventHeartbeat, func(r Record) any { return c.heartbeat(body, r) }, all(mutate))
}

func (c *Chain) heartbeat(body HeartbeatBody, r Record) HeartbeatBody {
	body.StdoutBytes, body.StderrBytes = c.Offsets()
	if body.RunningMs == 0 && !r.StartedAt.IsZero() {
		body.RunningMs = c.bus.now().Sub(r.StartedAt).Milliseconds()
	}
	body.Run = r
	return body
}

// Result ends the run: it waits until all output is stored, publishes result with the last number, and closes the
// chain for everything else. When ctx ends before it is stored the chain stays open, and Result may be called again
// with the same body.
func (c *Chain) Result(ctx context.Context, body ResultBody, mutate ...func(*Record)) error {
	c.seal(true)
	err := c.settle(ctx, func() error {
		return c.state(ctx, EventResult, string(c.owner), func(r Record) any { body.Run = r; return body }, all(mutate))
	})
	if err != nil {
		c.seal(false)
		return err
	}
	c.end(ErrEnded)
	return nil
}

// Detach is Release with a body made of its arguments.
func (c *Chain) Detach(ctx context.Context, waitFor WaitFor, until time.Time, why string, mutate ...func(*Record)) error {
	return c.Release(ctx, WaitingBody{For: waitFor, Until: until, Why: why}, mutate...)
}

// Release stops owning, and says so: it waits until all output is stored, publishes waiting with nobody as owner, and
// closes the chain. After it the request may be parked or given back. Errors as Result.
func (c *Chain) Release(ctx context.Context, body WaitingBody, mutate ...func(*Record)) error {
	c.seal(true)
	err := c.settle(ctx, func() error {
		return c.state(ctx, EventWaiting, NoOwner, func(r Record) any { body.Run = r; return body }, all(mutate))
	})
	if err != nil {
		c.seal(false)
		return err
	}
	c.end(fmt.Errorf("%w: the run was let go", ErrClosed))
	return nil
}

func (c *Chain) seal(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = on
}

// settle publishes with the turn once no output is left; the seal keeps more from coming.
func (c *Chain) settle(ctx context.Context, publish func() error) error {
	for {
		if err := c.Flush(ctx); err != nil {
			return err
		}
		if err := c.lock(ctx); err != nil {
			return fmt.Errorf("end run %s: %w", c.key, err)
		}
		c.mu.Lock()
		idle := !c.pumping
		c.mu.Unlock()
		if idle {
			break
		}
		c.unlock()
	}
	defer c.unlock()
	return publish()
}
