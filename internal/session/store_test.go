package session_test

import (
	"context"
	"errors"
	"strings"
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

func TestTouchesAreRareAndTheirFailureHarmsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.live(t)
	before := b.links.writes
	b.clock.add(time.Minute - 1)
	s = must(t)(b.store.Touch(t.Context(), s))
	if b.links.writes != before {
		t.Fatal("touched within a minute")
	}
	b.clock.add(1)
	b.links.fail = errors.New("no broker")
	kept, err := b.store.Touch(t.Context(), s)
	if err == nil || kept.Link != s.Link || kept.Revision != s.Revision {
		t.Fatalf("%+v, %v", kept, err)
	}
	b.links.fail = nil
	must(t)(b.store.Touch(t.Context(), s))
	if got := b.load(t).Link.LastActive; !got.Equal(b.clock.now) {
		t.Fatalf("last active %s", got)
	}
}

func TestOfTwoGatewaysOneGetsThePTY(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.live(t)
	won := must(t)(b.store.SetPTY(t.Context(), s, session.PTYRecord{Gateway: "g1", Lease: "l1", Session: "7", Created: 1}))
	if _, err := b.store.SetPTY(t.Context(), s, session.PTYRecord{Gateway: "g2", Lease: "l2"}); !errors.Is(err, session.ErrConflict) {
		t.Fatalf("the second gateway got %v", err)
	}
	kept := must(t)(b.store.ClearPTY(t.Context(), won, "l1", "8"))
	if kept.Link.PTY == nil {
		t.Fatal("another session's end cleared it")
	}
	must(t)(b.store.ClearPTY(t.Context(), won, "l1", "7"))
	if b.load(t).Link.PTY != nil {
		t.Fatal("not cleared")
	}
	if _, err := b.store.SetPTY(t.Context(), setup(t).load(t), session.PTYRecord{}); !forbidden(err) {
		t.Fatalf("a PTY without a Sprite: %v", err)
	}
}

func TestCase24OnlyTheSameInstanceAndPolicyAreProved(t *testing.T) {
	t.Parallel()
	l := setupLive(t).Link
	if !l.Proves("i-1", "p") {
		t.Error("its own proof does not hold")
	}
	if l.Proves("i-2", "p") || l.Proves("i-1", "q") || l.Proves("", "p") || (session.Link{SetupDone: true}).Proves("", "") {
		t.Error("something else is proved")
	}
	l.SetupDone = false
	if l.Proves("i-1", "p") {
		t.Error("an unfinished setup is proved")
	}
}

func TestAnAmendedLinkHoldsTheNewProof(t *testing.T) {
	t.Parallel()
	b := setup(t)
	must(t)(b.store.Amend(t.Context(), b.live(t), session.Live{Instance: "i-1", Generation: 2, PolicyHash: "q", SetupDone: true}))
	if got := b.load(t).Link; got.Generation != 2 || !got.Proves("i-1", "q") || got.Sandbox != "wb-one" {
		t.Fatalf("%+v", got)
	}
}

func TestALinkThatCannotBeReadIsAnErrorAndNotNone(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"no JSON":         `{`,
		"a later version": `{"v":2,"state":"live"}`,
		"a strange state": `{"v":1,"state":"lost"}`,
		"held by nobody":  `{"v":1,"state":"creating","kind":"conversation","tenant":"acme","id":"c1"}`,
		"another's":       `{"v":1,"state":"live","kind":"conversation","tenant":"other","id":"c1"}`,
		"too large":       `{"v":1,"state":"live","sandbox":"` + strings.Repeat("x", session.MaxLink) + `"}`,
	} {
		b := setup(t)
		if _, err := b.links.Create(t.Context(), b.key.String(), []byte(value)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.store.Load(t.Context(), b.key); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	b := setup(t)
	b.links.fail = errors.New("no broker")
	if _, err := b.store.Load(t.Context(), b.key); !errors.Is(err, b.links.fail) {
		t.Errorf("a store that fails: %v", err)
	}
}

func TestAWalkShowsEveryLinkAndHidesNoBadOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.live(t)
	for key, value := range map[string]string{"conversation.acme.n.bad": "{", "not a key": "x", "conversation.other.n.c": "{"} {
		if _, err := b.links.Create(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	var live, bad int
	err := b.store.Walk(t.Context(), b.links, session.Prefix(plan.KindConversation, "acme"), func(s session.Snapshot, err error) error {
		if err != nil {
			bad++
			return nil
		}
		if s.State() == plan.LinkLive {
			live++
		}
		return nil
	})
	if err != nil || live != 1 || bad != 1 {
		t.Fatalf("%d live, %d bad, %v", live, bad, err)
	}
	stop := errors.New("stop")
	if err := b.store.Walk(t.Context(), b.links, "", func(session.Snapshot, error) error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
}

func TestAWalkEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.live(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("leaving")
	cancel(why)
	err := b.store.Walk(ctx, b.links, "", func(session.Snapshot, error) error { return nil })
	if !errors.Is(err, why) {
		t.Fatal(err)
	}
}

func TestNewNeedsLinksAndSaneTimes(t *testing.T) {
	t.Parallel()
	if _, err := session.New(nil, session.Config{}); err == nil {
		t.Error("no links")
	}
	_, err := session.New(newMemory(), session.Config{TombstoneAge: -1, TouchEvery: -1})
	if err == nil || !strings.Contains(err.Error(), "tombstone") || !strings.Contains(err.Error(), "touch") {
		t.Errorf("%v", err)
	}
}
