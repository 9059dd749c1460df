package job

import (
	"context"
	"time"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// patience turns a wait into its end where what it waits for stayed away until the run's deadline, or, without one,
// for as long as an authorisation may be late.
func (r *run) patience(e *ending) *ending {
	if e.kind != kindPark || e.unavailable == "" {
		return e
	}
	last := r.req.deadline
	if last.IsZero() {
		last = r.chain.Record().QueuedAt.Add(authz.LaterWindow)
	}
	if e.wait.until.Before(last) {
		return e
	}
	return gaveUp(e.unavailable, e.cause)
}

// lay parks a run that waits. A tenant has a bounded number of places; beyond it the request stays where it was: in the
// tenant's own backlog, which the broker bounds, or due. Several workers may exceed the bound by one each.
func (w *Worker) lay(ctx context.Context, key bus.RunKey, d *bus.Delivery, wait parking, log logger) {
	if wait.what != bus.WaitLimit && wait.what != bus.WaitSerial { // lines for a slot have their own bound, which denies
		// One at a time: of two that count at once both would find the last place.
		w.laying.Lock()
		defer w.laying.Unlock()
		n, err := w.bus.Parked(ctx, key.Tenant)
		if err != nil || n >= w.cfg.TenantBacklog {
			log.Info().Int("parked", n).Err(err).Msg("as many of the tenant's runs are parked as may; this one stays where it is")
			w.nak(d, max(wait.until.Sub(w.now()), 100*time.Millisecond), log)
			return
		}
	}
	w.repark(ctx, key, d, wait.until, log)
}

// untilAgain is until when a run is parked whose worker ended between saying that it waits and parking it. The call for a
// slot that came meanwhile found nothing to wake, so what waits for one looks again at once.
func (w *Worker) untilAgain(wait bus.WaitingBody) time.Time {
	if wait.For == bus.WaitLimit || wait.For == bus.WaitSerial {
		return w.now()
	}
	return wait.Until
}

// outOfTime ends a run whose deadline passed before it could start. One that was never authorised, because nobody could
// be asked, says so: its caller could not have known.
func (r *run) outOfTime() *ending {
	if !r.verdict.given && r.chain.Record().Actor == nil {
		return gaveUp(plan.ReasonWorkerUnavailable, authz.ErrUnavailable)
	}
	return expired("Its deadline passed before it could start.")
}
