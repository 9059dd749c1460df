package job

import (
	"context"
	"errors"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites"
)

const (
	// maxRedials bounds how often a command that provably never started is dialled again at once by one owner.
	maxRedials = 2
	// maxFaults bounds how often one owner goes back to a command after unexpected errors of its own.
	maxFaults = 3
	// rejoinFirst and rejoinMost space the tries while the sandbox cannot be asked.
	rejoinFirst = 200 * time.Millisecond
	rejoinMost  = 5 * time.Second
	// abandonAfter is how long past its limit a command is looked for: the guard's own limit is 10 s later.
	abandonAfter = 30 * time.Second
	// outlastMost bounds one wait for a command that runs without a session.
	outlastMost = 30 * time.Second
)

var (
	errUnreachable = errors.New("the command could not be reached again before its limit had long passed")
	errFaults      = errors.New("the worker met unexpected errors again and again while the command may have been running")
)

// rejoin brings a command that may have run nearer to its one result: attach where it still runs, else what the guard
// wrote, else lost. Not being able to ask is no answer (case 26): it is asked again until the command must be over.
func (r *run) rejoin(ctx context.Context, cause error) *ending {
	switch {
	case r.exit != nil:
		return r.exited(ctx, *r.exit)
	case r.chain.Record().Stop != nil && r.faults > maxFaults:
		return r.stoppedEnding(ctx, stoppedUnconfirmed)
	case r.chain.Record().Stop != nil:
		return r.stopAgain(ctx)
	case r.faults > maxFaults:
		return r.giveUp(ctx, bus.ClassOutcomeUnknown, errors.Join(errFaults, cause))
	case r.overdue():
		return r.stopUnseen(ctx, stopAsk{reason: plan.StopTimeout, by: "wakebus", why: errUnreachable.Error()})
	}
	if r.fruitless > 0 {
		if e := r.pause(ctx, min(rejoinFirst<<min(r.fruitless-1, 10), rejoinMost)); e != nil {
			return e
		}
	}
	r.fruitless++
	e, err := r.rejoinOnce(ctx)
	if err == nil {
		return e
	}
	if sprites.ClassOf(err) == sprites.ClassCanceled {
		return r.interrupted(ctx, err)
	}
	r.log.Info().Err(err).Int("tries", r.fruitless).Msg("could not ask the sandbox about the command")
	return rejoin(err)
}

// overdue reports that the command must have ended by itself: the guard kills it 10 s after its limit.
func (r *run) overdue() bool {
	limit := r.chain.Record().LimitAt
	if limit.IsZero() {
		limit = r.began.Add(r.timeout())
	}
	return r.w.now().After(limit.Add(abandonAfter))
}

// pause waits between two tries, and hears what may end the waiting.
func (r *run) pause(ctx context.Context, d time.Duration) *ending {
	t := r.w.timer(r.w.now().Add(d))
	defer t.Stop()
	select {
	case <-t.C():
		return nil
	case s := <-r.stops:
		return r.stopUnseen(ctx, s)
	case <-r.chain.Fenced():
		return fenced()
	case <-r.w.staying.Done():
		return &ending{kind: kindHandOver}
	case <-ctx.Done():
		return &ending{kind: kindAbandon, cause: context.Cause(ctx)}
	}
}

// attachRequest asks for the command's output from where the journal ends.
func (r *run) attachRequest(ctx context.Context) (sprites.AttachRequest, *ending) {
	if err := r.chain.Flush(ctx); err != nil {
		return sprites.AttachRequest{}, r.journal("flush output", err)
	}
	end, so, se, err := r.w.bus.OutputTail(ctx, r.key, sprites.TailMax)
	if err != nil {
		return sprites.AttachRequest{}, r.journal("read output tail", err)
	}
	rec := r.chain.Record()
	req := sprites.AttachRequest{
		Sprite: rec.Sandbox, Tenant: r.key.Tenant, Guard: guardName(r.key),
		Session: sprites.Session{ID: rec.Session, Created: rec.Created}, Delivered: so + se, Tail: end,
	}
	if r.req.exec != nil {
		// Even once it was said to be in, it may have stood in a buffer of the connection that was lost.
		req.Stdin = r.req.exec.Stdin
	}
	return req, nil
}

// rejoinOnce asks once. An error means that it is not known yet.
func (r *run) rejoinOnce(ctx context.Context) (*ending, error) {
	req, e := r.attachRequest(ctx)
	if e != nil {
		return e, nil
	}
	asking, stop := r.untilHandOver(ctx)
	found, err := r.w.sprites.Rejoin(asking, req, outlastMost)
	stop()
	if err != nil {
		return nil, err
	}
	return r.rejoined(ctx, found), nil
}

// rejoined acts on what became of the command.
func (r *run) rejoined(ctx context.Context, found sprites.Rejoined) *ending {
	switch found.Fate {
	case sprites.FateRunning:
		return r.goOn(ctx, found)
	case sprites.FateExited:
		if e := r.sayGap(ctx, nil); e != nil {
			return e
		}
		return r.exited(ctx, found.Exit)
	case sprites.FateLimit:
		if e := r.sayGap(ctx, nil); e != nil {
			return e
		}
		return &ending{result: bus.ResultBody{Outcome: plan.OutcomeTimedOut, LimitMs: r.timeout().Milliseconds(), Stopped: stoppedConfirmed,
			Message: "Nobody watched it at its limit; the guard in the sandbox stopped it."}}
	case sprites.FateNever:
		return r.neverStarted(ctx)
	case sprites.FateLost:
		return lost("The connection ended, and neither its session nor the sandbox can say how the command ended.", nil)
	}
	return lost("The sandbox cannot say how the command ended.", nil)
}

// goOn continues with a command that still runs.
func (r *run) goOn(ctx context.Context, found sprites.Rejoined) *ending {
	if found.Alignment.Kind == sprites.AlignGap {
		if e := r.sayGap(ctx, found.Alignment.Bytes); e != nil {
			r.closeProcess(found.Process)
			return e
		}
	}
	if r.chain.Record().Phase.Before(plan.PhaseStarted) {
		return r.opened(ctx, found.Process)
	}
	return r.attend(ctx, found.Process)
}

// sayGap says that output is missing here, because the command changed hands or its connection was lost.
func (r *run) sayGap(ctx context.Context, n *int64) *ending {
	err := r.chain.Gap(ctx, bus.GapBody{Stream: bus.GapBoth, Bytes: n, Why: bus.GapWhyTakeover})
	return r.journal("say gap", err)
}

// stopUnseen announces a stop of a command that no connection follows now, and stops it.
func (r *run) stopUnseen(ctx context.Context, s stopAsk) *ending {
	if e := r.journal("announce stop", r.announce(ctx, s)); e != nil {
		return e
	}
	return r.stopAgain(ctx)
}

// stopAgain carries an announced stop through where no connection follows the command: it attaches first, so that what
// the command still writes is not lost, and stops it all the same where that fails.
func (r *run) stopAgain(ctx context.Context) *ending {
	req, e := r.attachRequest(ctx)
	if e != nil {
		return e
	}
	found, err := r.w.sprites.Rejoin(ctx, req, 0)
	if err == nil && found.Fate == sprites.FateRunning {
		return r.goOn(ctx, found)
	}
	stopped := stoppedConfirmed
	if err != nil {
		r.log.Info().Err(err).Msg("could not attach to a command that must be stopped")
		rec := r.chain.Record()
		stopped = r.kill(ctx, sprites.Session{ID: rec.Session, Created: rec.Created})
	}
	if e := r.sayGap(ctx, nil); e != nil {
		return e
	}
	return r.stoppedEnding(ctx, stopped)
}

// giveUp stops a command that can no longer be followed, announces it, and says lost: nobody knows how it ended. The
// announcement says so too, so that whoever carries the stop on says the same.
func (r *run) giveUp(ctx context.Context, class bus.LetterClass, cause error) *ending {
	stopped := stoppedUnconfirmed
	if rec := r.chain.Record(); !rec.Phase.Before(plan.PhaseDialing) {
		if rec.Stop == nil {
			ask := stopAsk{reason: plan.StopRevoked, by: "wakebus", why: cause.Error(), lost: class}
			if e := r.journal("announce stop", r.announce(ctx, ask)); e != nil {
				return e
			}
			if e := r.step(ctx, StepStopping); e != nil {
				return e
			}
		}
		stopped = r.kill(ctx, sprites.Session{ID: rec.Session, Created: rec.Created})
	}
	return gaveUpOn(class, stopped, cause)
}

// gaveUpOn is the result of a run whose command an owner could not follow any more.
func gaveUpOn(class bus.LetterClass, stopped string, cause error) *ending {
	e := lost("The command could not be followed any more; it was stopped as far as that was possible.", cause)
	e.letter, e.result.Class = class, string(class)
	if class == bus.ClassCrashLoop {
		e.result.Reason = plan.ReasonCrashLoop
	}
	e.result.Stopped, e.keepLease = stopped, stopped != stoppedConfirmed
	return e
}
