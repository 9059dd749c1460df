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
	// maxRejoins bounds how often one owner goes back to a command whose connection ended. A connection that cannot be
	// kept twenty times will not be.
	maxRejoins = 20
	// maxRedials bounds how often a command that provably never started is dialled again by one owner.
	maxRedials = 2
	// rejoinFirst and rejoinMost space the tries while the sandbox cannot be asked.
	rejoinFirst = 200 * time.Millisecond
	rejoinMost  = 5 * time.Second
	// abandonAfter is how long past its limit a command is looked for: the guard's own limit is 10 s later.
	abandonAfter = 30 * time.Second
	// outlastMost bounds one wait for a command that runs without a session.
	outlastMost = 30 * time.Second
)

// rejoin brings a command that may have run to its one result: attach where it still runs, else what the guard wrote,
// else lost. Not being able to ask is no answer (case 26): it is asked again until the command must be over.
func (r *run) rejoin(ctx context.Context) *ending {
	pause := rejoinFirst
	for {
		r.rejoins++
		if r.rejoins > maxRejoins || r.overdue() {
			return r.stopBlind(ctx, errors.New("the command could not be reached again"))
		}
		e, err := r.rejoinOnce(ctx)
		if err == nil {
			return e
		}
		r.log.Info().Err(err).Msg("could not ask the sandbox about the command")
		if e := r.pause(ctx, pause); e != nil {
			return e
		}
		pause = min(pause*2, rejoinMost)
	}
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
	case <-r.chain.Fenced():
		return fenced()
	case <-r.w.handOver:
		return &ending{kind: kindHandOver}
	case <-ctx.Done():
		return &ending{kind: kindAbandon, cause: context.Cause(ctx)}
	}
}

// rejoinOnce asks once. An error means that it is not known yet.
func (r *run) rejoinOnce(ctx context.Context) (*ending, error) {
	if err := r.chain.Flush(ctx); err != nil {
		return r.journal("flush output", err), nil
	}
	end, so, se, err := r.w.bus.OutputTail(ctx, r.key, sprites.TailMax)
	if err != nil {
		return r.journal("read output tail", err), nil
	}
	rec := r.chain.Record()
	req := sprites.AttachRequest{
		Sprite: rec.Sandbox, Tenant: r.key.Tenant, Guard: guardName(r.key),
		Session: sprites.Session{ID: rec.Session, Created: rec.Created}, Delivered: so + se, Tail: end,
	}
	if rec.Phase.Before(plan.PhaseStarted) && r.req.exec != nil {
		// Its first dial was lost before its input was known to be in.
		req.Stdin = r.req.exec.Stdin
	}
	if rec.Stop != nil {
		return r.stopAgain(ctx), nil
	}
	found, err := r.w.sprites.Rejoin(ctx, req, outlastMost)
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
		if r.chain.Record().Phase.Before(plan.PhaseStarted) && r.redials < maxRedials && !r.req.bodyless() {
			r.redials++
			return r.dial(ctx)
		}
		return lost("Its guard's file is gone: the sandbox was restored or made anew.", nil)
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

// stopAgain carries an announced stop through after a take-over.
func (r *run) stopAgain(ctx context.Context) *ending {
	stopped := r.kill(ctx, sprites.Session{ID: r.chain.Record().Session, Created: r.chain.Record().Created})
	if e := r.sayGap(ctx, nil); e != nil {
		return e
	}
	return r.stoppedEnding(ctx, stopped)
}

// stopBlind stops a command that can no longer be followed, announces it, and says lost when that is not confirmed.
func (r *run) stopBlind(ctx context.Context, cause error) *ending {
	rec := r.chain.Record()
	if rec.Stop == nil && !rec.Phase.Before(plan.PhaseDialing) {
		if e := r.journal("announce stop", r.announce(ctx, stopAsk{reason: plan.StopTimeout, by: "wakebus", why: cause.Error()})); e != nil {
			return e
		}
	}
	r.kill(ctx, sprites.Session{ID: rec.Session, Created: rec.Created})
	e := lost("The command could not be reached again; it was stopped as far as that was possible.", cause)
	e.result.Stopped = stoppedUnconfirmed
	return e
}
