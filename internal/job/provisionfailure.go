package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/sprites"
)

// provisionFailed parks a run for another try by its failure's class, or ends it.
func (r *run) provisionFailed(ctx context.Context, what string, err error) *ending {
	if isFenced(err) {
		return fenced()
	}
	if sprites.ClassOf(err) == sprites.ClassCanceled {
		return r.interrupted(ctx, err)
	}
	now, rec, rule := r.w.now(), r.chain.Record(), rule(err)
	failure := failureOf(what, err, now)
	r.w.lastFailure.Store(&failure)
	since := now
	if !rec.TryingSince.IsZero() {
		since = rec.TryingSince
	}
	tried := trying{held: failure.Held, failures: rec.Failures, spent: now.Sub(since), hint: retryAfter(err), random: r.w.random(),
		create: r.w.cfg.CreatePatience, outage: r.w.cfg.OutagePatience}
	if delay, again := rule.next(tried); again {
		why := failure.Class + " while trying to " + what
		if failure.Held {
			why = "held back: the provider was " + failure.Class + " for others"
		}
		e := park(rule.wait, "", now.Add(delay), why)
		e.cause = err
		e.mutate = func(rec *bus.Record) { rec.Fail(failure, since) }
		return e
	}
	e := failed(rule.reason, rule.letter, "", fmt.Errorf("%s: %w", what, err))
	e.result.RetryAfterMs = retryAfter(err).Milliseconds()
	e.mutate = func(rec *bus.Record) { rec.Fail(failure, since) }
	return e
}

// interrupted is for work that our own context ended.
func (r *run) interrupted(ctx context.Context, err error) *ending {
	select {
	case <-r.w.staying.Done():
		return &ending{kind: kindHandOver}
	default:
		return &ending{kind: kindAbandon, cause: fmt.Errorf("%w (%w)", err, context.Cause(ctx))}
	}
}

// isGone reports that the control plane said 404 or 410 of the Sprite itself: no other answer counts (case 26).
func isGone(err error) bool {
	var e *sprites.Error
	return errors.As(err, &e) && e.Op == sprites.OpGet && e.Class == sprites.ClassNotFound
}

// retryAfter is the provider's hint in an error, or 0.
func retryAfter(err error) time.Duration {
	var e *sprites.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.RetryAfter
}
