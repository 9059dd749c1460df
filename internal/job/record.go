package job

import (
	"context"
	"time"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

// auditRun records a run's end once, whoever repeats it. A sink that fails changes nothing (case 60).
func (w *Worker) auditRun(ctx context.Context, q *request, body *bus.ResultBody) {
	rec := body.Run
	r := audit.Record{
		Kind: audit.KindRun, Tenant: q.key.Tenant, ID: audit.RunID(q.key.Job, q.key.Run), Action: string(q.kind),
		Job: q.key.Job, Run: q.key.Run, Conversation: q.conversation(), Page: q.page(), Command: commandText(q.exec),
		Outcome: body.Outcome, Reason: body.Reason, ExitCode: body.ExitCode, DurationMs: body.Timing.Total,
		Sandbox: body.Sandbox, Plan: body.Plan, Why: body.Why, Lease: rec.Lease, Fence: rec.Fence, Worker: w.cfg.WorkerID,
		Actor: auditActor(rec.Actor), Usage: usageOf(body),
	}
	w.audit.Record(ctx, r)
	switch {
	case q.replay:
		r.Kind, r.ID, r.Usage = audit.KindReplay, audit.RunID(q.key.Job, q.key.Run), nil
		w.audit.Record(ctx, r)
	case body.Outcome == plan.OutcomeEnded && body.Plan == plan.ActionTeardown && (body.Pending == nil || !*body.Pending):
		// One that is pending is recorded by whoever finishes it.
		r.Kind, r.ID, r.Usage = audit.KindTeardown, q.key.Job, nil
		w.audit.Record(ctx, r)
	}
}

// auditReplaced records that a run tore down its session's Sprite to make another.
func (p *preparation) auditReplaced(ctx context.Context, sandbox string, why plan.Why) {
	p.w.audit.Record(ctx, audit.Record{
		Kind: audit.KindTeardown, Tenant: p.key.Tenant, ID: p.key.Job + ".replaced-" + randomWord(), Action: string(p.req.kind),
		Job: p.key.Job, Run: p.key.Run, Conversation: p.req.conversation(), Page: p.req.page(), Outcome: plan.OutcomeEnded,
		Sandbox: sandbox, Plan: plan.ActionTeardown, Why: why, Worker: p.w.cfg.WorkerID, Actor: auditActor(&p.actor),
	})
}

// auditReclaimed records that a tear-down which a run had left unconfirmed is done.
func (w *Worker) auditReclaimed(ctx context.Context, snap session.Snapshot) {
	r := audit.Record{
		Kind: audit.KindTeardown, Tenant: snap.Key.Tenant, ID: "reclaim-" + randomWord(), Action: "reclaim", Outcome: plan.OutcomeEnded,
		Sandbox: snap.Link.Sandbox, Plan: plan.ActionTeardown, Detail: "an unconfirmed tear-down was finished", Worker: w.cfg.WorkerID,
		Actor: audit.Actor{Operator: "reclaim"},
	}
	if snap.Key.Kind == plan.KindConversation {
		r.Conversation = snap.Key.ID
	} else {
		r.Page = snap.Key.ID
	}
	if l := snap.Link; l.EndedSeq > 0 && l.EndedSeq >= l.RevivedSeq {
		r.Why = plan.WhySessionEnd
	}
	w.audit.Record(ctx, r)
}

func usageOf(body *bus.ResultBody) *audit.Usage {
	u := &audit.Usage{ActiveS: float64(body.Timing.Run) / float64(time.Second/time.Millisecond), Bytes: body.ProducedBytes}
	if body.Woke == "warm" || body.Woke == "cold" {
		u.Wakes = 1
	}
	if body.Run.Actor != nil {
		u.Tier = body.Run.Actor.Tier
	}
	return u
}

// auditBlock records a request that policy or authorisation refused.
func (w *Worker) auditBlock(r *run, reason plan.Reason, detail string, anomaly bool) {
	rec := audit.Record{
		Kind: audit.KindBlock, Tenant: r.key.Tenant, ID: audit.RunID(r.key.Job, r.key.Run), Action: string(r.req.kind),
		Job: r.key.Job, Run: r.key.Run, Conversation: r.req.conversation(), Page: r.req.page(), Command: commandText(r.req.exec),
		Outcome: plan.OutcomeDenied, Reason: reason, Detail: detail, Anomaly: anomaly, Worker: w.cfg.WorkerID, Actor: auditActor(&r.actor),
	}
	w.audit.Record(context.Background(), rec)
}

// auditReuse records a job id that came again with another body.
func (w *Worker) auditReuse(ctx context.Context, q *request) {
	w.audit.Record(ctx, audit.Record{
		Kind: audit.KindBlock, Tenant: q.key.Tenant, ID: audit.RunID(q.key.Job, q.key.Run) + ".reused", Action: string(q.kind),
		Job: q.key.Job, Run: q.key.Run, Conversation: q.conversation(), Page: q.page(), Detail: "the job id was used before with another body",
		Anomaly: true, Worker: w.cfg.WorkerID,
	})
}

func auditActor(a *bus.Actor) audit.Actor {
	if a == nil {
		return audit.Actor{}
	}
	return audit.Actor{User: a.User, Tier: a.Tier, AgentPage: a.AgentPage, Drive: a.Drive, Operator: a.Operator}
}

func commandText(q *bus.ExecRequest) string {
	if q == nil {
		return ""
	}
	return audit.Command(q.Argv, q.Shell)
}
