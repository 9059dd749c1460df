package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

const (
	// linkRetry is how long a run waits at first for another that holds the link; linkRetryMost at last. Each look costs a
	// few messages, and a conversation's runs may wait together.
	linkRetry, linkRetryMost = time.Second, 15 * time.Second
	// dutyHold is how long a sweep or a reclaim holds a link: longer than its delete can take, so that a duty whose
	// worker died blocks nobody for good.
	dutyHold = time.Minute
)

// linkAgain is when to look again at a link that is not free: the longer the run has waited, the later.
func (r *run) linkAgain() time.Time {
	now := r.w.now()
	waited := now.Sub(r.chain.Record().QueuedAt)
	return now.Add(r.w.jitter(min(max(linkRetry, waited/4), linkRetryMost)))
}

// takeHold takes the link over from a run that has ended, else waits for it.
func (p *preparation) takeHold(ctx context.Context, snap session.Snapshot) (session.Snapshot, *ending) {
	held, err := p.w.held(ctx, snap)
	if err != nil {
		return snap, p.journal("read the journal of the link's holder", err)
	}
	if held {
		return snap, park(bus.WaitLink, snap.Link.Holder, p.linkAgain(), "another run prepares this session")
	}
	taken, err := p.w.links.TakeHold(ctx, snap, p.hold)
	if err != nil {
		return snap, p.linkEnding("take", err)
	}
	return taken, nil
}

// held reports whether somebody still holds a link. The hold is over when the holder's run has ended, or is parked before
// it could make anything, or the time of a duty that is no run has run out. Of a conversation's runs, which an outage
// parks, none waits for another's patience; a create of the parked one whose answer was lost is adopted. A tear-down is
// not taken over from a parked run: its delete may be on its way.
func (w *Worker) held(ctx context.Context, snap session.Snapshot) (bool, error) {
	key, err := bus.ParseRunKey(snap.Link.Holder)
	if err != nil {
		// A sweep or a reclaim: its delete may still be on its way, and must not meet the next Sprite of this name.
		return time.Since(snap.Link.HeldAt) < dutyHold, nil
	}
	last, rec, err := w.bus.LastState(ctx, key)
	switch {
	case errors.Is(err, bus.ErrNoJournal):
		return false, nil
	case err != nil:
		return false, err
	}
	over := rec.Phase == plan.PhaseResult || last.Owner == bus.NoOwner && snap.State() == plan.LinkCreating
	return !over, nil
}

// linkEnding turns a failed change of the link into an ending: planned anew on a conflict, by parking shortly.
func (r *run) linkEnding(what string, err error) *ending {
	if errors.Is(err, session.ErrEnded) {
		return denied(plan.ReasonSessionEnded, "")
	}
	var busy *session.Busy
	if errors.Is(err, session.ErrConflict) || errors.As(err, &busy) {
		return park(bus.WaitLink, "", r.linkAgain(), "the session changed meanwhile")
	}
	if errors.Is(err, bus.ErrUnreachable) {
		return &ending{kind: kindAbandon, cause: fmt.Errorf("%s session link: %w", what, err)}
	}
	return failed(plan.ReasonError, bus.ClassExecutionFailed, "", fmt.Errorf("%s session link: %w", what, err))
}

// inUse reports whether a run other than of this job has the session's Sprite, or whether that cannot be told. A run
// that is not planned yet has none: it writes the link by revision before it uses one.
func (w *Worker) inUse(ctx context.Context, snap session.Snapshot, except string) (bool, error) {
	if snap.Link.PTY != nil {
		return true, nil
	}
	for _, state := range []bus.JobState{bus.JobRunning, bus.JobQueued} {
		jobs, err := w.bus.JobsList(ctx, snap.Key.Tenant, bus.JobsRequest{ConversationID: snap.Key.ID, State: state, Limit: maxListed})
		if err != nil {
			return false, err
		}
		for _, j := range jobs.Jobs {
			if j.JobID != except && (state == bus.JobRunning || j.LastEvent == bus.EventPlanned) {
				return true, nil
			}
		}
		if jobs.Partial || len(jobs.Jobs) >= maxListed {
			return true, nil
		}
	}
	return false, nil
}
