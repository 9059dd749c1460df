package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites"
)

// guardName is the guard's file: one per run, the same for every dial and every owner.
func guardName(k bus.RunKey) string { return fmt.Sprintf("%s.%s.%d", k.Tenant, k.Job, k.Run) }

// command is what the guard runs.
func (r *run) command() sprites.Command {
	q := r.req.exec
	// The policy has confined it; a relative one is taken from the workspace.
	cwd, _ := plan.ConfinePath("", q.Cwd)
	return sprites.Command{
		Sprite: r.chain.Record().Sandbox, Tenant: r.key.Tenant, Guard: guardName(r.key), Job: r.key.Job,
		Argv: q.Argv, Shell: q.Shell, HasBash: r.bash, Cwd: cwd, Env: q.Env, Stdin: q.Stdin,
		Limit: r.timeout(), Ahead: r.connection, BeforeDial: r.beforeDial,
		Contested: r.contested,
	}
}

// timeout is the command's own limit; the default where the request is gone and only its record is left.
func (r *run) timeout() time.Duration {
	if r.req.exec == nil {
		return bus.DefaultTimeout
	}
	return r.req.exec.Timeout()
}

// errStopped says that a wish to stop came before the command was dialled.
var errStopped = errors.New("stopped before it was dialled")

// beforeDial journals each dial: from the first one on the command may run.
func (r *run) beforeDial(ctx context.Context, try int) error {
	if err := r.w.at(ctx, StepDialing, r.key); err != nil {
		return err
	}
	if try == 1 && r.chain.Record().Phase.Before(plan.PhaseDialing) {
		// Later it may run already; then it is stopped, not said not to have started.
		if e := r.mayStart(); e != nil {
			r.refusal = e
			return errStopped
		}
	}
	r.contested = r.contested || try > 1
	return r.chain.Dialing(ctx, bus.DialingBody{Try: try, Fresh: r.chain.Record().Fresh})
}

// dial starts the command and attends to it.
func (r *run) dial(ctx context.Context) *ending {
	start := r.w.now()
	starting, stop := r.untilHandOver(ctx)
	proc, err := r.w.sprites.Start(starting, r.command())
	stop()
	r.hangUp()
	r.measured(&r.timing.Wake, start)
	if err != nil {
		return r.notStarted(ctx, err)
	}
	return r.opened(ctx, proc)
}

// opened journals that the command runs, and attends to it.
func (r *run) opened(ctx context.Context, proc *sprites.Process) *ending {
	closing := proc
	defer func() {
		if closing != nil {
			r.closeProcess(closing)
		}
	}()
	if e := r.step(ctx, StepOpened); e != nil {
		return e
	}
	s := proc.Session()
	now := r.w.now()
	err := r.chain.Started(ctx, bus.StartedBody{}, func(rec *bus.Record) {
		rec.Session, rec.Created = s.ID, s.Created
		rec.StartedAt, rec.LimitAt = now, now.Add(r.timeout())
		rec.Timing = r.timing
		rec.Crashes = 0
	})
	if e := r.journal("journal started", err); e != nil {
		return e
	}
	if e := r.step(ctx, StepStarted); e != nil {
		return e
	}
	closing = nil // attend owns it now
	return r.attend(ctx, proc)
}

// hangUp gives up a connection that no command took.
func (r *run) hangUp() {
	r.connection.Close()
	r.connection = nil
}

func (r *run) closeProcess(p *sprites.Process) {
	if err := p.Close(); err != nil {
		r.log.Debug().Err(err).Msg("close exec connection")
	}
}

// notStarted judges a dial that did not open.
func (r *run) notStarted(ctx context.Context, err error) *ending {
	var taken *sprites.GuardTaken
	switch {
	case errors.Is(err, errStopped):
		return r.refusal
	case isFenced(err):
		return fenced()
	case errors.As(err, &taken):
		return rejoin(nil)
	case errors.Is(err, errDraining), errors.Is(err, context.Canceled), sprites.ClassOf(err) == sprites.ClassCanceled:
		// It is not known whether the dial was journalled, or reached the Sprite; the successor finds out.
		r.contested = true
		return r.interrupted(ctx, err)
	case r.chain.Record().Phase.Before(plan.PhaseDialing):
		return r.provisionFailed(ctx, "dial", err)
	case errors.Is(err, sprites.ErrGuardUnwritable):
		return failed(plan.ReasonExecutionFailed, bus.ClassExecutionFailed, "The sandbox's home folder cannot be written.", err)
	case refused(err) && !r.contested:
		// A handshake that was refused with a status started nothing.
		return r.provisionFailed(ctx, "dial", err)
	}
	// It may have started: the 101 can have been lost on its way, or an earlier dial's. The guard's file knows.
	r.contested, r.dialErr = true, err
	return rejoin(err)
}

// refused reports that the provider answered the handshake, and said no.
func refused(err error) bool {
	switch sprites.ClassOf(err) {
	case sprites.ClassUnauthorized, sprites.ClassInvalid, sprites.ClassRateLimited, sprites.ClassConcurrentLimit:
		return true
	case sprites.ClassNotFound, sprites.ClassCanceled, sprites.ClassConflict, sprites.ClassUnavailable, sprites.ClassTimeout,
		sprites.ClassTransport, "":
		return false
	}
	return false
}

// neverStarted goes on with a command of which the guard says that no dial has started it.
func (r *run) neverStarted(ctx context.Context) *ending {
	if !r.chain.Record().Phase.Before(plan.PhaseStarted) {
		return lost("Its guard's file is gone: the sandbox was restored or made anew.", nil)
	}
	if r.req.bodyless() {
		return failed(plan.ReasonError, bus.ClassExecutionFailed, "Its request was lost before it could start.", errNoBody)
	}
	if e := r.mayStart(); e != nil {
		return e
	}
	if err := r.dialErr; err != nil && (r.redials >= maxRedials || refused(err)) {
		return r.provisionFailed(ctx, "dial", err)
	}
	r.redials++
	return r.dial(ctx)
}
