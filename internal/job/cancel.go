package job

import (
	"context"
	"errors"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// parkedPatience bounds the ending of parked runs after one cancel.
const parkedPatience = 10 * time.Second

// stopOf is the wish that a cancel's mark stands for.
func stopOf(m bus.CancelMark) stopAsk {
	stop := stopAsk{reason: plan.StopCancel, by: m.By, why: m.Why}
	if m.Why == whySessionEnded {
		stop.reason = plan.StopSessionEnded
	}
	return stop
}

// hearCancel reacts to a cancel's mark: at once where the run is here, else, for a run that nobody owns, by ending it.
// Queued requests find the mark when they are taken. It must not block, so the second part gets a goroutine of its own.
func (w *Worker) hearCancel(m bus.CancelMark) {
	stop := stopOf(m)
	here := false
	w.hub.each(m.Tenant, func(r *run) {
		switch {
		case m.Job != "" && r.key.Job == m.Job, m.Conversation != "" && r.req.conversation() == m.Conversation && r.req.kind == bus.KindExec:
			here = here || m.Job != ""
			r.ask(stop)
		}
	})
	if here {
		return
	}
	select {
	case w.cancelSlots <- struct{}{}:
	default:
		// Too many at once: the marks stay, and the parked runs find them when they wake.
		return
	}
	w.group.Go(func() {
		defer func() { <-w.cancelSlots }()
		ctx, cancel := context.WithTimeout(context.Background(), parkedPatience)
		defer cancel()
		if err := w.cancelParked(ctx, m, stop); err != nil {
			w.log.Warn().Err(err).Msg("parked runs not canceled; they find the mark when they wake")
		}
	})
}

// cancelParked ends what waits: the named job's latest run, or each of the conversation's.
func (w *Worker) cancelParked(ctx context.Context, m bus.CancelMark, stop stopAsk) error {
	if m.Job != "" {
		return w.endParked(ctx, m.Tenant, m.Job, stop)
	}
	jobs, err := w.bus.JobsList(ctx, m.Tenant, bus.JobsRequest{ConversationID: m.Conversation, State: bus.JobQueued, Limit: maxListed})
	if err != nil {
		return err
	}
	var errs []error
	for _, j := range jobs.Jobs {
		errs = append(errs, w.endParked(ctx, m.Tenant, j.JobID, stop))
	}
	return errors.Join(errs...)
}

// endParked ends a run that nobody owns. Of several workers that hear the mark the compare-and-set lets one through.
func (w *Worker) endParked(ctx context.Context, tenant, job string, stop stopAsk) error {
	last, rec, err := w.bus.LastRun(ctx, tenant, job)
	if errors.Is(err, bus.ErrNoJournal) {
		return nil
	}
	if err != nil {
		return err
	}
	if last.Owner != bus.NoOwner || rec.Phase == plan.PhaseResult || !rec.Phase.Before(plan.PhaseDialing) {
		return nil
	}
	chain, err := w.bus.TakeOver(ctx, last.Key, last, w.owner, nil)
	if isFenced(err) || errors.Is(err, bus.ErrEnded) {
		return nil
	}
	if err != nil {
		return err
	}
	q := &request{key: last.Key, kind: rec.Kind, sha: last.Request, replay: last.Key.Run > 0}
	r := &run{w: w, req: q, key: q.key, chain: chain, log: w.log, began: w.now(), timing: rec.Timing}
	body := r.resultBody(canceled(stop.by, stop.why))
	if err := chain.Result(ctx, body); err != nil {
		return err
	}
	body.Run = chain.Record()
	w.met.result(q.kind, &body)
	w.leaveParked(ctx, q.key, rec)
	if _, err := w.bus.Unpark(ctx, q.key); err != nil {
		// The schedule still fires; whoever gets it finds the result.
		w.log.Debug().Err(err).Msg("schedule of a canceled run not removed")
	}
	if q.replay {
		if err := w.resolveReplay(ctx, q, &body); err != nil {
			return err
		}
	}
	w.auditRun(ctx, q, &body)
	return nil
}
