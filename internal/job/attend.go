package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites"
)

// heartbeatEvery is how often a running command's journal says that its owner is there. It is also how a silent
// zombie finds out that it was fenced.
const heartbeatEvery = 30 * time.Second

// attend watches over a running command until it ends, must be stopped, or this worker must let go of it. It owns proc.
func (r *run) attend(ctx context.Context, proc *sprites.Process) *ending {
	start := r.w.now()
	e := r.watch(ctx, proc)
	r.measured(&r.timing.Run, start)
	if r.w.now().Sub(start) > rejoinMost {
		r.fruitless = 0 // the connection held; a loss of it is a new one
	}
	return e
}

// pumped is how reading a process ended.
type pumped struct {
	over bool  // it wrote more than it may
	err  error // nil: it ended and said how
}

// pump moves output from the process to the journal until the process ends. It is the only user of r.out.
func (r *run) pump(ctx context.Context, proc *sprites.Process, over chan<- struct{}) pumped {
	said, first := false, true
	for {
		chunk, err := proc.Next(ctx)
		if errors.Is(err, io.EOF) {
			return pumped{over: said}
		}
		if err != nil {
			return pumped{over: said, err: err}
		}
		stream := stdout
		if chunk.Stream == sprites.Stderr {
			stream = stderr
		}
		tooMuch, err := r.out.add(ctx, stream, chunk.Data)
		if err != nil {
			return pumped{over: said, err: err}
		}
		if first {
			first = false
			if err := r.w.at(ctx, StepStreaming, r.key); err != nil {
				return pumped{over: said, err: fmt.Errorf("%s: %w", StepStreaming, err)}
			}
		}
		if tooMuch && !said {
			said = true
			close(over)
		}
	}
}

func (r *run) watch(ctx context.Context, proc *sprites.Process) *ending {
	defer r.closeProcess(proc) // every way out has closed it, but for a panic's
	pumpCtx, stopPump := context.WithCancelCause(ctx)
	defer stopPump(nil)
	over, done := make(chan struct{}), make(chan pumped, 1)
	r.w.group.Go(func() {
		var p pumped
		defer func() {
			if v := recover(); v != nil {
				p = pumped{err: fmt.Errorf("panic while reading output: %v", v)}
			}
			done <- p
		}()
		p = r.pump(pumpCtx, proc, over)
	})
	finish := func() pumped {
		stopPump(errors.New("this worker lets go of the run"))
		r.closeProcess(proc)
		return <-done
	}
	if r.chain.Record().Stop != nil {
		return r.stop(ctx, proc, done, finish, nil)
	}
	limit := r.w.timer(r.chain.Record().LimitAt)
	defer limit.Stop()
	beat := r.w.timer(r.w.now().Add(heartbeatEvery))
	defer func() { beat.Stop() }()
	var revoked <-chan struct{}
	if r.lease != nil {
		revoked = r.lease.Context().Done()
	}
	overC := (<-chan struct{})(over)
	for {
		select {
		case p := <-done:
			r.closeProcess(proc)
			return r.ended(ctx, proc, p)
		case <-limit.C():
			return r.stop(ctx, proc, done, finish, &stopAsk{reason: plan.StopTimeout})
		case s := <-r.stops:
			return r.stop(ctx, proc, done, finish, &s)
		case <-overC:
			return r.stop(ctx, proc, done, finish, &stopAsk{reason: plan.StopOutputLimit})
		case <-revoked:
			revoked = nil
			if s, ok := leaseStop(context.Cause(r.lease.Context())); ok {
				return r.stop(ctx, proc, done, finish, &s)
			}
		case <-r.chain.Fenced():
			finish()
			return fenced()
		case <-r.w.staying.Done():
			finish()
			return &ending{kind: kindHandOver}
		case <-beat.C():
			if e := r.beat(ctx); e != nil {
				finish()
				return e
			}
			beat = r.w.timer(r.w.now().Add(heartbeatEvery))
			if r.lease == nil {
				// Redis was away when the run was taken over.
				r.hold(ctx)
				if r.lease != nil {
					revoked = r.lease.Context().Done()
				}
			}
		case <-ctx.Done():
			finish()
			return &ending{kind: kindAbandon, cause: context.Cause(ctx)}
		}
	}
}

// leaseStop is the stop that a lease's end asks for. Only revocation and the maximum hold stop a run.
func leaseStop(cause error) (stopAsk, bool) {
	var gone *lease.Lost
	if !errors.As(cause, &gone) {
		return stopAsk{}, false
	}
	switch gone.Reason {
	case lease.Revoked:
		return stopAsk{reason: plan.StopRevoked, by: gone.By, why: gone.Why}, true
	case lease.MaxHold:
		return stopAsk{reason: plan.StopRevoked, by: "wakebus", why: "the lease was held for its maximum time"}, true
	case lease.Transferred, lease.Expired:
		// Another owner has the run, which the journal says as well; and a lost lease kills nothing.
	}
	return stopAsk{}, false
}

// beat says that the owner is there. A broker that is away stops nothing: the next beat comes.
func (r *run) beat(ctx context.Context) *ending {
	so, se := r.chain.Offsets()
	running := r.w.now().Sub(r.chain.Record().StartedAt)
	err := r.chain.Heartbeat(ctx, bus.HeartbeatBody{RunningMs: running.Milliseconds(), StdoutBytes: so, StderrBytes: se},
		func(rec *bus.Record) { rec.Crashes = 0 }) // half a minute of watching is progress
	if isFenced(err) {
		return fenced()
	}
	if err != nil {
		r.log.Warn().Err(err).Msg("heartbeat not stored")
	}
	return nil
}

// ended judges a process whose stream ended by itself.
func (r *run) ended(ctx context.Context, proc *sprites.Process, p pumped) *ending {
	if isFenced(p.err) {
		return fenced()
	}
	exit, ok := proc.Exit()
	if !ok || p.err != nil {
		if p.err != nil && errors.Is(p.err, bus.ErrUnreachable) {
			return &ending{kind: kindAbandon, cause: p.err}
		}
		if errors.Is(p.err, sprites.ErrGuardUnwritable) {
			return failed(plan.ReasonExecutionFailed, bus.ClassExecutionFailed, "The sandbox's home folder cannot be written.", p.err)
		}
		r.log.Info().Err(p.err).Msg("connection ended without an exit frame")
		return rejoin(p.err)
	}
	r.exit = &exit
	if err := r.w.at(ctx, StepExited, r.key); err != nil {
		r.log.Error().Err(err).Msg("step failed; the command has ended all the same")
	}
	return r.exited(ctx, exit)
}

// exited is the result of a command that ended by itself and said how.
func (r *run) exited(ctx context.Context, exit sprites.Exit) *ending {
	if err := r.out.finish(ctx); err != nil {
		return r.journal("finish output", err)
	}
	code := exit.Code
	return &ending{result: bus.ResultBody{
		Outcome: plan.OutcomeExited, ExitCode: &code, Signal: exit.Signal, ExitSource: string(exit.Source),
		Hint: string(plan.OutcomeHint(code, r.out.stderrEnd())),
	}}
}

// stop announces that the command will be stopped, unless an earlier owner did, stops it, and makes the reason its
// outcome whatever code follows.
func (r *run) stop(ctx context.Context, proc *sprites.Process, done <-chan pumped, finish func() pumped, s *stopAsk) *ending {
	if s != nil {
		if e := r.journal("announce stop", r.announce(ctx, *s)); e != nil {
			finish()
			return e
		}
	}
	if e := r.step(ctx, StepStopping); e != nil {
		finish()
		return e
	}
	stopped := r.kill(ctx, proc.Session())
	if isFenced(r.chain.Fence()) {
		finish()
		return fenced()
	}
	if !r.drained(proc, done, finish, stopped == stoppedConfirmed) {
		if e := r.sayGap(ctx, nil); e != nil {
			return e
		}
	}
	return r.stoppedEnding(ctx, stopped)
}

// drained waits for what a stopped command still wrote and for the end of its output, but not for long. It is false when
// some of it may be missing.
func (r *run) drained(proc *sprites.Process, done <-chan pumped, finish func() pumped, wait bool) bool {
	if !wait {
		finish()
		return false
	}
	drain := r.w.timer(r.w.now().Add(stopDrain))
	defer drain.Stop()
	select {
	case p := <-done:
		r.closeProcess(proc)
		return p.err == nil
	case <-drain.C():
		finish()
		return false
	}
}

const (
	stoppedConfirmed   = "confirmed"
	stoppedUnconfirmed = "not_confirmed"
	// stopDrain is how long the end of the output may take once the process is known to be gone.
	stopDrain = 500 * time.Millisecond
	// stopGrace is how long a process has between TERM and KILL.
	stopGrace = 2 * time.Second
)

func (r *run) announce(ctx context.Context, s stopAsk) error {
	now := r.w.now()
	return r.chain.Stopping(ctx, bus.StoppingBody{Reason: s.reason, By: s.by}, func(rec *bus.Record) {
		rec.Stop = &bus.Stop{Reason: s.reason, By: s.by, Why: s.why, At: now, Lost: s.lost}
		rec.Timing = r.timing
		rec.Crashes = 0
	})
}

// kill stops the command's process group: TERM, grace, KILL. Only who announced it may call it, and only while the
// announcement is its own: a worker that was frozen after it asks the journal first. A session that the API
// does not know, or does not know any more, is asked for by the guard's file.
func (r *run) kill(ctx context.Context, s sprites.Session) string {
	sandbox := r.chain.Record().Sandbox
	if r.chain.StateAge() >= r.w.bus.AckWait()/2 {
		if err := r.chain.Heartbeat(ctx, bus.HeartbeatBody{}); err != nil {
			r.log.Warn().Err(err).Msg("not stopped: the run may have another owner")
			return stoppedUnconfirmed
		}
	}
	if s.ID != "" {
		killed, err := r.w.sprites.Stop(ctx, sandbox, s, stopGrace)
		if err != nil {
			r.log.Warn().Err(err).Msg("stop was not confirmed")
			return stoppedUnconfirmed
		}
		if killed == sprites.KillConfirmed {
			return stoppedConfirmed
		}
	}
	for _, signal := range []sprites.Signal{sprites.SignalTerm, sprites.SignalKill} {
		state, err := r.w.sprites.StopGuard(ctx, sandbox, guardName(r.key), signal, stopGrace)
		if sprites.ClassOf(err) == sprites.ClassNotFound || err == nil && !state.Alive {
			return stoppedConfirmed
		}
		if err != nil {
			r.log.Warn().Err(err).Msg("stop was not confirmed")
			return stoppedUnconfirmed
		}
	}
	return stoppedUnconfirmed
}

// stoppedEnding is the result of an announced stop.
func (r *run) stoppedEnding(ctx context.Context, stopped string) *ending {
	if err := r.out.finish(ctx); err != nil {
		if e := r.journal("finish output", err); e != nil {
			return e
		}
	}
	rec := r.chain.Record()
	if rec.Stop.Lost != "" {
		return gaveUpOn(rec.Stop.Lost, stopped, nil)
	}
	e := &ending{keepLease: stopped != stoppedConfirmed, result: bus.ResultBody{
		Outcome: rec.Stop.Reason.Outcome(), By: rec.Stop.By, Message: rec.Stop.Why, Stopped: stopped,
	}}
	if rec.Stop.Reason == plan.StopTimeout {
		e.result.LimitMs = r.timeout().Milliseconds()
	}
	if rec.Stop.Reason == plan.StopSessionEnded && e.result.Message == "" {
		e.result.Message = plan.ReasonSessionEnded.Sentence()
	}
	return e
}
