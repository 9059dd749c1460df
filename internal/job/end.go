package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

const (
	// endPatience bounds how long an end waits for a tear-down before it answers "pending" (case 36).
	endPatience = 5 * time.Second
	// jobsPatience bounds how long an end waits for the session's jobs to be stopped.
	jobsPatience = 4 * time.Second
	// pollEvery spaces looks at something that another party changes.
	pollEvery = 100 * time.Millisecond
)

// endSession ends a session: its jobs are canceled, its Sprite is deleted, its link becomes a tombstone. Authorisation
// gates use, never clean-up, and neither does the kill switch: an authentic grant is enough.
func (r *run) endSession(ctx context.Context) *ending {
	if e := r.authorise(ctx); e != nil {
		return e
	}
	if r.w.sprites == nil || r.w.namer == nil {
		return denied(plan.ReasonMisconfigured, "")
	}
	r.id = r.req.sessionKey(r.actor)
	stopped, e := r.cancelJobs(ctx)
	if e != nil {
		return e
	}
	e = r.tearDown(ctx)
	if e.kind == kindResult && e.result.Outcome == plan.OutcomeEnded {
		e.result.Canceled = stopped
	}
	return e
}

// cancelJobs stops what runs or waits in the session and waits, for a bounded time, until that has ended.
func (r *run) cancelJobs(ctx context.Context) ([]string, *ending) {
	conversation := r.req.conversation()
	if conversation == "" {
		return nil, nil
	}
	// Looked at before the mark: a job that ends at once would otherwise be stopped and not named.
	stopped, err := r.w.openJobs(ctx, r.key.Tenant, conversation, r.key.Job)
	if err != nil {
		return nil, r.journal("list the session's jobs", err)
	}
	mark := bus.CancelRequest{By: r.actor.User, Why: whySessionEnded}
	if err := r.w.bus.MarkCancel(ctx, bus.CancelTarget{Tenant: r.key.Tenant, Conversation: conversation}, mark, nil); err != nil {
		return nil, r.journal("cancel the session's jobs", err)
	}
	give := r.w.now().Add(jobsPatience)
	for {
		open, err := r.w.openJobs(ctx, r.key.Tenant, conversation, r.key.Job)
		if err != nil {
			return nil, r.journal("list the session's jobs", err)
		}
		if len(open) == 0 || !r.w.now().Before(give) {
			return stopped, nil
		}
		if e := r.pause(ctx, pollEvery); e != nil {
			return nil, e
		}
	}
}

// whySessionEnded marks the cancel that an end publishes; a run stopped by it reports session_ended.
const whySessionEnded = "session_ended"

// openJobs lists a conversation's jobs that have not ended, except one.
func (w *Worker) openJobs(ctx context.Context, tenant, conversation, except string) ([]string, error) {
	var ids []string
	for _, state := range []bus.JobState{bus.JobRunning, bus.JobQueued} {
		jobs, err := w.bus.JobsList(ctx, tenant, bus.JobsRequest{ConversationID: conversation, State: state, Limit: maxListed})
		if err != nil {
			return nil, err
		}
		for _, j := range jobs.Jobs {
			if j.JobID != except {
				ids = append(ids, j.JobID)
			}
		}
	}
	return ids, nil
}

const maxListed = 200

// tearDown plans the end and does what the plan says.
func (r *run) tearDown(ctx context.Context) *ending {
	hold := session.Hold{Run: r.key.String(), Seq: r.chain.Record().Queued}
	presence, stray := plan.PresenceUnknown, ""
	for range maxPlans {
		snap, err := r.w.links.Load(ctx, r.id)
		if err != nil {
			return r.linkEnding("load", err)
		}
		if busy := snap.Busy(hold.Run); busy != nil {
			if snap, err = r.takeForEnd(ctx, snap, hold); err != nil {
				return r.linkEnding("take", err)
			}
			if snap.Busy(hold.Run) != nil {
				return park(bus.WaitLink, snap.Link.Holder, r.linkAgain(), "another run prepares this session")
			}
		}
		facts := snap.Facts(r.w.now())
		facts.Intent, facts.Authentic, facts.Queued, facts.Presence = plan.IntentEnd, true, hold.Seq, presence
		decided := plan.Decide(facts)
		switch decided.Action {
		case plan.ActionNoop:
			return r.endedNothing(ctx, snap, hold, decided)
		case plan.ActionTeardown:
			if decided.LookUp {
				var e *ending
				if presence, stray, e = r.lookUp(ctx); e != nil {
					return e
				}
				continue
			}
			e, again := r.delete(ctx, snap, hold, decided, stray)
			if again {
				continue
			}
			return e
		case plan.ActionDeny:
			return denied(decided.Reason, "")
		case plan.ActionCreate, plan.ActionResume:
		}
		return failed(plan.ReasonError, bus.ClassExecutionFailed, "", fmt.Errorf("plan %q does not end a session", decided.Action))
	}
	return park(bus.WaitLink, "", r.linkAgain(), "the session kept changing")
}

// takeForEnd takes the link from a run that has ended; its jobs were canceled just now.
func (r *run) takeForEnd(ctx context.Context, snap session.Snapshot, hold session.Hold) (session.Snapshot, error) {
	held, err := r.w.held(ctx, snap)
	if err != nil || held {
		return snap, err
	}
	return r.w.links.TakeHold(ctx, snap, hold)
}

// lookUp asks for a Sprite that no link names, by the present secret's name and by the earlier one's: one may have been
// made whose link was lost.
func (r *run) lookUp(ctx context.Context) (plan.Presence, string, *ending) {
	names, err := r.w.namer.Names(r.id)
	if err != nil {
		return plan.PresenceUnknown, "", failed(plan.ReasonMisconfigured, bus.ClassProvisionInvalid, "", err)
	}
	for _, name := range names {
		_, err := r.w.sprites.Get(ctx, name)
		switch {
		case err == nil:
			return plan.PresencePresent, name, nil
		case sprites.ClassOf(err) != sprites.ClassNotFound:
			return plan.PresenceUnknown, "", r.provisionFailed(ctx, "look up", err)
		}
	}
	return plan.PresenceGone, "", nil
}

// endedNothing ends a session without a Sprite; the tombstone keeps an older request from making one.
func (r *run) endedNothing(ctx context.Context, snap session.Snapshot, hold session.Hold, decided plan.Plan) *ending {
	if decided.Why != plan.WhyFreshStart {
		if _, err := r.w.links.Tombstone(ctx, snap, hold); err != nil {
			return r.linkEnding("end", err)
		}
	}
	return ended(decided, false)
}

// delete tears the session's Sprite down: the link's, else the one that was found by name. An unconfirmed tear-down
// keeps the link as its reclaim record.
func (r *run) delete(ctx context.Context, snap session.Snapshot, hold session.Hold, decided plan.Plan, stray string) (e *ending, again bool) {
	name := snap.Link.Sandbox
	if name == "" {
		name = stray
	}
	snap, err := r.w.links.BeginTeardown(ctx, snap, hold, name, true)
	switch {
	case errors.Is(err, session.ErrConflict), errors.Is(err, session.ErrEnded):
		return nil, true
	case err != nil:
		return r.linkEnding("begin tear-down of", err), false
	}
	err = r.chain.Planned(ctx, bus.PlannedBody{Plan: decided.Action, Why: decided.Why}, func(rec *bus.Record) {
		rec.Plan, rec.Why, rec.Sandbox = decided.Action, decided.Why, name
	})
	if e := r.journal("journal planned", err); e != nil {
		return e, false
	}
	if err := r.w.deleteSprite(ctx, name, endPatience); err != nil {
		class := string(sprites.ClassOf(err))
		r.log.Warn().Err(err).Msg("tear-down not confirmed; it is tried again")
		if _, err := r.w.links.Unconfirmed(ctx, snap, hold, class); err != nil {
			return r.linkEnding("keep", err), false
		}
		return ended(decided, true), false
	}
	if _, err := r.w.links.FinishEnd(ctx, snap, hold); err != nil {
		return r.linkEnding("end", err), false
	}
	return ended(decided, false), false
}

func ended(decided plan.Plan, pending bool) *ending {
	return &ending{result: bus.ResultBody{Outcome: plan.OutcomeEnded, Plan: decided.Action, Why: decided.Why, Pending: &pending}}
}

// deleteSprite is deleteAndWait for a worker.
func (w *Worker) deleteSprite(ctx context.Context, name string, patience time.Duration) error {
	return deleteAndWait(ctx, w.sprites, w.clock, name, patience)
}
