package lease_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/lease"
)

func TestDenialNamesTheFullScopeItsHoldersAndWhenASlotFrees(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		must(t, m, ask("acme.a.0.1", 2))
		must(t, m, ask("acme.b.0.1", 2))
		_, err := m.Acquire(context.Background(), ask("acme.c.0.1", 2))
		var d *lease.Denied
		if !errors.As(err, &d) {
			t.Fatalf("got %v, want a denial", err)
		}
		if d.InUse != 2 || d.Limit != 2 || d.Scope.Label() != "user" || d.Standing != lease.NotWaiting {
			t.Errorf("got %+v", d)
		}
		if slices.Sort(d.Holders); !slices.Equal(d.Holders, []string{"acme.a.0.1", "acme.b.0.1"}) {
			t.Errorf("holders %v", d.Holders)
		}
		if d.Expires <= 10*time.Second || d.Expires > 12*time.Second || d.RetryAfter < 4*time.Second || d.RetryAfter > 6*time.Second {
			t.Errorf("expires %s, retry after %s", d.Expires, d.RetryAfter)
		}
		if errors.Is(err, lease.ErrUnavailable) {
			t.Error("a denial must not look like an outage (case 48)")
		}
	})
}

func TestAFullWideScopeTakesNothingOfTheNarrowOnes(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		limits := lease.Limits{Exec: map[string]int{"free": 5}, Tenant: 1, Global: 9}
		ann, bob := lease.Scopes(lease.KindExec, "acme", "ann", "free", limits), lease.Scopes(lease.KindExec, "acme", "bob", "free", limits)
		r := ask("acme.a.0.1", 0)
		r.Scopes = ann
		must(t, m, r)
		r.ID, r.Scopes = "acme.b.0.1", bob
		_, err := m.Acquire(context.Background(), r)
		var d *lease.Denied
		if !errors.As(err, &d) || d.Scope.Label() != "tenant" {
			t.Fatalf("got %v, want the tenant's denial", err)
		}
		if n := inUse(t, m, bob[0]); n != 0 {
			t.Errorf("bob holds %d after a denial", n)
		}
		if n := inUse(t, m, bob[2]); n != 1 {
			t.Errorf("global holds %d, want ann's", n)
		}
	})
}

func TestAnAcquireOfALiveIDByANewOwnerTransfersItWithoutASlot(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.TTL, cfg.CallTimeout, cfg.Owner = 2*time.Second, 490*time.Millisecond, "w1.1"
		a := open(t, cfg)
		cfg.Owner = "w2.1"
		b := open(t, cfg)
		r := ask("acme.a.0.1", 1)
		old := must(t, a, r)
		taken := must(t, b, r)
		if taken.Fence() <= old.Fence() {
			t.Errorf("fence %d after %d", taken.Fence(), old.Fence())
		}
		if n := inUse(t, a, r.Scopes[0]); n != 1 {
			t.Errorf("%d slots after a transfer, want 1", n)
		}
		// Case 43: the old owner's renewal finds out, and is silent.
		<-old.Context().Done()
		var lost *lease.Lost
		if !errors.As(context.Cause(old.Context()), &lost) || lost.Reason != lease.Transferred {
			t.Fatalf("cause %v", context.Cause(old.Context()))
		}
		if ok, err := old.Release(context.Background()); ok || err != nil {
			t.Errorf("the old owner released: %v %v", ok, err)
		}
		if n := inUse(t, a, r.Scopes[0]); n != 1 {
			t.Errorf("%d slots after the old owner's release, want 1", n)
		}
		if ok, err := taken.Release(context.Background()); !ok || err != nil {
			t.Errorf("the taker's release: %v %v", ok, err)
		}
	})
}

// case 41
func TestCase41ADoubleReleaseFreesNobodyElsesSlot(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		a, b := must(t, m, ask("acme.a.0.1", 2)), must(t, m, ask("acme.b.0.1", 2))
		if ok, err := a.Release(context.Background()); !ok || err != nil {
			t.Fatalf("first release: %v %v", ok, err)
		}
		for range 3 {
			if ok, err := a.Release(context.Background()); ok || err != nil {
				t.Fatalf("second release: %v %v", ok, err)
			}
		}
		if ok, err := m.ReleaseID(context.Background(), a.ID(), a.Fence()); ok || err != nil {
			t.Fatalf("release by id: %v %v", ok, err)
		}
		if n := inUse(t, m, ask("", 2).Scopes[0]); n != 1 {
			t.Errorf("%d in use, want b's", n)
		}
		if b.State() != lease.Held {
			t.Errorf("b is %s", b.State())
		}
	})
}

func TestACleanReleaseLeavesNoKeyOfTheLease(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		m := open(t, cfg)
		l := must(t, m, ask("acme.a.0.1", 1))
		if _, err := l.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		keys, err := s.raw.Keys(context.Background(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if k != cfg.Prefix+":s" && k[:len(cfg.Prefix)+6] != cfg.Prefix+":test:" {
				t.Errorf("left behind: %s", k)
			}
		}
	})
}

func TestAReleaseByIDNeedsTheFenceOfItsHolder(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.Owner = "w1.1"
		a := open(t, cfg)
		cfg.Owner = "w2.1"
		b := open(t, cfg)
		r := ask("acme.a.0.1", 1)
		stale := must(t, a, r).Fence()
		l := must(t, b, r)
		if ok, err := a.ReleaseID(context.Background(), r.ID, stale); ok || err != nil {
			t.Fatalf("a stale fence released: %v %v", ok, err)
		}
		if ok, err := a.ReleaseID(context.Background(), r.ID, l.Fence()); !ok || err != nil {
			t.Fatalf("the right fence: %v %v", ok, err)
		}
		if n := inUse(t, a, r.Scopes[0]); n != 0 {
			t.Errorf("%d in use", n)
		}
	})
}

func TestForgetReleasesNothingAndATakerGoesOn(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.Owner = "w1.1"
		a := open(t, cfg)
		cfg.Owner = "gw.1"
		b := open(t, cfg)
		r := ask("acme.a.0.1", 1)
		l := must(t, a, r)
		if err := l.Extend(context.Background(), 2*time.Second); err != nil {
			t.Fatal(err)
		}
		l.Forget()
		if ok, err := l.Release(context.Background()); ok || err != nil {
			t.Fatalf("release after forget: %v %v", ok, err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if n := inUse(t, b, r.Scopes[0]); n != 1 {
			t.Fatalf("%d in use after the hand-over and close, want 1", n)
		}
		if l.Context().Err() != nil {
			t.Error("a hand-over must not end the context")
		}
		taken := must(t, b, r)
		if taken.Fence() <= l.Fence() {
			t.Error("no new fence")
		}
	})
}

func TestAnUnclaimedHandOverExpiresInItsOwnTime(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		l := must(t, m, ask("acme.a.0.1", 1))
		if err := l.Extend(context.Background(), 200*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		l.Forget()
		began := time.Now()
		eventually(t, "the slot frees", func() bool {
			next, err := m.Acquire(context.Background(), ask("acme.b.0.1", 1))
			if err == nil {
				_, err = next.Release(context.Background())
			}
			return err == nil
		})
		if d := time.Since(began); d > 11*time.Second {
			t.Errorf("took %s, the whole ttl, to free a hand-over of 200ms", d)
		}
	})
}

func TestALimitOfZeroSuspendsAndADowngradeRevokesNobody(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		a, b := must(t, m, ask("acme.a.0.1", 3)), must(t, m, ask("acme.b.0.1", 3))
		for _, limit := range []int{0, 1, 2} {
			var d *lease.Denied
			if _, err := m.Acquire(context.Background(), ask("acme.c.0.1", limit)); !errors.As(err, &d) || d.Limit != limit || d.InUse != 2 {
				t.Errorf("limit %d: %v", limit, err)
			}
		}
		if a.Context().Err() != nil || b.Context().Err() != nil {
			t.Error("a downgrade ended a holder")
		}
		must(t, m, ask("acme.c.0.1", 3))
	})
}

func TestForceExceedsByOneAndIsCountedInTheScope(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		must(t, m, ask("acme.a.0.1", 1))
		r := ask("acme.b.0.1", 1)
		r.Force = true
		l := must(t, m, r)
		if n := inUse(t, m, r.Scopes[0]); n != 2 {
			t.Errorf("%d in use, want 2", n)
		}
		if ok, _ := l.Release(context.Background()); !ok {
			t.Error("not released")
		}
	})
}

func TestKindsHaveScopesOfTheirOwn(t *testing.T) {
	t.Parallel()
	l := lease.DefaultLimits()
	seen := map[string]bool{}
	for _, k := range []lease.Kind{lease.KindExec, lease.KindTerminal, lease.KindFile} {
		for _, s := range lease.Scopes(k, "acme", "ann", "pro", l) {
			name := string(s.Kind) + ":" + s.Name
			if seen[name] {
				t.Errorf("%s is shared", name)
			}
			seen[name] = true
		}
	}
}

func TestTierLimitsAreTheContractsAndAnUnknownTierIsTheLowest(t *testing.T) {
	t.Parallel()
	for tier, want := range map[string]int{"free": 1, "pro": 2, "founder": 3, "business": 5, "": 1, "root": 1} {
		if got := lease.Scopes(lease.KindExec, "t", "u", tier, lease.DefaultLimits())[0].Limit; got != want {
			t.Errorf("tier %q: %d, want %d", tier, got, want)
		}
	}
}

func TestRequestsReportEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	m := open(t, startMini(t).config())
	_, err := m.Acquire(context.Background(), lease.Request{
		ID: "a b", Kind: "x", Scopes: []lease.Scope{{Kind: lease.KindExec, Name: "u:{x}", Limit: -1}}, MaxHold: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"lease id", "kind", "scope", "max hold"} {
		if !contains(err, want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
}

func FuzzUserNamesNeverLeaveTheirScope(f *testing.F) {
	f.Add("ann", "a:b", "bob", "x")
	f.Add("a", "b:c", "a:b", "c")
	f.Add("}{", " ", "%", "%25")
	f.Fuzz(func(t *testing.T, t1, u1, t2, u2 string) {
		a, b := lease.UserScope(lease.KindExec, t1, u1, 1), lease.UserScope(lease.KindExec, t2, u2, 1)
		if (t1 != t2 || u1 != u2) && a.Name == b.Name {
			t.Fatalf("(%q,%q) and (%q,%q) share %q", t1, u1, t2, u2, a.Name)
		}
		for _, c := range a.Name {
			if c <= ' ' || c > '~' || c == '{' || c == '}' {
				t.Fatalf("%q holds %q", a.Name, c)
			}
		}
	})
}
