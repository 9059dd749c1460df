package sprites

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Fate is what became of a command whose socket was lost, or whose dial is in doubt.
type Fate string

// The fates.
const (
	FateRunning Fate = "running" // it runs, and Process is attached to it
	FateExited  Fate = "exited"  // it ended; Exit is what its guard wrote
	FateLimit   Fate = "limit"   // its guard's limit ended it
	// FateNever: there is no guard file. Start it again by the same guard name, as Contested: should the first dial's
	// command come late after all, the guard lets only one of them run. (After a restore the file may be gone although
	// the command ran.)
	FateNever Fate = "never"
	FateLost  Fate = "lost" // it was started and ended, or is beyond reach, and nobody knows how
)

// Rejoined is what Rejoin found.
type Rejoined struct {
	// Fate decides which of the others is set.
	Fate Fate
	// Process continues the output, with FateRunning.
	Process *Process
	// Alignment belongs to Process.
	Alignment Alignment
	// Exit is set with FateExited.
	Exit Exit
	// State is what the guard's file said last.
	State GuardState
}

// Rejoin finds out what became of a guarded command, and attaches to it when it still runs. req.Session may be zero when
// no session was ever seen: the guard's pid is the session's id. A command that runs without a listed session is waited
// for by its guard file, for at most wait, then stopped: its output is beyond reach. Only FateNever allows to start it
// again. It blocks for wait and some DialTimeouts at most. An error means that it is not known
// yet: ask again.
func (c *Client) Rejoin(ctx context.Context, req AttachRequest, wait time.Duration) (Rejoined, error) {
	if req.Session.ID != "" {
		found, err := c.reattach(ctx, req)
		if err != nil || found.Fate == FateRunning {
			return found, err
		}
	}
	state, err := c.lookTwice(ctx, req)
	if ClassOf(err) == ClassNotFound {
		return Rejoined{Fate: FateLost}, nil // the Sprite is gone, and its files with it
	}
	if err != nil {
		return Rejoined{}, fmt.Errorf("rejoin: %w", err)
	}
	if found, done := settled(state); done {
		return found, nil
	}
	if id := strconv.Itoa(state.Pid); id != req.Session.ID {
		req.Session = Session{ID: id} // no created: the guard's start time already named the process
		found, err := c.reattach(ctx, req)
		if err != nil || found.Fate == FateRunning {
			found.State = state
			return found, err
		}
	}
	return c.outlast(ctx, req, wait)
}

// lookTwice reads the guard's file, and again after a moment when it is not there or not yet written: a command whose
// socket was lost at once may only be starting.
func (c *Client) lookTwice(ctx context.Context, req AttachRequest) (GuardState, error) {
	state, err := c.Guard(ctx, req.Sprite, req.Guard)
	for _, pause := range []time.Duration{500 * time.Millisecond, time.Second} {
		if err != nil || state.Pid != 0 {
			break
		}
		if serr := c.cfg.Sleep(ctx, pause); serr != nil {
			return state, failure(ctx, OpProbe, serr)
		}
		state, err = c.Guard(ctx, req.Sprite, req.Guard)
	}
	return state, err
}

// reattach attaches, taking "not there" for an answer.
func (c *Client) reattach(ctx context.Context, req AttachRequest) (Rejoined, error) {
	p, alignment, err := c.Attach(ctx, req)
	if ClassOf(err) == ClassNotFound {
		return Rejoined{Fate: FateLost}, nil
	}
	if err != nil {
		return Rejoined{}, fmt.Errorf("rejoin: %w", err)
	}
	return Rejoined{Fate: FateRunning, Process: p, Alignment: alignment}, nil
}

// settled tells what a guard's file decides by itself; false means that the command still runs.
func settled(state GuardState) (Rejoined, bool) {
	switch {
	case !state.Exists:
		return Rejoined{Fate: FateNever, State: state}, true
	case state.LimitHit:
		return Rejoined{Fate: FateLimit, State: state}, true
	case state.Exit != nil:
		return Rejoined{Fate: FateExited, Exit: newExit(*state.Exit, ExitFile), State: state}, true
	case !state.Alive:
		return Rejoined{Fate: FateLost, State: state}, true
	}
	return Rejoined{}, false
}

// stopGrace is how long a command without a session gets between TERM and KILL.
const stopGrace = 5 * time.Second

// outlast follows the guard's file until the command ends or wait is over; then it stops its group.
func (c *Client) outlast(ctx context.Context, req AttachRequest, wait time.Duration) (Rejoined, error) {
	deadline := c.cfg.Now().Add(wait)
	for {
		left := deadline.Sub(c.cfg.Now())
		if left <= 0 {
			break
		}
		state, err := c.AwaitGuard(ctx, req.Sprite, req.Guard, max(left, time.Second))
		if err != nil {
			return Rejoined{}, fmt.Errorf("rejoin: %w", err)
		}
		if found, done := settled(state); done {
			return found, nil
		}
	}
	for _, sig := range []Signal{SignalTerm, SignalKill} {
		state, err := c.StopGuard(ctx, req.Sprite, req.Guard, sig, stopGrace)
		if err != nil {
			return Rejoined{}, fmt.Errorf("rejoin: %w", err)
		}
		if !state.Alive {
			return Rejoined{Fate: FateLost, State: state}, nil
		}
	}
	return Rejoined{}, fmt.Errorf("rejoin: %w", &Error{Op: OpKill, Class: ClassUnavailable, cause: errors.New("command outlives KILL")})
}
