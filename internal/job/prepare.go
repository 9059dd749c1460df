package job

import (
	"context"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

// maxPlans bounds how often a run plans anew because the link changed under it or the Sprite was gone.
const maxPlans = 6

// prepare plans and does what the plan says, until the session's Sprite is ready for a command or a terminal.
func (r *run) prepare(ctx context.Context) *ending {
	start := r.w.now()
	ctx, stop := r.untilHandOver(ctx)
	defer stop()
	p := preparation{run: r, hold: session.Hold{Run: r.key.String(), Seq: r.chain.Record().Queued}, presence: plan.PresenceUnknown}
	e := p.do(ctx)
	r.timing.Plan += p.planning.Milliseconds()
	r.timing.Provision += (r.w.now().Sub(start) - p.planning).Milliseconds()
	return e
}

// preparation is one run's way from facts to a ready Sprite.
type preparation struct {
	*run
	hold      session.Hold
	presence  plan.Presence
	recreated bool
	// inUse: another run of the session uses its Sprite, however long ago the link was written.
	inUse    bool
	planning time.Duration
	// first is the action and why that the run reports: what was decided first, refined by what was found.
	first *plan.Plan
}

func (p *preparation) do(ctx context.Context) *ending {
	if e := p.step(ctx, StepPlanning); e != nil {
		return e
	}
	p.id = p.req.sessionKey(p.actor)
	for range maxPlans {
		again, e := p.once(ctx)
		if e != nil || !again {
			return e
		}
	}
	return park(bus.WaitLink, "", p.linkAgain(), "the session kept changing")
}

// decide looks at the link, takes its hold when a run that is gone has it, and plans.
func (p *preparation) decide(ctx context.Context) (snap session.Snapshot, decided plan.Plan, e *ending) {
	start := p.w.now()
	ctx, done := p.stage(ctx, "plan")
	defer func() {
		p.planning += p.w.now().Sub(start)
		done(e)
	}()
	snap, err := p.firstLink(ctx)
	if err != nil {
		return snap, decided, p.linkEnding("load", err)
	}
	decided = plan.Decide(p.facts(snap))
	if decided.Action != plan.ActionDeny && snap.Busy(p.hold.Run) != nil {
		// A run that is denied must not take a hold: it would write, and hold up whoever finishes.
		if snap, e = p.takeHold(ctx, snap); e != nil {
			return snap, decided, e
		}
		decided = plan.Decide(p.facts(snap))
	}
	if decided.Why == plan.WhyHardExpiry && snap.State() == plan.LinkLive {
		// A command may run for longer than the expiry, and the link is written when one begins and when it ends.
		if p.inUse, err = p.w.inUse(ctx, snap, p.key.Job); err != nil {
			return snap, decided, p.journal("look for other runs of the session", err)
		}
		decided = plan.Decide(p.facts(snap))
	}
	return snap, decided, nil
}

// once decides and acts once. again asks for another look at the link.
func (p *preparation) once(ctx context.Context) (again bool, e *ending) {
	snap, decided, e := p.decide(ctx)
	if e != nil {
		return false, e
	}
	if p.first == nil || decided.Why == plan.WhyGone {
		p.first = &decided
	}
	switch decided.Action {
	case plan.ActionDeny:
		if decided.Reason == plan.ReasonProvisionFailed {
			return false, failed(decided.Reason, bus.ClassProvisionUnavailable, "It vanished again after it was made anew.", nil)
		}
		return false, denied(decided.Reason, "")
	case plan.ActionCreate, plan.ActionResume, plan.ActionNoop, plan.ActionTeardown:
		ctx, done := p.stage(ctx, string(decided.Action))
		defer func() { done(e) }()
		return p.act(ctx, snap, decided)
	}
	return false, failed(plan.ReasonError, bus.ClassExecutionFailed, "", fmt.Errorf("plan %q is not known", decided.Action))
}

// act does what was decided.
func (p *preparation) act(ctx context.Context, snap session.Snapshot, decided plan.Plan) (again bool, e *ending) {
	switch decided.Action {
	case plan.ActionCreate:
		return p.create(ctx, snap, decided)
	case plan.ActionTeardown:
		return p.replace(ctx, snap, decided.Why)
	case plan.ActionResume, plan.ActionNoop, plan.ActionDeny:
	}
	return p.resume(ctx, snap)
}

func (p *preparation) facts(snap session.Snapshot) plan.Facts {
	f := snap.Facts(p.w.now())
	f.Intent, f.Authorised, f.Authentic = plan.IntentRun, true, true
	f.HardExpiry, f.Queued = p.w.cfg.HardExpiry, p.hold.Seq
	f.Presence = p.presence
	if p.inUse {
		f.Idle = 0
	}
	// At most one new Sprite for one that is gone, counted over all attempts of the run.
	f.Recreated = p.recreated || p.chain.Record().Why == plan.WhyGone
	f.FreshStart = p.freshStart()
	return f
}

// freshStart reports whether the request may revive an ended session. A verified terminal ticket is such a request.
func (p *preparation) freshStart() bool {
	return p.req.terminal != nil || p.req.exec != nil && p.req.exec.FreshStart
}

func (p *preparation) request(snap session.Snapshot, create bool) sprites.ProvisionRequest {
	l := snap.Link
	return sprites.ProvisionRequest{
		Name: l.Sandbox, Tenant: p.key.Tenant, Labels: p.w.labels(), Egress: p.w.cfg.EgressAllow, Create: create,
		Proof: sprites.Proof{Instance: l.Instance, Generation: l.Generation, PolicyHash: l.PolicyHash, SetupDone: l.SetupDone, HasBash: l.HasBash},
	}
}

// planned journals what was decided and found.
func (p *preparation) planned(ctx context.Context, snap session.Snapshot, got sprites.Provisioned) *ending {
	p.run.link, p.bash = snap, got.Proof.HasBash
	if p.req.kind == bus.KindExec {
		p.connection = p.w.sprites.Ahead(ctx)
	}
	action := p.first.Action
	if p.first.Then != "" {
		action = p.first.Then
	}
	body := bus.PlannedBody{Plan: action, Why: p.first.Why}
	err := p.chain.Planned(ctx, body, func(rec *bus.Record) {
		rec.Sandbox, rec.Instance = snap.Link.Sandbox, got.Proof.Instance
		rec.Plan, rec.Why, rec.Fresh = body.Plan, body.Why, got.Fresh || rec.Fresh
		rec.Woke = string(got.Woke)
		if p.lease != nil {
			rec.Lease, rec.Fence = p.lease.ID(), p.lease.Fence()
		}
		rec.Timing = p.timing
		rec.Crashes = 0
		if rec.Actor == nil {
			rec.Actor = &p.actor
		}
	})
	if e := p.journal("journal planned", err); e != nil {
		return e
	}
	return p.step(ctx, StepPlanned)
}
