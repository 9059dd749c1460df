package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// receive takes one delivery through to its settlement. It is the pool's handler and returns when this worker has
// nothing more to do for the message.
func (w *Worker) receive(ctx context.Context, d *bus.Delivery) {
	log := w.log.With().Str(telemetry.KeyTenant, d.Tenant).Str("kind", string(d.Kind)).Uint64("queued", d.Queued).Logger()
	if !plan.ValidToken(d.Tenant) {
		// No reply subject can be made of it; under the reserved tenant the operators see it.
		d.Tenant = plan.NoTenant
		w.malformed(ctx, d, errTenant, &log)
		return
	}
	q, invalid, err := w.read(ctx, d)
	if errors.Is(err, errMalformed) {
		w.malformed(ctx, d, err, &log)
		return
	}
	if err != nil {
		log.Warn().Err(err).Msg("request could not be read now")
		w.nak(d, letterRetry, &log)
		return
	}
	log = log.With().Str(telemetry.KeyJob, q.key.Job).Int("run", q.key.Run).Logger()
	if live := w.hub.find(q.key); live != nil {
		w.again(ctx, live, q, d, &log)
		return
	}
	r := &run{
		w: w, req: q, key: q.key, log: log, began: w.now(), stops: make(chan stopAsk, 1), delivery: d,
	}
	r.out = output{limit: w.cfg.StreamBytes, hard: w.cfg.StreamHardCap}
	if q.exec != nil {
		r.out.limit, r.out.kill = q.exec.OutputCap(w.cfg.StreamBytes), q.exec.Kills()
	}
	r.invalid = invalid
	next, err := w.own(ctx, r, d)
	if errors.Is(err, bus.ErrNotEvent) {
		// No result can be chained to it either; a request that came again for ever would help nobody.
		w.malformed(ctx, d, err, &log)
		return
	}
	if err != nil {
		log.Warn().Err(err).Msg("run could not be claimed now; the request comes again")
		d.Forget()
		return
	}
	if next == nil {
		return
	}
	if !w.hub.add(r) {
		// A second delivery of the same message won the race to own it here; it carries on.
		d.Forget()
		return
	}
	defer w.hub.remove(r)
	ctx, end := w.traced(ctx, r, d)
	defer end()
	r.drive(ctx, next)
}

// again handles a message of a run that this worker runs now: a second copy of its own, or the same job published
// twice. The run's own message carries it, so this one can go.
func (w *Worker) again(ctx context.Context, live *run, q *request, d *bus.Delivery, log logger) {
	if live.chain.Record().Queued == d.Queued {
		if d.Delivered > 1 || d.Source == bus.SourceRetry {
			// It may be the very message that carries the run, let go of a moment ago; or a due one, which took the parked one
			// out of its schedule when it was stored.
			w.nak(d, w.bus.AckWait(), log)
			return
		}
		w.ack(ctx, d, log)
		return
	}
	w.duplicate(ctx, q, d, live.chain.Request(), log)
}

// duplicate acks a job that was published again; the journal is the idempotency. Another body under the same id is
// for the caller to notice by Wb-Request; it is audited here.
func (w *Worker) duplicate(ctx context.Context, q *request, d *bus.Delivery, sha string, log logger) {
	w.met.duplicates.Inc()
	if sha != "" && sha != q.sha {
		w.strangers.Warn().Str("tenant", q.key.Tenant).Str("job_id", q.key.Job).Msg("a job id was used again with another body")
		w.auditReuse(ctx, q)
	}
	w.ack(ctx, d, log)
}

// errTenant is why a request on a subject whose tenant is no token gets no answer.
var errTenant = errors.New("the subject's tenant is not 1 to 64 of A-Z a-z 0-9 _ -, or it is _ alone, which is reserved")

// errNoBody is why a run cannot start of which only the journal is left.
var errNoBody = errors.New("only the run's record is left")

// errCrashLoop is why a run ends whose owners died one after another.
var errCrashLoop = errors.New("its owners died one after another")

// own claims the run or takes it over. It returns what the run does next, or nil when there is nothing to do here.
func (w *Worker) own(ctx context.Context, r *run, d *bus.Delivery) (func(context.Context) *ending, error) {
	if err := w.at(ctx, StepBeforeClaim, r.key); err != nil {
		return nil, err
	}
	last, rec, err := w.known(ctx, r.key, d)
	if err != nil {
		return nil, err
	}
	if last == nil {
		if r.invalid == nil {
			r.verdict = r.judge(ctx)
		}
		first := bus.Record{Queued: d.Queued, QueuedAt: d.QueuedAt, Kind: d.Kind}
		if r.verdict.given && r.verdict.err == nil {
			first.Actor = &r.verdict.actor
		}
		chain, err := w.bus.Claim(ctx, r.key, w.owner, bus.Claim{
			Request: r.req.sha, Traceparent: d.Header.Get(bus.HeaderTraceparent),
			Record: first,
		})
		var conflict *bus.ConflictError
		switch {
		case err == nil:
			r.setChain(chain)
			r.timing.Queued = w.now().Sub(d.QueuedAt).Milliseconds()
			return r.begin, nil
		case !errors.As(err, &conflict):
			return nil, fmt.Errorf("claim: %w", err)
		}
		last, rec = conflict.Last, conflict.Record
		r.verdict = verdict{}
	}
	return w.resume(ctx, r, d, last, rec)
}

// known reads the journal where there is likely one; a first delivery publishes first and reads only on conflict.
func (w *Worker) known(ctx context.Context, key bus.RunKey, d *bus.Delivery) (*bus.Event, bus.Record, error) {
	if d.Delivered <= 1 && d.Source == bus.SourceQueue {
		return nil, bus.Record{}, nil
	}
	last, rec, err := w.bus.LastState(ctx, key)
	if errors.Is(err, bus.ErrNoJournal) {
		return nil, bus.Record{}, nil
	}
	if err != nil {
		return nil, bus.Record{}, fmt.Errorf("read journal: %w", err)
	}
	return last, rec, nil
}

// resume decides about a run whose journal has begun.
func (w *Worker) resume(ctx context.Context, r *run, d *bus.Delivery, last *bus.Event, rec bus.Record) (func(context.Context) *ending, error) {
	waiting, wait := waitOf(last)
	facts := plan.ReceiveFacts{
		Known: true, Phase: rec.Phase, Owner: w.ownerIs(last.Owner), Queued: rec.Queued, Message: d.Queued,
		// A parked copy that comes before its time was woken: its slot is kept for it now.
		Waiting:         waiting && d.Source == bus.SourceQueue && last.Owner == bus.NoOwner && w.now().Before(wait.Until),
		JustReconnected: w.justReconnected(),
	}
	switch plan.Receive(facts) {
	case plan.ReceiveDuplicate:
		w.duplicate(ctx, r.req, d, last.Request, &r.log)
	case plan.ReceiveAfterResult:
		w.afterResult(ctx, r, d, last)
	case plan.ReceiveLater:
		w.nak(d, w.bus.AckWait(), &r.log)
	case plan.ReceiveParkAgain:
		w.repark(ctx, r.key, d, w.untilAgain(wait), &r.log)
	case plan.ReceiveClaim, plan.ReceiveRefresh, plan.ReceiveTakeOver:
		return w.takeOver(ctx, r, last, rec)
	}
	return nil, nil
}

// ownerIs tells whose an event is. An event of our own about a run that we do not run counts as nobody's death: we
// let go of it when the broker was away.
func (w *Worker) ownerIs(owner string) plan.OwnerIs {
	switch owner {
	case bus.NoOwner:
		return plan.OwnerNobody
	case string(w.owner):
		return plan.OwnerNobody
	}
	return plan.OwnerPeer
}

func (w *Worker) justReconnected() bool {
	at := w.bus.ReconnectedAt()
	return !at.IsZero() && w.now().Sub(at) < w.bus.AckWait()
}

// takeOver publishes taken_over and returns what the take-over table says to do.
func (w *Worker) takeOver(ctx context.Context, r *run, last *bus.Event, rec bus.Record) (func(context.Context) *ending, error) {
	died := last.Owner != bus.NoOwner && last.Owner != string(w.owner)
	facts := plan.TakeOverFacts{Phase: rec.Phase, OwnerDied: died, Crashes: rec.Crashes}
	if rec.Stop != nil {
		facts.Stop, facts.GaveUp = rec.Stop.Reason, rec.Stop.Lost != ""
	}
	next := plan.TakeOver(facts)
	chain, err := w.bus.TakeOver(ctx, r.key, last, w.owner, func(rec *bus.Record) {
		rec.Crashes = next.Crashes
		rec.Detached = rec.Detached || !rec.Phase.Before(plan.PhaseDialing)
	})
	if isFenced(err) {
		// A peer was quicker; the message is its now.
		w.nak(r.delivery, w.bus.AckWait(), &r.log)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	r.setChain(chain)
	r.timing = chain.Record().Timing
	if died {
		r.inherited = true
		w.met.takeovers.Inc()
		r.log.Warn().Str("from", last.Owner).Str("phase", string(rec.Phase)).Msg("took a run over")
	}
	if rec.Actor != nil {
		r.actor = *rec.Actor
	}
	switch next.Action {
	case plan.TakeOverGoOn, plan.TakeOverClaim, plan.TakeOverParkAgain:
		return r.begin, nil
	case plan.TakeOverRedial:
		return r.redial, nil
	case plan.TakeOverAttach:
		return r.reattach, nil
	case plan.TakeOverStopAgain:
		return r.finishStop, nil
	case plan.TakeOverCrashLoop:
		return func(ctx context.Context) *ending { return r.crashLoop(ctx, next.Outcome) }, nil
	case plan.TakeOverAfterResult:
		return nil, fmt.Errorf("take over %s: it has its result", r.key)
	}
	return nil, fmt.Errorf("take over %s: action %q is not known", r.key, next.Action)
}

// drive takes the run to its ending and carries that out. Whatever happens, the lease does not stay behind.
func (r *run) drive(ctx context.Context, next func(context.Context) *ending) {
	defer r.chain.Close() // whatever was not said by now must not be said later
	defer r.hangUp()
	defer func() {
		if p := recover(); p != nil {
			r.w.met.panics.Inc()
			r.log.Error().Str("panic", fmt.Sprint(p)).Msg("settling a run panicked; the request comes again")
			r.letGo(ctx)
			r.delivery.Forget()
		}
	}()
	e := r.invalid
	if e == nil || !r.chain.Record().Phase.Before(plan.PhasePlanned) {
		e = r.carry(ctx, next)
	}
	r.settle(ctx, e)
}

// begin runs a request that has not been dialled yet, by its kind.
func (r *run) begin(ctx context.Context) *ending {
	if e := r.step(ctx, StepAfterClaim); e != nil {
		return e
	}
	if r.req.bodyless() {
		return failed(plan.ReasonError, bus.ClassExecutionFailed, "Its request was lost before it could start.", errNoBody)
	}
	switch r.req.kind {
	case bus.KindExec:
		return r.execute(ctx)
	case bus.KindTerminal:
		return r.openTerminal(ctx)
	case bus.KindEnd:
		return r.endSession(ctx)
	}
	return failed(plan.ReasonError, bus.ClassExecutionFailed, "", fmt.Errorf("kind %q is not known", r.req.kind))
}

// execute carries an exec from its claim to its ending.
func (r *run) execute(ctx context.Context) *ending {
	if e := r.mayStart(); e != nil {
		return e
	}
	r.readMark(ctx)
	if !r.verdict.given || r.verdict.err != nil {
		// What asks somebody, or is told to the audit trail, waits until it is known that the run was not canceled.
		if e := r.unlessMarked(nil); e != nil {
			return e
		}
	}
	if e := r.within(ctx, "authorise", r.authorise); e != nil {
		return e
	}
	if e := r.policy(); e != nil {
		return e
	}
	r.readLink(ctx)
	if e := r.within(ctx, "lease", func(ctx context.Context) *ending { return r.admit(ctx, lease.KindExec) }); e != nil {
		return e
	}
	if e := r.mayStart(); e != nil {
		return e
	}
	if e := r.within(ctx, "provision", r.prepare); e != nil {
		return e
	}
	if left := r.req.deadline.Sub(r.w.now()); !r.req.deadline.IsZero() && left < wakeMost {
		// A dial wakes the Sprite and starts the command in one; the deadline must be looked at between the two.
		if e := r.wake(ctx); e != nil {
			return e
		}
	}
	return r.within(ctx, "exec", r.dial)
}

// wakeMost is how long a cold wake may take (Sprites API reference, cold start); a deadline nearer than that may pass
// meanwhile.
const wakeMost = time.Minute

// redial is the taker's way on from dialing: the guard keeps a second dial from running the command twice.
func (r *run) redial(ctx context.Context) *ending {
	r.contested = true
	r.hold(ctx)
	r.restoreOutput(ctx)
	r.hearMark(ctx)
	if r.req.bodyless() || len(r.stops) > 0 || r.tooLate() {
		// It must not be started now; but it may run.
		return rejoin(nil)
	}
	if e := r.loadLink(ctx); e != nil {
		return e
	}
	return r.dial(ctx)
}

// reattach is the taker's way on from started.
func (r *run) reattach(ctx context.Context) *ending {
	r.hold(ctx)
	r.restoreOutput(ctx)
	r.hearMark(ctx)
	return rejoin(nil)
}

// finishStop is the taker's way on from stopping: stop again, the outcome is the announced reason.
func (r *run) finishStop(ctx context.Context) *ending {
	r.hold(ctx)
	r.restoreOutput(ctx)
	return r.stopAgain(ctx)
}

// crashLoop ends a run whose owners died one after another without progress.
func (r *run) crashLoop(ctx context.Context, outcome plan.Outcome) *ending {
	switch outcome {
	case plan.OutcomeFailed:
		return failed(plan.ReasonCrashLoop, bus.ClassCrashLoop, "", errCrashLoop)
	case plan.OutcomeLost:
		return r.giveUp(ctx, bus.ClassCrashLoop, errCrashLoop)
	case plan.OutcomeExited, plan.OutcomeTimedOut, plan.OutcomeOutputLimit, plan.OutcomeCanceled, plan.OutcomeDenied,
		plan.OutcomeExpired, plan.OutcomeOpened, plan.OutcomeEnded:
	}
	return r.stopAgain(ctx)
}
