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
	err := b.store.Walk(t.Context(), b.links, session.Prefix(plan.KindConversation, "acme"), func(s session.Snapshot, failure error) error {
		switch {
		case failure != nil:
			bad++
		case s.State() == plan.LinkLive:
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
