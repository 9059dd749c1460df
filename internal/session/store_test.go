package session_test

import (
	"errors"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

func forbidden(err error) bool { var f *session.Forbidden; return errors.As(err, &f) }

func TestAnAbsentSessionIsNoError(t *testing.T) {
	t.Parallel()
	s := setup(t).load(t)
	if s.State() != plan.LinkNone || s.Revision != 0 || s.Busy("x") != nil {
		t.Fatalf("%+v", s)
	}
}

func TestALinkIsWrittenBeforeItsSpriteAndHoldsItsName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t)(b.store.BeginCreate(t.Context(), b.load(t), hold("a", 1), "wb-one", false))
	got := b.load(t)
	if got.State() != plan.LinkCreating || got.Link.Sandbox != "wb-one" || got.Link.Holder != "acme/a.0" || got.Link.HolderSeq != 1 {
		t.Fatalf("%+v", got.Link)
	}
}

func TestACommittedLinkIsLiveAndHeldByNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.live(t)
	got := b.load(t)
	want := session.Link{V: 1, State: plan.LinkLive, Sandbox: "wb-one", Instance: "i-1", Generation: 1, PolicyHash: "p", SetupDone: true,
		HasBash: true, Kind: plan.KindConversation, Tenant: "acme", ID: "c1", CreatedAt: b.clock.now, LastActive: b.clock.now}
	if got.Link != want {
		t.Fatalf("%+v", got.Link)
	}
	b.clock.add(time.Hour)
	f := got.Facts(b.clock.now)
	if f.Idle != time.Hour || f.Link != plan.LinkLive || f.Kind != plan.KindConversation || f.Presence != plan.PresenceUnknown {
		t.Fatalf("facts %+v", f)
	}
}

func TestAnAdoptedSpriteKeepsItsOlderName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := must(t)(b.store.BeginCreate(t.Context(), b.load(t), hold("a", 1), "wb-new", false))
	must(t)(b.store.Commit(t.Context(), s, hold("a", 1), session.Live{Sandbox: "wb-old", Instance: "i"}))
	if got := b.load(t).Link.Sandbox; got != "wb-old" {
		t.Fatal(got)
	}
}

func TestCase33OfTwoPlannersOneCreatesAndTheOtherIsBusy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.load(t), b.load(t)
	must(t)(b.store.BeginCreate(t.Context(), one, hold("a", 1), "wb-one", false))
	if _, err := b.store.BeginCreate(t.Context(), two, hold("b", 2), "wb-one", false); !errors.Is(err, session.ErrConflict) {
		t.Fatalf("the second planner got %v", err)
	}
	_, err := b.store.BeginCreate(t.Context(), b.load(t), hold("b", 2), "wb-one", false)
	var busy *session.Busy
	if !errors.As(err, &busy) || busy.Holder != "acme/a.0" || busy.State != plan.LinkCreating {
		t.Fatalf("after reading again it got %v", err)
	}
}

func TestAHolderRepeatsItsStepWithoutWriting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t)(b.store.BeginCreate(t.Context(), b.load(t), hold("a", 1), "wb-one", false))
	must(t)(b.store.BeginCreate(t.Context(), b.load(t), hold("a", 1), "wb-one", false))
	if b.links.writes != 1 {
		t.Fatalf("%d writes", b.links.writes)
	}
}

func TestAHoldIsTakenOverAndItsOldHolderIsOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := must(t)(b.store.BeginCreate(t.Context(), b.load(t), hold("a", 1), "wb-one", false))
	taken := must(t)(b.store.TakeHold(t.Context(), b.load(t), hold("b", 2)))
	if _, err := b.store.Commit(t.Context(), old, hold("a", 1), session.Live{Instance: "i"}); !errors.Is(err, session.ErrConflict) {
		t.Fatalf("the old holder committed: %v", err)
	}
	var busy *session.Busy
	if _, err := b.store.Commit(t.Context(), b.load(t), hold("a", 1), session.Live{}); !errors.As(err, &busy) {
		t.Fatalf("the old holder read again and got %v", err)
	}
	must(t)(b.store.Commit(t.Context(), taken, hold("b", 2), session.Live{Instance: "i"}))
	if _, err := b.store.TakeHold(t.Context(), b.load(t), hold("c", 3)); !forbidden(err) {
		t.Fatalf("a live link has a hold to take: %v", err)
	}
}

func TestCase32AGoneSpriteIsMadeAnewUnderTheSameKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := must(t)(b.store.Recreate(t.Context(), b.live(t), hold("b", 2), "wb-one"))
	if s.Link.Instance != "" || s.Link.PolicyHash != "" || s.Link.SetupDone {
		t.Fatalf("the new Sprite inherits the old one's proof: %+v", s.Link)
	}
	must(t)(b.store.Commit(t.Context(), s, hold("b", 2), session.Live{Instance: "i-2"}))
	if got := b.load(t); got.State() != plan.LinkLive || got.Link.Instance != "i-2" {
		t.Fatalf("%+v", got.Link)
	}
}

func (b bundle) ended(t *testing.T, seq uint64) session.Snapshot {
	t.Helper()
	s := must(t)(b.store.BeginTeardown(t.Context(), b.live(t), hold("end", seq), "", true))
	return must(t)(b.store.FinishEnd(t.Context(), s, hold("end", seq)))
}

func TestCase31AnEndedSessionStaysEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.ended(t, 5)
	if s.State() != plan.LinkEnded || s.Link.EndedSeq != 5 || s.Link.Sandbox != "" {
		t.Fatalf("%+v", s.Link)
	}
	if _, err := b.store.BeginCreate(t.Context(), s, hold("b", 9), "wb-one", true); !errors.Is(err, session.ErrEnded) {
		t.Fatalf("a plain create got %v", err)
	}
	if _, err := b.store.BeginTeardown(t.Context(), s, hold("end2", 6), "", true); !errors.Is(err, session.ErrEnded) {
		t.Fatalf("a second end got %v", err)
	}
}

func TestCase31OnlyAFreshStartAfterTheEndRevives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.ended(t, 5)
	if _, err := b.store.Revive(t.Context(), s, hold("old", 4), "wb-one"); !errors.Is(err, session.ErrEnded) {
		t.Fatalf("an older fresh start got %v", err)
	}
	s = must(t)(b.store.Revive(t.Context(), s, hold("new", 6), "wb-one"))
	if s.Link.EndedSeq != 5 || s.Link.RevivedSeq != 6 {
		t.Fatalf("%+v", s.Link)
	}
	s = must(t)(b.store.Commit(t.Context(), s, hold("new", 6), session.Live{Instance: "i-2"}))
	if _, err := b.store.BeginTeardown(t.Context(), s, hold("late", 5), "", true); !forbidden(err) {
		t.Fatalf("case 35: a late end tears the successor down: %v", err)
	}
}

func TestAnEndWithoutASpriteIsRemembered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := must(t)(b.store.Tombstone(t.Context(), b.load(t), hold("end", 5)))
	s = must(t)(b.store.Tombstone(t.Context(), s, hold("end2", 7)))
	s = must(t)(b.store.Tombstone(t.Context(), s, hold("end0", 3)))
	if s.State() != plan.LinkEnded || s.Link.EndedSeq != 7 || b.links.writes != 2 {
		t.Fatalf("%+v after %d writes", s.Link, b.links.writes)
	}
	if _, err := b.store.Tombstone(t.Context(), setupLive(t), hold("end", 5)); !forbidden(err) {
		t.Fatalf("a live session was buried: %v", err)
	}
}

func setupLive(t *testing.T) session.Snapshot { t.Helper(); return setup(t).live(t) }

func TestATombstoneIsForgottenAfterThirtyDays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ended(t, 5)
	b.clock.add(30*24*time.Hour - 1)
	if got := b.load(t).State(); got != plan.LinkEnded {
		t.Fatal(got)
	}
	b.clock.add(1)
	s := b.load(t)
	if s.State() != plan.LinkNone || s.Revision == 0 {
		t.Fatalf("%+v", s)
	}
	s = must(t)(b.store.BeginCreate(t.Context(), s, hold("b", 9), "wb-one", false))
	if got := b.load(t); got.State() != plan.LinkCreating || got.Revision != s.Revision {
		t.Fatalf("%+v", got)
	}
}

func TestCase35AnExpiryGoesStraightFromTearDownToCreate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := must(t)(b.store.BeginTeardown(t.Context(), b.live(t), hold("b", 2), "", false))
	if _, err := b.store.FinishEnd(t.Context(), s, hold("b", 2)); !forbidden(err) {
		t.Fatalf("an expiry ended the session: %v", err)
	}
	s = must(t)(b.store.CreateAgain(t.Context(), s, hold("b", 2), "wb-one", false))
	if s.State() != plan.LinkCreating || s.Link.Instance != "" {
		t.Fatalf("%+v", s.Link)
	}
}

func TestAnEndingSessionIsCreatedAgainOnlyByAFreshStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t)(b.store.BeginTeardown(t.Context(), b.live(t), hold("end", 5), "", true))
	s := must(t)(b.store.TakeHold(t.Context(), b.load(t), hold("b", 6)))
	if _, err := b.store.CreateAgain(t.Context(), s, hold("b", 6), "wb-one", false); !errors.Is(err, session.ErrEnded) {
		t.Fatalf("without a fresh start: %v", err)
	}
	s = must(t)(b.store.CreateAgain(t.Context(), s, hold("b", 6), "wb-one", true))
	if s.Link.EndedSeq != 5 || s.Link.RevivedSeq != 6 {
		t.Fatalf("%+v", s.Link)
	}
}

func TestAnEndMarksAnUnfinishedExpiry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t)(b.store.BeginTeardown(t.Context(), b.live(t), hold("b", 2), "", false))
	s := must(t)(b.store.TakeHold(t.Context(), b.load(t), hold("end", 5)))
	s = must(t)(b.store.BeginTeardown(t.Context(), s, hold("end", 5), "", true))
	s = must(t)(b.store.FinishEnd(t.Context(), s, hold("end", 5)))
	if s.State() != plan.LinkEnded || s.Link.EndedSeq != 5 {
		t.Fatalf("%+v", s.Link)
	}
}

func TestCase34AnUnconfirmedTearDownKeepsTheLinkAsItsRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := must(t)(b.store.BeginTeardown(t.Context(), b.live(t), hold("end", 5), "", true))
	first := b.clock.now
	s = must(t)(b.store.Unconfirmed(t.Context(), s, hold("end", 5), "timeout"))
	b.clock.add(time.Minute)
	must(t)(b.store.Unconfirmed(t.Context(), s, hold("end", 5), "unavailable"))
	got := b.load(t).Link
	if got.State != plan.LinkTearingDown || got.Sandbox != "wb-one" || got.Instance != "i-1" ||
		*got.Reclaim != (session.Reclaim{Tries: 2, Since: first, Last: first.Add(time.Minute), Class: "unavailable"}) {
		t.Fatalf("%+v, %+v", got, got.Reclaim)
	}
}

func TestCase34AStrayFoundByNameIsRecordedBeforeItIsDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := must(t)(b.store.BeginTeardown(t.Context(), b.load(t), hold("end", 5), "wb-stray", true))
	if got := b.load(t).Link; got.State != plan.LinkTearingDown || got.Sandbox != "wb-stray" {
		t.Fatalf("%+v", got)
	}
	must(t)(b.store.FinishEnd(t.Context(), s, hold("end", 5)))
}

func TestADroppedLinkIsGoneButAnEndIsRemembered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := must(t)(b.store.BeginCreate(t.Context(), b.load(t), hold("a", 1), "wb-one", false))
	if err := b.store.Drop(t.Context(), s, hold("a", 1)); err != nil || b.load(t).Revision != 0 {
		t.Fatalf("not dropped: %v", err)
	}
	s = must(t)(b.store.Revive(t.Context(), b.ended(t, 5), hold("b", 6), "wb-one"))
	if err := b.store.Drop(t.Context(), s, hold("b", 6)); err != nil || b.load(t).Link.EndedSeq != 5 || b.load(t).State() != plan.LinkEnded {
		t.Fatalf("the end is forgotten: %v, %+v", err, b.load(t).Link)
	}
	if err := b.store.Drop(t.Context(), setupLive(t), hold("a", 1)); !forbidden(err) {
		t.Fatalf("a live link was dropped: %v", err)
	}
}
