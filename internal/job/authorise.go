package job

import (
	"context"
	"errors"
	"time"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// calloutRetry spaces the tries of a run whose authorisation cannot be asked now.
const calloutRetry = 3 * time.Second

// question is what authorisation is asked about this request.
func (r *run) question() authz.Ask {
	d, q := r.delivery, r.req
	ask := authz.Ask{
		Tenant: r.key.Tenant, Grant: d.Header.Get(bus.HeaderGrant), BodySHA: q.sha,
		Conversation: q.conversation(), Page: q.page(), Drive: q.drive(), Job: r.key.Job, At: d.QueuedAt,
	}
	ask.Action = r.action()
	return ask
}

func (r *run) action() authz.Action {
	switch r.req.kind {
	case bus.KindExec:
		return authz.ActionExec
	case bus.KindTerminal:
		return authz.ActionTerminal
	case bus.KindEnd:
		return authz.ActionEnd
	}
	return authz.ActionExec
}

// verdict is what authorisation said, kept until the run is claimed and can say it on.
type verdict struct {
	actor bus.Actor
	err   error
	given bool
}

// judge asks before anything that costs or reveals, before the claim, so that accepted carries the verified actor.
func (r *run) judge(ctx context.Context) verdict {
	start := r.w.now()
	defer r.measured(&r.timing.Authorize, start)
	if r.req.replay {
		return r.judgeReplay(ctx)
	}
	actor, err := r.w.authz.Authorize(ctx, r.question())
	return verdict{actor: busActor(actor), err: err, given: true}
}

// judgeReplay honours an operator's grant for the job's original actor.
func (r *run) judgeReplay(ctx context.Context) verdict {
	if r.req.letter == nil || r.req.letter.Actor == nil {
		return verdict{given: true, err: &authz.Denied{Reason: plan.ReasonInvalidRequest, Detail: "the dead letter names no actor"}}
	}
	ask := r.question()
	ask.BodySHA, ask.At = "", r.delivery.QueuedAt
	actor, err := r.w.authz.Replay(ctx, ask, authzActor(*r.req.letter.Actor), r.action())
	return verdict{actor: busActor(actor), err: err, given: true}
}

// authorise turns the verdict into an ending, or goes on. A later attempt is judged by the actor in the journal, for
// as long as that may be trusted.
func (r *run) authorise(ctx context.Context) *ending {
	v := r.verdict
	if !v.given {
		rec := r.chain.Record()
		if rec.Actor == nil {
			v = r.judge(ctx)
		} else {
			start := r.w.now()
			actor, err := r.w.authz.Later(ctx, authz.Attempt{
				Action: r.action(), Actor: authzActor(*rec.Actor), Job: r.key.Job, StreamTime: rec.QueuedAt,
				Deadline: r.req.deadline, Now: start,
			})
			r.measured(&r.timing.Authorize, start)
			v = verdict{actor: busActor(actor), err: err, given: true}
		}
	}
	if e := r.authEnding(v.err); e != nil {
		return e
	}
	r.actor = v.actor
	return nil
}

// authEnding is the ending that an authorisation error means; nil for none.
func (r *run) authEnding(err error) *ending {
	var no *authz.Denied
	var broken *authz.Misconfigured
	switch {
	case err == nil:
		return nil
	case errors.As(err, &no):
		if no.Anomaly || no.Reason.Info().Authorization {
			// A switch that is off, or a ceiling, says nothing about the caller (case 61).
			r.w.auditBlock(r, no.Reason, no.Detail, no.Anomaly)
		}
		e := denied(no.Reason, "")
		e.cause = err
		return e
	case errors.As(err, &broken):
		e := denied(plan.ReasonMisconfigured, "")
		e.cause = err
		return e
	case errors.Is(err, authz.ErrUnavailable):
		e := park(bus.WaitWorker, "authorisation", r.w.now().Add(r.w.jitter(calloutRetry)), "authorisation cannot be asked now")
		e.unavailable = plan.ReasonWorkerUnavailable
		e.cause = err
		return e
	}
	return failed(plan.ReasonError, bus.ClassExecutionFailed, "", err)
}

// policy checks the command itself, before it costs anything.
func (r *run) policy() *ending {
	q := r.req.exec
	if v := plan.CheckCommand(q.Argv, q.Shell); v != nil {
		if e := r.unlessMarked(nil); e != nil {
			return e
		}
		r.w.auditBlock(r, v.Reason, string(v.Reason), true)
		return denied(v.Reason, "")
	}
	if q.Cwd != "" {
		_, err := plan.ConfinePath("", q.Cwd)
		var bad *plan.Violation
		if errors.As(err, &bad) {
			if e := r.unlessMarked(nil); e != nil {
				return e
			}
			r.w.auditBlock(r, bad.Reason, "cwd: "+bad.Detail, bad.Anomaly)
			return denied(bad.Reason, detail(bad))
		}
	}
	return nil
}

func busActor(a authz.Actor) bus.Actor {
	return bus.Actor{Tenant: a.Tenant, User: a.User, Tier: a.Tier, Drive: a.Drive, AgentPage: a.AgentPage,
		Conversation: a.Conversation, Page: a.Page, Operator: a.Operator}
}

func authzActor(a bus.Actor) authz.Actor {
	return authz.Actor{Tenant: a.Tenant, User: a.User, Tier: a.Tier, Drive: a.Drive, AgentPage: a.AgentPage,
		Conversation: a.Conversation, Page: a.Page, Operator: a.Operator}
}
