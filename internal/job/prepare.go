package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

const (
	// maxPlans bounds how often a run plans anew because the link changed under it or the Sprite was gone.
	maxPlans = 6
	// linkRetry is how long a run waits at first for another that holds the link; linkRetryMost at last. Each look costs a
	// few messages, and a conversation's runs may wait together.
	linkRetry, linkRetryMost = time.Second, 15 * time.Second
	// gonePatience is how long the name of a deleted Sprite may take to read 404.
	gonePatience = 20 * time.Second
	// dutyHold is how long a sweep or a reclaim holds a link: longer than its delete can take, so that a duty whose
	// worker died blocks nobody for good.
	dutyHold = time.Minute
)

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
	planning  time.Duration
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

// linkAgain is when to look again at a link that is not free: the longer the run has waited, the later.
func (r *run) linkAgain() time.Time {
	now := r.w.now()
	waited := now.Sub(r.chain.Record().QueuedAt)
	return now.Add(r.w.jitter(min(max(linkRetry, waited/4), linkRetryMost)))
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
		return p.replace(ctx, snap)
	case plan.ActionResume, plan.ActionNoop, plan.ActionDeny:
	}
	return p.resume(ctx, snap)
}

func (p *preparation) facts(snap session.Snapshot) plan.Facts {
	f := snap.Facts(p.w.now())
	f.Intent, f.Authorised, f.Authentic = plan.IntentRun, true, true
	f.HardExpiry, f.Queued = p.w.cfg.HardExpiry, p.hold.Seq
	f.Presence = p.presence
	// At most one new Sprite for one that is gone, counted over all attempts of the run.
	f.Recreated = p.recreated || p.chain.Record().Why == plan.WhyGone
	f.FreshStart = p.freshStart()
	return f
}

// freshStart reports whether the request may revive an ended session. A verified terminal ticket is such a request.
func (p *preparation) freshStart() bool {
	return p.req.terminal != nil || p.req.exec != nil && p.req.exec.FreshStart
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

// held reports whether somebody still holds a link. The hold is over when the holder's run has ended, or is parked before it could make anything, or the time of a duty that is no run has run out. Of a conversation's
// runs, which an outage parks, none waits for another's patience; a create of the parked one whose answer was lost is
// adopted. A tear-down is not taken over from a parked run: its delete may be on its way.
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

// create takes the link to creating and makes the Sprite, or adopts the one that has the name.
func (p *preparation) create(ctx context.Context, snap session.Snapshot, decided plan.Plan) (bool, *ending) {
	name, err := p.name(ctx, snap)
	if err != nil {
		return false, p.provisionFailed(ctx, "look up", err)
	}
	snap, err = p.begin(ctx, snap, decided.Why, name)
	if errors.Is(err, session.ErrConflict) {
		return true, nil
	}
	if err != nil {
		return false, p.linkEnding("begin", err)
	}
	return p.make(ctx, snap)
}

// begin takes the link to creating, from wherever the plan's why found it.
func (p *preparation) begin(ctx context.Context, snap session.Snapshot, why plan.Why, name string) (session.Snapshot, error) {
	if why == plan.WhyFreshStart {
		return p.w.links.Revive(ctx, snap, p.hold, name)
	}
	if why == plan.WhyGone {
		p.recreated = true
		return p.w.links.Recreate(ctx, snap, p.hold, name)
	}
	return p.w.links.BeginCreate(ctx, snap, p.hold, name, p.freshStart())
}

// name is the Sprite's: the link's while it has one, one made with an earlier secret where that exists, else a new one.
func (p *preparation) name(ctx context.Context, snap session.Snapshot) (string, error) {
	if snap.Link.Sandbox != "" {
		return snap.Link.Sandbox, nil
	}
	names, err := p.w.namer.Names(p.id)
	if err != nil {
		return "", err
	}
	for _, older := range names[1:] {
		_, err := p.w.sprites.Get(ctx, older)
		if err == nil {
			return older, nil
		}
		if sprites.ClassOf(err) != sprites.ClassNotFound {
			return "", err
		}
	}
	return names[0], nil
}

// make provisions under a link that this run holds in creating, and commits it.
func (p *preparation) make(ctx context.Context, snap session.Snapshot) (bool, *ending) {
	if e := p.step(ctx, StepProvisioning); e != nil {
		return false, e
	}
	made, err := p.w.sprites.Provision(ctx, p.request(snap, true))
	if err != nil {
		if deleteFailed(err) {
			// A new Sprite that is not locked down, and its delete failed: the link is kept as its reclaim record (case 34).
			p.condemn(ctx, snap, err)
		} else if nothingMade(err) {
			// Nobody need wait for a link behind which nothing stands.
			if err := p.w.links.Drop(ctx, snap, p.hold); err != nil {
				p.log.Warn().Err(err).Msg("link of a refused create not dropped")
			}
		}
		return false, p.provisionFailed(ctx, "create", err)
	}
	snap, err = p.w.links.Commit(ctx, snap, p.hold, live(made))
	if errors.Is(err, session.ErrConflict) {
		return true, nil
	}
	if err != nil {
		return false, p.linkEnding("commit", err)
	}
	if !made.Fresh && p.first.Why == plan.WhyNew {
		p.first.Why = plan.WhyAdopted
	}
	return false, p.planned(ctx, snap, made)
}

// deleteFailed reports that cleaning up after a failed create failed too.
func deleteFailed(err error) bool {
	if e, ok := err.(*sprites.Error); ok && e.Op == sprites.OpDelete { //nolint:errorlint // each node of the tree is looked at by itself
		return true
	}
	switch tree := err.(type) { //nolint:errorlint // the same
	case interface{ Unwrap() error }:
		return deleteFailed(tree.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(tree.Unwrap(), deleteFailed)
	}
	return false
}

// condemn marks the link for a tear-down that the next attempt, the next run or the reclaim finishes.
func (p *preparation) condemn(ctx context.Context, snap session.Snapshot, cause error) {
	snap, err := p.w.links.BeginTeardown(ctx, snap, p.hold, snap.Link.Sandbox, false)
	if err == nil {
		_, err = p.w.links.Unconfirmed(ctx, snap, p.hold, string(sprites.ClassOf(cause)))
	}
	if err != nil {
		p.log.Error().Err(err).Str("sandbox", snap.Link.Sandbox).Msg("a sandbox to be reclaimed was not recorded")
	}
}

// nothingMade reports a create that the provider refused whole.
func nothingMade(err error) bool {
	switch sprites.ClassOf(err) {
	case sprites.ClassRateLimited, sprites.ClassConcurrentLimit, sprites.ClassUnauthorized, sprites.ClassInvalid:
		return true
	case sprites.ClassConflict, sprites.ClassNotFound, sprites.ClassUnavailable, sprites.ClassTimeout, sprites.ClassCanceled, sprites.ClassTransport:
		return false
	}
	return false
}

// resume readies the Sprite that the link names. Only a 404 or 410 counts as gone (case 26).
func (p *preparation) resume(ctx context.Context, snap session.Snapshot) (bool, *ending) {
	if e := p.step(ctx, StepProvisioning); e != nil {
		return false, e
	}
	had, err := p.w.sprites.Provision(ctx, p.request(snap, false))
	if isGone(err) {
		p.presence = plan.PresenceGone
		return true, nil
	}
	if err != nil {
		return false, p.provisionFailed(ctx, "resume", err)
	}
	if !snap.Link.Proves(had.Proof.Instance, had.Proof.PolicyHash) {
		if snap, err = p.w.links.Amend(ctx, snap, live(had)); err != nil {
			if errors.Is(err, session.ErrConflict) {
				return true, nil
			}
			return false, p.linkEnding("amend", err)
		}
	} else {
		p.w.touch(ctx, snap, &p.log)
	}
	return false, p.planned(ctx, snap, had)
}

// replace tears an expired Sprite down and makes the next one. Nothing is created under the name before it reads 404.
func (p *preparation) replace(ctx context.Context, snap session.Snapshot) (bool, *ending) {
	snap, err := p.w.links.BeginTeardown(ctx, snap, p.hold, snap.Link.Sandbox, false)
	if errors.Is(err, session.ErrConflict) {
		return true, nil
	}
	if err != nil {
		return false, p.linkEnding("begin tear-down of", err)
	}
	if err := p.w.deleteSprite(ctx, snap.Link.Sandbox, gonePatience); err != nil {
		if _, err := p.w.links.Unconfirmed(ctx, snap, p.hold, string(sprites.ClassOf(err))); err != nil {
			p.log.Warn().Err(err).Msg("unconfirmed tear-down not recorded")
		}
		return false, p.provisionFailed(ctx, "delete", err)
	}
	p.presence = plan.PresenceGone
	snap, err = p.w.links.CreateAgain(ctx, snap, p.hold, snap.Link.Sandbox, p.freshStart())
	if errors.Is(err, session.ErrConflict) {
		return true, nil
	}
	if err != nil {
		return false, p.linkEnding("create again", err)
	}
	return p.make(ctx, snap)
}

func (p *preparation) request(snap session.Snapshot, create bool) sprites.ProvisionRequest {
	l := snap.Link
	return sprites.ProvisionRequest{
		Name: l.Sandbox, Tenant: p.key.Tenant, Labels: p.w.labels(), Egress: p.w.cfg.EgressAllow, Create: create,
		Proof: sprites.Proof{Instance: l.Instance, Generation: l.Generation, PolicyHash: l.PolicyHash, SetupDone: l.SetupDone, HasBash: l.HasBash},
	}
}

func live(p sprites.Provisioned) session.Live {
	return session.Live{Sandbox: p.Sprite.Name, Instance: p.Proof.Instance, Generation: p.Proof.Generation,
		PolicyHash: p.Proof.PolicyHash, SetupDone: p.Proof.SetupDone, HasBash: p.Proof.HasBash}
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
