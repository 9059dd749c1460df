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

// failureOf notes a failed try without a word of the provider's text.
func failureOf(step string, err error, at time.Time) bus.Failure {
	f := bus.Failure{At: at, Step: step, Class: string(sprites.ClassOf(err))}
	var e *sprites.Error
	if errors.As(err, &e) {
		f.Status, f.Code, f.RequestID = e.Status, e.Code, e.RequestID
	}
	if f.Class == "" {
		f.Class = "error"
	}
	f.Held = heldBack(err)
	return f
}

// bury stores what a result means for the job's chain of dead letters: a letter for a run that died, the end of a
// replay. It may be repeated.
func (w *Worker) bury(ctx context.Context, q *request, body *bus.ResultBody, d *bus.Delivery) error {
	if body.DeadLetter == "" {
		if q.replay {
			return w.resolveReplay(ctx, q, body)
		}
		return nil
	}
	letter, err := w.letter(q, body, d)
	if err != nil {
		return err
	}
	if _, err := w.bus.DeadLetter(ctx, letter); err != nil {
		return fmt.Errorf("store dead letter of %s: %w", q.key, err)
	}
	return nil
}

// resolveReplay closes the chain of a replayed job whose run came to an end without a new letter.
func (w *Worker) resolveReplay(ctx context.Context, q *request, body *bus.ResultBody) error {
	id := bus.LetterID{Tenant: q.key.Tenant, Job: q.key.Job}
	if _, err := w.bus.EndReplay(ctx, id, q.key.Run, *body); err != nil {
		return fmt.Errorf("end the replay of %s: %w", q.key, err)
	}
	return nil
}

// letter is made from the result alone, so that a successor makes the same one.
func (w *Worker) letter(q *request, body *bus.ResultBody, d *bus.Delivery) (bus.Letter, error) {
	rec := body.Run
	reason := body.Reason
	if reason == "" {
		reason = plan.ReasonError
	}
	l := bus.Letter{
		State: bus.LetterDead, Run: q.key.Run, Tenant: q.key.Tenant, Job: q.key.Job, Kind: q.kind,
		Class: bus.LetterClass(body.Class), Reason: reason, Message: body.Message, Actor: rec.Actor, Sandbox: rec.Sandbox,
		MayHaveRun: !rec.Phase.Before(plan.PhaseDialing) && body.Outcome == plan.OutcomeLost,
		Crashes:    rec.Crashes, Queued: rec.Queued, QueuedAt: rec.QueuedAt, DeadAt: w.now(), Worker: w.cfg.WorkerID,
		Traceparent: d.Header.Get(bus.HeaderTraceparent), Request: q.sha,
	}
	for _, f := range rec.Failures {
		l.AddAttempt(bus.LetterAttempt{At: f.At, Step: f.Step, Class: f.Class, Status: f.Status, Code: f.Code, RequestID: f.RequestID, Held: f.Held})
		if !f.Held || l.Step == "" {
			// What the provider said groups letters; that it was asked no more does not.
			l.Step, l.Status, l.Code = f.Step, f.Status, f.Code
		}
	}
	l.AttemptCount = max(l.AttemptCount, body.Timing.Attempts)
	l.Fingerprint = bus.Fingerprint(l.Class, l.Status, l.Code, l.Step)
	return l, w.seal(&l, q.body)
}

// seal puts the original body into the letter under the deployment's secret, and a redacted copy beside it.
func (w *Worker) seal(l *bus.Letter, body []byte) error {
	l.Redacted = bus.Redact(body)
	if w.sealer == nil {
		return nil
	}
	sealed, err := w.sealer.Seal(l.ID(), body)
	if err != nil {
		return fmt.Errorf("seal the body of %s: %w", l.ID(), err)
	}
	l.Sealed = sealed
	return nil
}

// malformed keeps a request that no reply can be addressed to where operators see it.
func (w *Worker) malformed(ctx context.Context, d *bus.Delivery, cause error, log logger) {
	w.strangers.Warn().Err(cause).Str("tenant", d.Tenant).Uint64("queued", d.Queued).Msg("request without a usable id")
	l := bus.Letter{
		State: bus.LetterDead, Tenant: d.Tenant, Job: bus.MalformedID(d.Tenant, d.Queued, d.Data), Kind: d.Kind,
		Class: bus.ClassMalformed, Reason: plan.ReasonInvalidRequest, Message: cause.Error(), Step: "parse",
		Queued: d.Queued, QueuedAt: d.QueuedAt, DeadAt: w.now(), Worker: w.cfg.WorkerID, AttemptCount: 1,
	}
	l.Fingerprint = bus.Fingerprint(l.Class, 0, "", l.Step)
	err := w.seal(&l, d.Data)
	if err == nil {
		_, err = w.bus.DeadLetter(ctx, l)
	}
	if err != nil {
		log.Error().Err(err).Msg("dead letter not stored; the request stays")
		w.nak(d, letterRetry, log)
		return
	}
	w.ack(ctx, d, log)
}
