package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/lease"
)

// waiter is a request of one user that waits for one slot.
func waiter(id string, queued int64) lease.Request {
	r := ask(id, 1)
	r.Scopes, r.Queued = lease.Waiting(r.Scopes), queued
	return r
}

// standing asks and must be parked.
func standing(t *testing.T, m *lease.Manager, r lease.Request) {
	t.Helper()
	_, err := m.Acquire(context.Background(), r)
	var d *lease.Denied
	if !errors.As(err, &d) || d.Standing != lease.Parked {
		t.Fatalf("%s: got %v (%+v), want to stand in line", r.ID, err, d)
	}
}

func TestFreedSlotsCallTheWaitersInTheOrderTheyQueued(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		m := open(t, cfg)
		run(t, m)
		cfg.Owner = "other.1"
		other := open(t, cfg)
		run(t, other)
		eventually(t, "both listen", func() bool {
			n, err := s.raw.PubSubNumSub(context.Background(), cfg.Prefix+":signals").Result()
			return err == nil && n[cfg.Prefix+":signals"] == 2
		})
		m.Freed() // from now on both take calls
		other.Freed()
		l := must(t, m, ask("acme.first.0.1", 1))
		for _, q := range []int64{30, 10, 50, 20, 40} {
			standing(t, m, waiter(fmt.Sprintf("acme.w%d.0.1", q), q))
		}
		var order []string
		for range 5 {
			if ok, err := l.Release(context.Background()); !ok || err != nil {
				t.Fatalf("release: %v %v", ok, err)
			}
			// Each call reaches exactly one of the processes.
			var f lease.Freed
			select {
			case f = <-m.Freed():
			case f = <-other.Freed():
			case <-time.After(20 * time.Second):
				t.Fatal("no call")
			}
			if f.Scope != "exec:u:acme:ann" {
				t.Errorf("scope %q", f.Scope)
			}
			order = append(order, f.ID)
			// Nobody overtakes who was called: not a newcomer, not a younger one.
			for _, r := range []lease.Request{ask("acme.new.0.1", 1), waiter("acme.young.0.1", 99)} {
				if _, err := other.Acquire(context.Background(), r); err == nil {
					t.Fatalf("%s overtook %s", r.ID, f.ID)
				}
				if err := other.Leave(context.Background(), r); err != nil {
					t.Fatal(err)
				}
			}
			l = must(t, m, waiter(f.ID, 1000)) // the order it had is kept
		}
		want := []string{"acme.w10.0.1", "acme.w20.0.1", "acme.w30.0.1", "acme.w40.0.1", "acme.w50.0.1"}
		if !slices.Equal(order, want) {
			t.Errorf("called %v", order)
		}
		select {
		case f := <-m.Freed():
			t.Errorf("called twice: %v", f)
		case f := <-other.Freed():
			t.Errorf("called twice: %v", f)
		default:
		}
	})
}

// A process that holds leases and takes no calls, as a terminal gateway does, must not win one: nobody would be woken.
func TestACallGoesToAProcessThatTakesCalls(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.TTL = time.Minute
		m := open(t, cfg)
		calls := m.Freed()
		run(t, m)
		for i := range 3 {
			cfg.Owner = fmt.Sprintf("gateway.%d", i)
			run(t, open(t, cfg))
		}
		eventually(t, "all listen", func() bool {
			n, err := s.raw.PubSubNumSub(context.Background(), cfg.Prefix+":signals").Result()
			return err == nil && n[cfg.Prefix+":signals"] == 4
		})
		l := must(t, m, ask("acme.first.0.1", 1))
		for i := range int64(8) {
			id := fmt.Sprintf("acme.w%d.0.1", i)
			standing(t, m, waiter(id, i+1))
			if ok, err := l.Release(context.Background()); !ok || err != nil {
				t.Fatalf("release: %v %v", ok, err)
			}
			select {
			case f := <-calls:
				if f.ID != id {
					t.Fatalf("called %s, want %s", f.ID, id)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("nobody was called for %s", id)
			}
			l = must(t, m, waiter(id, i+1))
		}
	})
}

func TestAWaiterThatDiedHoldsASlotUpForTheGiveWayOnly(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.TTL = time.Minute
		m := open(t, cfg)
		l := must(t, m, ask("acme.a.0.1", 1))
		standing(t, m, waiter("acme.dead.0.1", 1))
		if _, err := l.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		_, err := m.Acquire(context.Background(), ask("acme.b.0.1", 1))
		var d *lease.Denied
		if !errors.As(err, &d) || d.InUse != 0 || d.Expires > 3*time.Second {
			t.Fatalf("while the called one may come: %v %+v", err, d)
		}
		s.pass(t, nil, 4*time.Second)
		must(t, m, ask("acme.b.0.1", 1))
	})
}

func TestAParkedRequestThatNeverAsksAgainLeavesTheLine(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.TTL = 2 * time.Minute
		m := open(t, cfg)
		l := must(t, m, ask("acme.a.0.1", 1))
		standing(t, m, waiter("acme.dead.0.1", 1))
		s.pass(t, nil, 46*time.Second)
		if _, err := l.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		must(t, m, ask("acme.b.0.1", 1))
	})
}

func TestAWaiterThatLeavesPassesItsCallOn(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		l := must(t, m, ask("acme.a.0.1", 1))
		standing(t, m, waiter("acme.b.0.1", 1))
		standing(t, m, waiter("acme.c.0.1", 2))
		if _, err := l.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := m.Leave(context.Background(), waiter("acme.b.0.1", 1)); err != nil {
			t.Fatal(err)
		}
		must(t, m, waiter("acme.c.0.1", 2))
	})
}

func TestLinesAndATenantsParkedRequestsAreBounded(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.LineMax, cfg.ParkedMax = 3, 4
		m := open(t, cfg)
		must(t, m, ask("acme.a.0.1", 1))
		full := func(r lease.Request) {
			t.Helper()
			_, err := m.Acquire(context.Background(), r)
			var d *lease.Denied
			if !errors.As(err, &d) || d.Standing != lease.LineFull {
				t.Fatalf("%s: got %+v %v, want a full line", r.ID, d, err)
			}
		}
		for i := range 3 {
			standing(t, m, waiter(fmt.Sprintf("acme.w%d.0.1", i), int64(i+1)))
		}
		full(waiter("acme.w3.0.1", 4))
		standing(t, m, waiter("acme.w0.0.1", 1)) // who stands may ask again
		serial := func(id string) lease.Request {
			r := ask(id, 9)
			r.Scopes = []lease.Scope{lease.SerialScope("acme", "talk")}
			return r
		}
		must(t, m, serial("acme.s0.0.1"))
		standing(t, m, serial("acme.s1.0.1")) // the tenant's fourth
		full(serial("acme.s2.0.1"))
	})
}

func TestCommandsOfOneConversationRunOneAtATimeInOrder(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		request := func(id string, queued int64) lease.Request {
			r := ask(id, 9)
			r.Queued = queued
			r.Scopes = append([]lease.Scope{lease.SerialScope("acme", "talk")}, r.Scopes...)
			return r
		}
		a := must(t, m, request("acme.a.0.1", 1))
		standing(t, m, request("acme.c.0.1", 3))
		standing(t, m, request("acme.b.0.1", 2))
		if n := inUse(t, m, ask("", 9).Scopes[0]); n != 1 {
			t.Errorf("a waiting command holds a user's slot: %d in use", n)
		}
		if _, err := a.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		standing(t, m, request("acme.c.0.1", 3))
		b := must(t, m, request("acme.b.0.1", 2))
		if _, err := b.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		must(t, m, request("acme.c.0.1", 3))
	})
}

// Who was called to one scope and is refused by another stands in that one's
// line; the slot kept for it goes to the next.
func TestAWaiterThatAnotherScopeRefusesPassesItsCallOn(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		m := open(t, cfg)
		shared := func(id, user string, queued int64) lease.Request {
			r := waiter(id, queued)
			r.Scopes = lease.Waiting([]lease.Scope{
				lease.UserScope(lease.KindExec, "acme", user, 1), lease.TenantScope(lease.KindExec, "acme", 1),
			})
			return r
		}
		l := must(t, m, shared("acme.holder.0.1", "bob", 1))
		standing(t, m, shared("acme.first.0.1", "ann", 2))
		standing(t, m, shared("acme.second.0.1", "carl", 3))
		standing(t, m, shared("acme.third.0.1", "dora", 4))
		own := must(t, m, ask("acme.own.0.1", 1)) // ann's only slot, outside the tenant's scope
		if _, err := l.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		var d *lease.Denied
		if _, err := m.Acquire(context.Background(), shared("acme.first.0.1", "ann", 2)); !errors.As(err, &d) || d.Scope.Label() != "user" {
			t.Fatalf("the first waiter got %v", err)
		}
		if place, err := s.raw.HGet(t.Context(), cfg.Prefix+":w:exec:t:acme", "acme.second.0.1").Result(); err != nil || strings.HasSuffix(place, " 0") {
			t.Errorf("the second stands at %q (%v), uncalled", place, err)
		}
		// Its slot is kept for the second now, not for the third.
		if _, err := m.Acquire(context.Background(), shared("acme.third.0.1", "dora", 4)); !errors.As(err, &d) || d.Scope.Label() != "tenant" {
			t.Fatalf("the third waiter got %v", err)
		}
		must(t, m, shared("acme.second.0.1", "carl", 3))
		if _, err := own.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}
