package job

import (
	"context"
	"errors"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// releaseWithin bounds the release before the result; what is not released by then is left to expiry.
const releaseWithin = time.Second

// settlePatience bounds how long an ending is tried to be stored while the broker is away. After it the request comes
// again, and whoever takes it finds the journal as it is.
const settlePatience = 10 * time.Minute

// leavePatience is what is left of it once the worker's own end has come.
const leavePatience = 5 * time.Second

// settle carries an ending out.
func (r *run) settle(ctx context.Context, e *ending) {
	// A worker that leaves must still say how it left the run; the broker bounds each call.
	leaving := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
	defer cancel()
	unhook := context.AfterFunc(leaving, func() {
		// A shutdown is bounded even while the broker is away (case 56).
		_ = r.w.sleep(ctx, leavePatience) // its error is the settling's own end
		cancel()
	})
	defer unhook()
	e = r.patience(e)
	switch e.kind {
	case kindResult:
		r.finish(ctx, e)
	case kindPark:
		r.park(ctx, e)
	case kindHandOver:
		r.handOver(ctx)
	case kindFenced:
		r.log.Info().Msg("fenced: another worker owns the run")
		r.w.met.fenced.Inc()
		r.forgetLease()
		r.delivery.Forget()
	case kindRejoin:
		// carry follows these; one that gets here is a defect, and the request coming again mends it.
		r.log.Error().Err(e.cause).Msg("a run was settled while its command may run")
		r.letGo(ctx)
		r.delivery.Forget()
	case kindAbandon:
		// The journal still says that we own it. The message comes again after the ack wait, here or elsewhere.
		r.log.Warn().Err(e.cause).Msg("let go of a run that could not be journalled")
		r.letGo(ctx)
		r.delivery.Forget()
	}
}

// letGo gives the lease back when nothing of the run can be alive, else leaves it to its expiry or its next owner.
func (r *run) letGo(ctx context.Context) {
	if r.chain.Record().Phase.Before(plan.PhaseDialing) {
		r.release(ctx)
		return
	}
	r.forgetLease()
}

func (r *run) forgetLease() {
	if r.lease != nil {
		r.lease.Forget()
		r.lease = nil
	}
}

// release gives the lease back, once. It waits for at most a second; the manager goes on in the background.
func (r *run) release(ctx context.Context) {
	if r.lease == nil {
		r.releaseUnheld(ctx)
		return
	}
	// The request's context may have ended; a slot must go back all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	if _, err := r.lease.Release(ctx); err != nil {
		r.log.Warn().Err(err).Msg("lease release goes on in the background")
	}
	r.lease = nil
}

// releaseUnheld gives back the slot of an earlier owner whose lease this one does not hold: what it counted has ended.
func (r *run) releaseUnheld(ctx context.Context) {
	rec := r.chain.Record()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	if rec.Phase.Before(plan.PhaseDialing) {
		r.releaseInherited(ctx)
		return
	}
	if rec.Lease == "" {
		return
	}
	if _, err := r.w.leases.ReleaseID(ctx, rec.Lease, rec.Fence); err != nil && !errors.Is(err, lease.ErrNotFound) {
		r.log.Debug().Err(err).Msg("lease of an earlier owner is left to its expiry")
	}
}

// releaseInherited gives back what an owner that died may hold: it can have died before it wrote its lease down, so the
// lease is taken over by its id first.
func (r *run) releaseInherited(ctx context.Context) {
	kind := lease.KindExec
	switch r.req.kind {
	case bus.KindTerminal:
		kind = lease.KindTerminal
	case bus.KindEnd:
		return
	case bus.KindExec:
	}
	if !r.inherited {
		return
	}
	req := r.leaseRequest(kind)
	req.Force = true
	l, err := r.w.leases.Acquire(ctx, req)
	if err == nil {
		_, err = l.Release(ctx)
	}
	if err != nil {
		r.log.Debug().Err(err).Msg("lease of a dead owner is left to its expiry")
	}
}

// finish ends the run: release, result, and what must follow a result.
func (r *run) finish(ctx context.Context, e *ending) {
	if err := r.w.at(ctx, StepBeforeRelease, r.key); err != nil {
		r.log.Error().Err(err).Msg("step failed")
	}
	if e.keepLease {
		r.forgetLease()
	} else {
		r.release(ctx)
	}
	r.leaveLine(ctx)
	if err := r.chain.Flush(ctx); err != nil && !isFenced(err) {
		// The result waits for the output anyhow; here it is so that its byte counts are the last.
		r.log.Warn().Err(err).Msg("output not flushed before the result")
	}
	r.touchEnd(ctx) // before the result: from then on nobody sees that it ran
	body := r.resultBody(e)
	if err := r.w.at(ctx, StepBeforeResult, r.key); err != nil {
		r.log.Error().Err(err).Msg("step failed")
		r.delivery.Forget()
		return
	}
	rctx, said := r.stage(ctx, "result")
	err := r.chain.Result(rctx, body, mutates(e)...)
	said(nil)
	if err != nil {
		if isFenced(err) {
			r.w.met.fenced.Inc()
		} else {
			r.log.Error().Err(err).Msg("result not stored; the request comes again")
		}
		r.delivery.Forget()
		return
	}
	body.Run = r.chain.Record()
	r.logResult(e, &body)
	r.w.met.result(r.req.kind, &body)
	if r.key.Run > 0 {
		r.w.met.replays.WithLabelValues(string(body.Outcome)).Inc()
	}
	r.w.follow(ctx, r.req, &body, r.delivery, &r.log)
}

// mutates is the change of the record that goes with an ending, if any.
func mutates(e *ending) []func(*bus.Record) {
	if e.mutate == nil {
		return nil
	}
	return []func(*bus.Record){e.mutate}
}

// resultBody completes the result with what every result carries.
func (r *run) resultBody(e *ending) bus.ResultBody {
	body, rec, now := e.result, r.chain.Record(), r.w.now()
	body.Sandbox = rec.Sandbox
	if body.Plan == "" {
		body.Plan, body.Why = rec.Plan, rec.Why
	}
	body.Fresh, body.Woke = rec.Fresh, rec.Woke
	if r.woke != "" {
		body.Woke = r.woke
	}
	if body.Woke == "" {
		body.Woke = "none"
	}
	body.StdoutBytes, body.StderrBytes = r.chain.Offsets()
	body.ProducedBytes = r.out.produced[stdout] + r.out.produced[stderr]
	body.Truncated = r.out.truncated
	if r.req.exec != nil && !rec.StartedAt.IsZero() {
		body.Output = r.out.outputPreviews()
	}
	body.Timing = r.timing
	body.Timing.Total = now.Sub(rec.QueuedAt).Milliseconds()
	body.Timing.Attempts = rec.Attempt + 1
	body.Timing.Detached = rec.Detached
	if e.letter != "" {
		body.DeadLetter = r.key.Tenant + "/" + r.key.Job
		if body.Class == "" {
			body.Class = string(e.letter)
		}
	}
	return body
}

// logResult is the one line per job at info.
func (r *run) logResult(e *ending, body *bus.ResultBody) {
	line := r.log.Info()
	if e.cause != nil {
		line = r.log.Warn().Err(e.cause)
	}
	line.Str(telemetry.KeyOutcome, string(body.Outcome)).Str(telemetry.KeyReason, string(body.Reason)).
		Str(telemetry.KeySandbox, body.Sandbox).Int64(telemetry.KeyDuration, body.Timing.Total).
		Int(telemetry.KeyAttempt, body.Timing.Attempts).Msg("run ended")
}

// follow does what must follow a result, each part repeatable: dead letter, audit, ack. Until the dead letter is
// confirmed the request is not acked (case 74); a failing audit changes nothing (case 60).
func (w *Worker) follow(ctx context.Context, q *request, body *bus.ResultBody, d *bus.Delivery, log logger) {
	if err := w.at(ctx, StepAfterResult, q.key); err != nil {
		log.Error().Err(err).Msg("step failed")
		d.Forget()
		return
	}
	if err := w.bury(ctx, q, body, d); err != nil {
		log.Error().Err(err).Msg("dead letter not stored; the request stays")
		w.nak(d, letterRetry, log)
		return
	}
	if err := w.at(ctx, StepAfterLetter, q.key); err != nil {
		log.Error().Err(err).Msg("step failed")
		d.Forget()
		return
	}
	w.auditRun(ctx, q, body)
	if err := w.at(ctx, StepBeforeAck, q.key); err != nil {
		log.Error().Err(err).Msg("step failed")
		d.Forget()
		return
	}
	w.ack(ctx, d, log)
}

// letterRetry spaces the tries to store a dead letter.
const letterRetry = 2 * time.Second

func (w *Worker) ack(ctx context.Context, d *bus.Delivery, log logger) {
	if err := d.Ack(ctx); err != nil {
		// It comes again, finds the result, and is acked then.
		log.Warn().Err(err).Msg("ack not confirmed")
	}
}

func (w *Worker) nak(d *bus.Delivery, delay time.Duration, log logger) {
	if err := d.Nak(delay); err != nil {
		log.Warn().Err(err).Msg("nak not sent")
	}
}

// park says that nobody owns the run until then, parks its request by schedule and acks the original.
func (r *run) park(ctx context.Context, e *ending) {
	select {
	case s := <-r.stops:
		if r.chain.Record().Phase.Before(plan.PhaseDialing) {
			r.finish(ctx, canceled(s.by, s.why))
			return
		}
		r.ask(s)
	default:
	}
	r.release(ctx)
	wait := e.wait
	if !r.req.deadline.IsZero() && wait.until.After(r.req.deadline) {
		wait.until = r.req.deadline
	}
	err := r.chain.Release(ctx, bus.WaitingBody{For: wait.what, Scope: wait.scope, Until: wait.until, Why: wait.why}, func(rec *bus.Record) {
		rec.Timing = r.timing
		if rec.Actor == nil && r.actor.User != "" {
			rec.Actor = &r.actor
		}
		if e.mutate != nil {
			e.mutate(rec)
		}
	})
	if err != nil {
		r.log.Warn().Err(err).Msg("waiting not journalled; the request comes again")
		r.delivery.Forget()
		return
	}
	if err := r.w.at(ctx, StepParked, r.key); err != nil {
		r.delivery.Forget()
		return
	}
	r.w.lay(ctx, r.key, r.delivery, wait, &r.log)
	r.stopParked(ctx)
}

// stopParked ends a run that was asked to stop while it was being parked; its cancel counted it as running here.
func (r *run) stopParked(ctx context.Context) {
	select {
	case s := <-r.stops:
		if err := r.w.endParked(ctx, r.key.Tenant, r.key.Job, s); err != nil {
			r.log.Warn().Err(err).Msg("a canceled run was parked; it finds the mark when it wakes")
		}
	default:
	}
}

// repark schedules the request and acks it. A crash between the two leaves both, which the journal sorts out.
func (w *Worker) repark(ctx context.Context, key bus.RunKey, d *bus.Delivery, until time.Time, log logger) {
	if err := w.bus.ParkDelivery(ctx, d, key, until); err != nil {
		log.Warn().Err(err).Msg("park failed; the request comes again")
		w.nak(d, time.Second, log)
		return
	}
	w.met.parked.Inc()
	w.ack(ctx, d, log)
}

// handOver lets a peer go on at once: stop reading (done), flush, say so, give the message back. The lease goes with
// the run, so it is not released.
func (r *run) handOver(ctx context.Context) {
	if err := r.chain.Flush(ctx); err != nil {
		r.log.Warn().Err(err).Msg("flush before hand-over failed")
	}
	err := r.chain.Detach(ctx, bus.WaitWorker, r.w.now(), "the worker shuts down", func(rec *bus.Record) {
		rec.Timing = r.timing
		rec.Detached = !rec.Phase.Before(plan.PhaseDialing)
	})
	r.letGo(ctx)
	if err != nil {
		r.log.Warn().Err(err).Msg("hand-over not journalled; a peer takes over after the ack wait")
		r.delivery.Forget()
		return
	}
	r.w.met.handedOver.Inc()
	r.w.nak(r.delivery, 0, &r.log)
}
