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
	"github.com/wakebus/wakebus/internal/sprites"
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

	// ahead is what is being read beside the lease.
	ahead readings
	// connection is being opened for the command while what was planned is written down.
	connection *sprites.Ahead

	timing bus.Timing
	began  time.Time
	out    output
	// invalid is the denial of a request that is not valid; nil for one that is.
	invalid *ending
	// refusal is why the first dial was called off.
	refusal *ending
	// exit is how the command ended, once an exit frame was seen.
	exit *sprites.Exit
	// contested: an earlier dial, of whoever, may have started the command.
	contested bool
	// dialErr is why the last dial did not open.
	dialErr error
	// inherited: the run was taken over from an owner that died.
	inherited bool
	redials   int
	// fruitless counts tries to find the command that brought nothing; the pauses grow with it.
	fruitless int
	// faults counts unexpected errors and panics once the command may run.
	faults int

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
	// lost is set when nobody will know how the command ended: the class of the dead letter to leave.
	lost bus.LetterClass
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

// broken ends a run after something unexpected while its command cannot have started. After that the command is gone
// back to: what fails beside it does not change how it ends (case 60).
func (r *run) broken(err error) *ending {
	if r.chain.Record().Phase.Before(plan.PhaseDialing) {
		return failed(plan.ReasonError, bus.ClassExecutionFailed, "", err)
	}
	r.faults++
	r.log.Error().Err(err).Int("faults", r.faults).Msg("unexpected error beside a command that may run")
	if r.faults > 2*maxFaults {
		// Not even giving up works here. The message comes again after the ack wait, here or elsewhere.
		return &ending{kind: kindAbandon, cause: err}
	}
	return rejoin(err)
}

// carry takes the run from next to an ending that can be settled.
func (r *run) carry(ctx context.Context, next func(context.Context) *ending) *ending {
	e := r.guarded(func() *ending { return next(ctx) })
	for e.kind == kindRejoin {
		e = r.guarded(func() *ending { return r.rejoin(ctx, e.cause) })
	}
	if r.leaving() && e.unfinished() && r.chain.Record().Phase.Before(plan.PhaseStarted) {
		// Our own leaving may be what broke it. A peer repeats whatever comes before the start.
		r.log.Info().Err(e.cause).Msg("interrupted by the shutdown")
		return &ending{kind: kindHandOver}
	}
	return e
}

// leaving reports that this worker must let go of its runs now.
func (r *run) leaving() bool {
	select {
	case <-r.w.staying.Done():
		return true
	default:
		return false
	}
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
	unhook := context.AfterFunc(r.w.staying, func() { cancel(errDraining) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// measured adds the time since start to a stage.
func (r *run) measured(stage *int64, start time.Time) {
	*stage += r.w.now().Sub(start).Milliseconds()
}

// tooLate reports that the deadline has passed.
func (r *run) tooLate() bool { return !r.req.deadline.IsZero() && !r.w.now().Before(r.req.deadline) }

// mayStart checks what may forbid the start at any time: the deadline (case 57) and a stop that was asked for here.
func (r *run) mayStart() *ending {
	if r.tooLate() {
		return r.outOfTime()
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

// mark reads the cancel's mark that holds for this run, or nil.
func (r *run) mark(ctx context.Context) (*bus.CancelMark, error) {
	queued := r.chain.Record().QueuedAt
	mark, err := r.w.bus.CancelMark(ctx, r.key.Tenant, r.key.Job, r.req.conversation(), queued)
	if err != nil || mark == nil {
		return nil, err
	}
	if r.req.replay && !mark.At.After(queued) {
		// An operator's replay is not stopped by the mark that stopped the first run.
		return nil, nil
	}
	return mark, nil
}

// hearMark turns a mark that was made while nobody owned the run into a wish to stop it. A mark that cannot be read now
// stops nothing; the run goes on.
func (r *run) hearMark(ctx context.Context) {
	mark, err := r.mark(ctx)
	if err != nil {
		r.log.Warn().Err(err).Msg("cancel mark not read at the take-over")
		return
	}
	if mark != nil {
		r.ask(stopOf(*mark))
	}
}
