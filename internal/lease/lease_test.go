package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wakebus/wakebus/internal/lease"
)

// case 40 (the lease's part): whatever ends the work, the slot goes back.
func TestCase40EveryEndingGivesTheSlotBack(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		boom := errors.New("boom")
		endings := map[string]func(ctx context.Context, l *lease.Lease) error{
			"returns": func(context.Context, *lease.Lease) error { return nil },
			"fails":   func(context.Context, *lease.Lease) error { return boom },
			"panics":  func(context.Context, *lease.Lease) error { panic(boom) },
			"released before its result": func(ctx context.Context, l *lease.Lease) error {
				_, err := l.Release(ctx)
				return err
			},
		}
		for name, end := range endings {
			func() {
				defer func() {
					if r := recover(); r != nil && name != "panics" {
						panic(r)
					}
				}()
				ctx, cancel := context.WithCancel(context.Background())
				err := m.With(ctx, ask("acme.a.0.1", 1), func(inner context.Context, l *lease.Lease) error {
					cancel() // the requester left: the release must not care
					<-inner.Done()
					return end(ctx, l)
				})
				if name == "fails" && !errors.Is(err, boom) {
					t.Errorf("%s: %v", name, err)
				}
			}()
			if n := inUse(t, m, ask("", 1).Scopes[0]); n != 0 {
				t.Errorf("%s: %d in use", name, n)
			}
		}
	})
}

// counter sums a metric over its labels.
func counter(t *testing.T, r *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// case 47: whoever asked may leave; the run goes on under its lease.
func TestCase47ALeaseOutlivesItsRequester(t *testing.T) {
	t.Parallel()
	m := open(t, startMini(t).config())
	ctx, cancel := context.WithCancel(context.Background())
	l, err := m.Acquire(ctx, ask("acme.a.0.1", 1))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := l.RenewNow(); err != nil || l.Context().Err() != nil || l.State() != lease.Held {
		t.Errorf("after its requester left: %v, %v, %s", err, l.Context().Err(), l.State())
	}
}

// case 44: a wedged handler keeps its slot no longer than its longest hold.
func TestCase44AStuckHolderIsToldStopsRenewingAndIsCounted(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.TTL = 800 * time.Millisecond
		cfg.CallTimeout = 190 * time.Millisecond
		registry := prometheus.NewRegistry()
		cfg.Registerer = registry
		m := open(t, cfg)
		r := ask("acme.a.0.1", 1)
		r.MaxHold = 1200 * time.Millisecond
		l := must(t, m, r)
		<-l.Context().Done() // and it never returns
		var lost *lease.Lost
		if !errors.As(context.Cause(l.Context()), &lost) || lost.Reason != lease.MaxHold {
			t.Fatalf("cause %v", context.Cause(l.Context()))
		}
		eventually(t, "the slot is free", func() bool { return inUse(t, m, r.Scopes[0]) == 0 })
		must(t, m, ask("acme.b.0.1", 1))
		if n := counter(t, registry, "wakebus_lease_stuck_total"); n != 1 {
			t.Errorf("stuck counted %v times", n)
		}
	})
}

func TestATransferDoesNotLengthenTheLongestHold(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.TTL = time.Minute
		m := open(t, cfg)
		r := ask("acme.a.0.1", 1)
		r.MaxHold = 90 * time.Second
		must(t, m, r)
		s.pass(t, nil, 50*time.Second)
		r.Owner = "taker.1"
		must(t, m, r)
		s.pass(t, nil, 41*time.Second)
		r.Owner = "third.1"
		_, err := m.Acquire(context.Background(), r)
		var lost *lease.Lost
		if !errors.As(err, &lost) || lost.Reason != lease.MaxHold {
			t.Errorf("got %v", err)
		}
	})
}

func TestAMarkEndsTheHolderWhileItsSlotStillCounts(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		m := open(t, cfg)
		run(t, m)
		cfg.Owner = "ops.1"
		ops := open(t, cfg)
		l := must(t, m, ask("acme.a.0.1", 1))
		if err := ops.Revoke(context.Background(), l.ID(), "runaway", "ann@ops", false); err != nil {
			t.Fatal(err)
		}
		<-l.Context().Done()
		var lost *lease.Lost
		if !errors.As(context.Cause(l.Context()), &lost) || lost.Reason != lease.Revoked || lost.Why != "runaway" || lost.By != "ann@ops" {
			t.Fatalf("cause %v", context.Cause(l.Context()))
		}
		if n := inUse(t, m, ask("", 1).Scopes[0]); n != 1 || l.State() != lease.Held {
			t.Errorf("%d in use, %s: the slot counts until the holder has stopped", n, l.State())
		}
		if ok, err := l.Release(context.Background()); !ok || err != nil {
			t.Errorf("release: %v %v", ok, err)
		}
		if err := ops.Revoke(context.Background(), l.ID(), "", "", false); !errors.Is(err, lease.ErrNotFound) {
			t.Errorf("revoking what is gone: %v", err)
		}
	})
}

func TestRevokeNowFreesTheSlotAndTheHolderCannotTakeItBack(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		l := must(t, m, ask("acme.a.0.1", 1))
		if err := m.Revoke(context.Background(), l.ID(), "runaway", "ops", true); err != nil {
			t.Fatal(err)
		}
		next := must(t, m, ask("acme.b.0.1", 1))
		if err := l.RenewNow(); err == nil {
			t.Error("renewed")
		}
		if ok, err := l.Release(context.Background()); ok || err != nil {
			t.Errorf("release: %v %v", ok, err)
		}
		if n := inUse(t, m, ask("", 1).Scopes[0]); n != 1 || next.State() != lease.Held {
			t.Errorf("%d in use", n)
		}
	})
}

func TestListShowsWhoHoldsWhat(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		for i, user := range []string{"ann", "bob", `we*ird "u:{x}`} {
			r := ask(fmt.Sprintf("acme.j%d.0.1", i), 1)
			r.User, r.Sandbox, r.Job = user, fmt.Sprintf("sprite-%d", i), fmt.Sprintf("j%d", i)
			r.Scopes = lease.Scopes(lease.KindExec, "acme", user, "free", lease.DefaultLimits())
			must(t, m, r)
		}
		all, err := m.List(context.Background(), lease.Filter{})
		if err != nil || len(all) != 3 {
			t.Fatalf("%d %v", len(all), err)
		}
		some, err := m.List(context.Background(), lease.Filter{User: `we*ird "u:{x}`})
		if err != nil || len(some) != 1 || some[0].Sandbox != "sprite-2" || some[0].Job != "j2" || some[0].Fence == 0 || some[0].Owner != m.Owner() {
			t.Fatalf("%+v %v", some, err)
		}
		if d := some[0].Expires.Sub(some[0].Since); d < 11*time.Second || d > 13*time.Second {
			t.Errorf("expires %s after its grant", d)
		}
		part, err := m.List(context.Background(), lease.Filter{Max: 2})
		if !errors.Is(err, lease.ErrPartial) || len(part) != 2 {
			t.Errorf("bounded list: %d %v", len(part), err)
		}
		byID, err := m.List(context.Background(), lease.Filter{ID: "acme.j1.0.1"})
		if err != nil || len(byID) != 1 || byID[0].User != "bob" {
			t.Errorf("%+v %v", byID, err)
		}
	})
}

// Who asks for one lease learns how long it holds without another renewal, and nothing of the others.
func TestALeaseIsAliveForAsLongAsItHolds(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		ctx := context.Background()
		l := must(t, m, ask("acme.a.0.1", 1))
		left, err := m.Alive(ctx, "acme.a.0.1")
		if err != nil || left <= 11*time.Second || left > 12*time.Second {
			t.Errorf("fresh: %s %v", left, err)
		}
		if left, err := m.Alive(ctx, "acme.b.0.1"); err != nil || left != 0 {
			t.Errorf("another: %s %v", left, err)
		}
		if _, err := m.Alive(ctx, "a*b\n"); err == nil {
			t.Error("an id that is none was asked for")
		}
		if _, err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if left, err := m.Alive(ctx, "acme.a.0.1"); err != nil || left != 0 {
			t.Errorf("released: %s %v", left, err)
		}
	})
}

// case 42: what needs no slot changes no count.
func TestCase42LookingAndRenewingTakesNoSlot(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		l := must(t, m, ask("acme.a.0.1", 1))
		for range 5 {
			if err := l.RenewNow(); err != nil {
				t.Fatal(err)
			}
			if _, err := m.List(context.Background(), lease.Filter{}); err != nil {
				t.Fatal(err)
			}
			if err := m.Ready(context.Background()); err != nil {
				t.Fatal(err)
			}
			if !m.Admit() {
				t.Fatal("does not admit")
			}
		}
		if n := inUse(t, m, ask("", 1).Scopes[0]); n != 1 {
			t.Errorf("%d in use", n)
		}
	})
}

func TestHeartbeatsKeepALeaseFarBeyondItsTTL(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.TTL = 800 * time.Millisecond
		cfg.CallTimeout = 190 * time.Millisecond
		m := open(t, cfg)
		l := must(t, m, ask("acme.a.0.1", 1))
		first := l.Fence()
		end := time.NewTimer(2 * time.Second)
		defer end.Stop()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if n := inUse(t, m, ask("", 1).Scopes[0]); n != 1 {
					t.Fatalf("%d in use", n)
				}
				continue
			case <-l.Context().Done():
				t.Fatalf("lost: %v", context.Cause(l.Context()))
			case <-end.C:
			}
			break
		}
		if l.State() != lease.Held || l.Fence() != first {
			t.Errorf("%s, fence %d, was %d", l.State(), l.Fence(), first)
		}
	})
}

func TestCloseReleasesNothingAndGrantsNoMore(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		m, other := open(t, cfg), open(t, cfg)
		l := must(t, m, ask("acme.a.0.1", 1))
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if n := inUse(t, other, ask("", 1).Scopes[0]); n != 1 {
			t.Errorf("%d in use after close, want 1: the command may run on", n)
		}
		if l.State() != lease.Detached || l.Context().Err() != nil {
			t.Errorf("%s, %v", l.State(), l.Context().Err())
		}
		if _, err := m.Acquire(context.Background(), ask("acme.b.0.1", 9)); !errors.Is(err, lease.ErrClosed) {
			t.Errorf("acquire: %v", err)
		}
		if m.Admit() {
			t.Error("admits")
		}
	})
}

func TestAConfigReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	_, err := lease.Open(context.Background(), lease.Config{
		Prefix: "plain", TTL: time.Second, Renew: 900 * time.Millisecond, CallTimeout: 2 * time.Second, Margin: time.Hour,
		MaxHold: time.Millisecond, LineMax: -1, ParkedMax: -1, Budget: -1, Owner: "a b", Gate: lease.GateConfig{Window: -1},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"prefix", "ttl", "call timeout", "margin", "max hold", "line max", "parked max", "budget", "owner", "window"} {
		if !contains(err, want) {
			t.Errorf("%q is not named in %q", want, err)
		}
	}
}
