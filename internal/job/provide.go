package job

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

// gonePatience is how long the name of a deleted Sprite may take to read 404.
const gonePatience = 20 * time.Second

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
	if !snap.Link.Proves(had.Proof.Instance, had.Proof.PolicyHash) || p.expiresSoon(snap) {
		if snap, err = p.w.links.Amend(ctx, snap, live(had)); err != nil {
			if errors.Is(err, session.ErrConflict) {
				return true, nil
			}
			return false, p.linkEnding("amend", err)
		}
	} else if !p.w.touch(ctx, snap, &p.log) {
		return true, nil // it may be going down by now
	}
	return false, p.planned(ctx, snap, had)
}

// expiryMargin is how near its expiry a session is written even though it was written just now: longer than a link goes
// unwritten while its session is in use.
const expiryMargin = 2 * time.Minute

// expiresSoon reports that another run may find the session expired before this one is journalled as its user.
func (p *preparation) expiresSoon(snap session.Snapshot) bool {
	return snap.Key.Kind == plan.KindConversation && p.w.cfg.HardExpiry > 0 && snap.Idle(p.w.now()) >= p.w.cfg.HardExpiry-expiryMargin
}

// replace tears an expired Sprite down and makes the next one. Nothing is created under the name before it reads 404.
func (p *preparation) replace(ctx context.Context, snap session.Snapshot, why plan.Why) (bool, *ending) {
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
	p.auditReplaced(ctx, snap.Link.Sandbox, why)
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

func live(p sprites.Provisioned) session.Live {
	return session.Live{Sandbox: p.Sprite.Name, Instance: p.Proof.Instance, Generation: p.Proof.Generation,
		PolicyHash: p.Proof.PolicyHash, SetupDone: p.Proof.SetupDone, HasBash: p.Proof.HasBash}
}
