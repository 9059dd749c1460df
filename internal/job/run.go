package job

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

// run is one run while this worker owns it. Its fields belong to the goroutine that handles its delivery, except
// where said.
type run struct {
	w     *Worker
	req   *request
	key   bus.RunKey
	chain *bus.Chain
	actor bus.Actor
	log   zerolog.Logger

	lease *lease.Lease
	id    session.Key
	link  session.Snapshot
	bash  bool
	woke  string // what waking the Sprite found, where this owner did it

	timing bus.Timing
	began  time.Time
	out    output
	// invalid is the denial of a request that is not valid; nil for one that is.
	invalid *ending
	// refusal is why the first dial was called off.
	refusal *ending
	rejoins int
	redials int

	// stops carries requests to stop the run: a cancel, the end of its session. One is enough; later ones are dropped.
	stops chan stopAsk
	// verdict is what authorisation said before the claim, if it was asked then.
	verdict verdict

	// delivery is the run's message; the pool puts the newest handle on it when it is delivered again.
	delivery *bus.Delivery
}

// stopAsk is somebody's wish to stop a run.
type stopAsk struct {
	reason plan.StopReason
	by     string
	why    string
}

func (r *run) setChain(c *bus.Chain) {
	r.chain = c
	r.out.chain = c
}

// ask hands a wish to stop to the run. It never blocks.
func (r *run) ask(s stopAsk) {
	select {
	case r.stops <- s:
	default:
	}
}

// guarded runs f and turns a panic into an ending, so that one bad run takes nothing else with it (case 28) and its
// lease goes back (case 40).
func (r *run) guarded(f func() *ending) (e *ending) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		r.w.met.panics.Inc()
		r.log.Error().Str("panic", fmt.Sprint(p)).Str("stack", string(debug.Stack())).Msg("a run panicked")
		e = r.broken(fmt.Errorf("panic: %v", p))
	}()
	return f()
}

// broken ends a run after something unexpected: as failed while its command cannot have started, as lost after that.
func (r *run) broken(err error) *ending {
	if r.chain.Record().Phase.Before(plan.PhaseDialing) {
		return failed(plan.ReasonError, bus.ClassExecutionFailed, "", err)
	}
	return lost("The worker met an unexpected error while the command may have been running.", err)
}

// step passes a step of the run. Its error is an ending.
func (r *run) step(ctx context.Context, s Step) *ending {
	if err := r.w.at(ctx, s, r.key); err != nil {
		return r.broken(fmt.Errorf("%s: %w", s, err))
	}
	return nil
}

// journal turns the error of a journal write into the ending that it means.
func (r *run) journal(what string, err error) *ending {
	if err == nil {
		return nil
	}
	if isFenced(err) {
		return fenced()
	}
	return &ending{kind: kindAbandon, cause: fmt.Errorf("%s: %w", what, err)}
}

// untilHandOver is ctx, ended also when this worker must let go of its runs: for work that a successor repeats.
func (r *run) untilHandOver(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{}) // closed when the watcher has ended
	r.w.group.Go(func() {
		defer close(done)
		select {
		case <-r.w.handOver:
			cancel(errDraining)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// measured adds the time since start to a stage.
func (r *run) measured(stage *int64, start time.Time) {
	*stage += r.w.now().Sub(start).Milliseconds()
}

// mayStart checks what may forbid the start at any time: the deadline (case 57) and a stop that was asked for here.
func (r *run) mayStart() *ending {
	if !r.req.deadline.IsZero() && !r.w.now().Before(r.req.deadline) {
		return expired("Its deadline passed before it could start.")
	}
	select {
	case s := <-r.stops:
		return canceled(s.by, s.why)
	default:
	}
	return nil
}

// marked looks for a cancel's mark that was made before this worker began to listen for the run; later ones reach it
// by its stops.
func (r *run) marked(ctx context.Context) *ending {
	mark, err := r.mark(ctx)
	if err != nil {
		return r.journal("read cancel mark", err)
	}
	if mark != nil {
		return canceled(mark.By, mark.Why)
	}
	return nil
}

func (r *run) mark(ctx context.Context) (*bus.CancelMark, error) {
	if r.req.replay {
		return nil, nil // an operator's replay is not stopped by the mark that stopped the first run
	}
	return r.w.bus.CancelMark(ctx, r.key.Tenant, r.key.Job, r.req.conversation(), r.chain.Record().QueuedAt)
}

// hearMark hands a cancel that came while nobody owned the run to it, and reports whether there was one. A mark that
// cannot be read now is heard when the watch catches up.
func (r *run) hearMark(ctx context.Context) bool {
	mark, err := r.mark(ctx)
	if err != nil || mark == nil {
		return false
	}
	r.ask(stopOf(*mark))
	return true
}
