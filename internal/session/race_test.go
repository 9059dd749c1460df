package session_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

// world is one session, its provider and the runs that plan for it, each advancing one read or write at a time.
type world struct {
	bundle
	t      *rapid.T
	sprite int // the instance that has the name; 0 = none
	made   int
	actors []*actor
}

// stage is what an actor does next.
type stage int

const (
	stageLoad stage = iota
	stagePlan
	stageCreate
	stageCommit
	stageDelete
	stageConfirm
	stageDone
	stageDead
)

type actor struct {
	by    session.Hold
	end   bool
	fresh bool
	stage stage
	snap  session.Snapshot
	then  plan.Action
	ran   bool
}

func (w *world) add(end, fresh bool) *actor {
	seq := uint64(len(w.actors) + 1)
	a := &actor{by: hold(fmt.Sprintf("j%d", seq), seq), end: end, fresh: fresh}
	w.actors = append(w.actors, a)
	return a
}

func (a *actor) over() bool { return a.stage == stageDone || a.stage == stageDead }

// took moves on after a write: a conflict sends the actor back to reading, anything else is a fault of the store.
func (w *world) took(a *actor, next stage) func(session.Snapshot, error) {
	return func(s session.Snapshot, err error) {
		switch {
		case errors.Is(err, session.ErrConflict):
			a.stage = stageLoad
		case err != nil:
			w.t.Fatalf("%s: %v", a.by.Run, err)
		default:
			a.snap, a.stage = s, next
		}
	}
}

// holds fails when an actor acts on the provider without holding the link for it, now, in the store itself.
func (w *world) holds(a *actor, state plan.LinkState) {
	now, err := w.store.Load(w.t.Context(), w.key)
	if err != nil || now.State() != state || now.Link.Holder != a.by.Run {
		w.t.Fatalf("%s acts as the holder of %s, but the link is %+v, %v", a.by.Run, state, now.Link, err)
	}
}

func (w *world) step(a *actor) {
	ctx := w.t.Context()
	switch a.stage {
	case stageLoad:
		s, err := w.store.Load(ctx, w.key)
		if err != nil {
			w.t.Fatal(err)
		}
		a.snap, a.stage = s, stagePlan
	case stagePlan:
		w.plan(a)
	case stageCreate:
		w.holds(a, plan.LinkCreating)
		if w.sprite == 0 {
			w.made++
			w.sprite = w.made
		}
		a.stage = stageCommit
	case stageCommit:
		w.took(a, stageDone)(w.store.Commit(ctx, a.snap, a.by, session.Live{Instance: fmt.Sprint(w.sprite), SetupDone: true}))
		a.ran = true
		if a.stage != stageDone {
			w.t.Fatalf("%s held the link and lost it alive", a.by.Run)
		}
	case stageDelete:
		w.holds(a, plan.LinkTearingDown)
		w.sprite = 0
		a.stage = stageConfirm
	case stageConfirm:
		if a.then == plan.ActionCreate {
			w.took(a, stageCreate)(w.store.CreateAgain(ctx, a.snap, a.by, "wb-one", a.fresh))
		} else {
			w.took(a, stageDone)(w.store.FinishEnd(ctx, a.snap, a.by))
		}
	case stageDone, stageDead:
	}
}

func (w *world) plan(a *actor) {
	ctx := w.t.Context()
	f := a.snap.Facts(w.clock.now)
	f.Intent, f.Authorised, f.Authentic, f.FreshStart, f.Queued = plan.IntentRun, true, true, a.fresh, a.by.Seq
	f.HardExpiry, f.Presence = plan.DefaultHardExpiry, plan.PresencePresent
	if a.end {
		f.Intent = plan.IntentEnd
	}
	if w.sprite == 0 {
		f.Presence = plan.PresenceGone
	}
	p := plan.Decide(f)
	// A denial takes no hold: it writes nothing.
	var busy *session.Busy
	if p.Action == plan.ActionDeny || !errors.As(a.snap.Busy(a.by.Run), &busy) {
		w.follow(a, p)
		return
	}
	for _, other := range w.actors {
		if other.by.Run == busy.Holder && other.over() {
			w.took(a, stagePlan)(w.store.TakeHold(ctx, a.snap, a.by))
			return
		}
	}
	a.stage = stageLoad
}

func (w *world) follow(a *actor, p plan.Plan) {
	ctx := w.t.Context()
	a.then = p.Then
	switch p.Action {
	case plan.ActionDeny:
		a.stage = stageDone
	case plan.ActionResume:
		a.stage, a.ran = stageDone, true
	case plan.ActionNoop:
		a.stage = stageDone
		if p.Why == plan.WhySessionEnd {
			w.took(a, stageDone)(w.store.Tombstone(ctx, a.snap, a.by))
		}
	case plan.ActionTeardown:
		w.took(a, stageDelete)(w.store.BeginTeardown(ctx, a.snap, a.by, "wb-one", a.end))
	case plan.ActionCreate:
		begin := w.took(a, stageCreate)
		switch a.snap.State() {
		case plan.LinkEnded:
			begin(w.store.Revive(ctx, a.snap, a.by, "wb-one"))
		case plan.LinkLive:
			begin(w.store.Recreate(ctx, a.snap, a.by, "wb-one"))
		case plan.LinkNone, plan.LinkCreating, plan.LinkTearingDown:
			begin(w.store.BeginCreate(ctx, a.snap, a.by, "wb-one", a.fresh))
		}
	}
}

// settled checks what must hold when nobody is in the middle of anything.
func (w *world) settled() {
	s, err := w.store.Load(w.t.Context(), w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	switch s.State() {
	case plan.LinkEnded:
		if w.sprite != 0 {
			w.t.Fatalf("ended, but instance %d lives", w.sprite)
		}
	case plan.LinkLive:
		if w.sprite != 0 && s.Link.Instance != fmt.Sprint(w.sprite) {
			w.t.Fatalf("the link says %s, instance %d lives", s.Link.Instance, w.sprite)
		}
		if s.Link.Holder != "" || s.Link.EndedSeq > 0 && s.Link.RevivedSeq < s.Link.EndedSeq {
			w.t.Fatalf("ended and live at once: %+v", s.Link)
		}
	case plan.LinkNone:
		if w.sprite != 0 {
			w.t.Fatalf("instance %d lives without a link", w.sprite)
		}
	case plan.LinkCreating, plan.LinkTearingDown:
		w.t.Fatalf("nobody acts, yet the link is %s", s.State())
	}
}

func (w *world) finish() {
	// Whatever was left behind by the dead is picked up by the next request.
	w.add(rapid.Bool().Draw(w.t, "last is an end"), rapid.Bool().Draw(w.t, "last is fresh"))
	w.drain()
	s, err := w.store.Load(w.t.Context(), w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	if s.State() == plan.LinkTearingDown && s.Link.EndedSeq > 0 {
		// An end that died is the one thing that a plain run may not finish; its own message comes again.
		w.add(true, false)
		w.drain()
	}
}

func (w *world) drain() {
	for range 1000 {
		busy := false
		for _, a := range w.actors {
			if !a.over() {
				busy = true
				w.step(a)
			}
		}
		if !busy {
			return
		}
	}
	w.t.Fatal("the actors wait for each other for ever")
}

// cases 33, 35: planners, ends, deaths, expiries and losses in any order of single reads and writes.
func TestCase35InterleavedPlannersLeaveTheSessionLiveOrEndedNeverBoth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{bundle: setup(t), t: rt}
		pick := func(t *rapid.T) *actor {
			var alive []*actor
			for _, a := range w.actors {
				if !a.over() {
					alive = append(alive, a)
				}
			}
			if len(alive) == 0 {
				t.Skip("nobody acts")
			}
			return rapid.SampledFrom(alive).Draw(t, "actor")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"run":    func(t *rapid.T) { w.add(false, rapid.Bool().Draw(t, "fresh")) },
			"end":    func(*rapid.T) { w.add(true, false) },
			"step":   func(t *rapid.T) { w.step(pick(t)) },
			"more":   func(t *rapid.T) { w.step(pick(t)) },
			"most":   func(t *rapid.T) { a := pick(t); w.step(a); w.step(a); w.step(a) },
			"die":    func(t *rapid.T) { pick(t).stage = stageDead },
			"expire": func(*rapid.T) { w.clock.add(plan.DefaultHardExpiry) },
			"lose":   func(*rapid.T) { w.sprite = 0 },
		})
		w.finish()
		w.settled()
	})
}

func TestCase33ManyFirstRequestsMakeOneSprite(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{bundle: setup(t), t: rt}
		for range rapid.IntRange(2, 6).Draw(rt, "runs") {
			w.add(false, false)
		}
		for range rapid.IntRange(0, 60).Draw(rt, "steps") {
			w.step(rapid.SampledFrom(w.actors).Draw(rt, "actor"))
		}
		for range 1000 {
			for _, a := range w.actors {
				w.step(a)
			}
		}
		for _, a := range w.actors {
			if !a.ran {
				rt.Fatalf("%s did not run", a.by.Run)
			}
		}
		if w.made != 1 {
			rt.Fatalf("%d Sprites were made", w.made)
		}
	})
}
