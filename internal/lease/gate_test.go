package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/lease"
)

func pass(t *testing.T, m *lease.Manager, op, tenant string) (string, *lease.GateClosed) {
	t.Helper()
	pass, err := m.Gate().Enter(context.Background(), op, tenant)
	var closed *lease.GateClosed
	if err != nil && !errors.As(err, &closed) {
		t.Fatalf("enter %s: %v", op, err)
	}
	return pass, closed
}

func enter(t *testing.T, m *lease.Manager, op, tenant string) *lease.GateClosed {
	t.Helper()
	_, closed := pass(t, m, op, tenant)
	return closed
}

// probe enters a gate that is due, as the one call that tests the provider.
func probe(t *testing.T, m *lease.Manager, op, tenant string) string {
	t.Helper()
	p, closed := pass(t, m, op, tenant)
	if closed != nil || p == "" {
		t.Fatalf("no probe: %q %v", p, closed)
	}
	return p
}

// gateConfig forgets answers at once, so that each Enter asks.
func gateConfig(s *server, c *clock) lease.Config {
	cfg := s.config()
	cfg.Gate.Cache = time.Nanosecond
	if c != nil {
		cfg.Now = c.Now
	}
	return cfg
}

func TestARateLimitClosesOneOperationForTheFleetByItsHint(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		c := &clock{}
		cfg := gateConfig(s, c)
		m, other := open(t, cfg), open(t, cfg)
		if enter(t, m, "create", "acme") != nil {
			t.Fatal("closed at first")
		}
		m.Gate().Report(ctx, "create", "", "rate_limited", 20*time.Second)
		closed := enter(t, other, "create", "zeta")
		if closed == nil || closed.Why != "rate_limited" || closed.RetryAfter < 15*time.Second || closed.RetryAfter > 23*time.Second {
			t.Fatalf("the other process got %v", closed)
		}
		for _, op := range []string{"exec", "get", "attach", "delete", "end", "kill"} {
			if got := enter(t, other, op, "acme"); got != nil {
				t.Errorf("a create's limit closed %s", op)
			}
		}
		s.pass(t, c, 21*time.Second)
		p := probe(t, m, "create", "acme")
		if got := enter(t, other, "create", "zeta"); got == nil || got.Why != "rate_limited" {
			t.Fatalf("beside the probe: %v", got)
		}
		states, err := other.Gate().States(ctx)
		if err != nil || len(states) != 1 || states[0].Status != lease.GateProbing {
			t.Errorf("states %+v %v", states, err)
		}
		m.Gate().Report(ctx, "create", p, "", 0)
		if got := enter(t, other, "create", "zeta"); got != nil {
			t.Fatalf("after the probe: %v", got)
		}
	})
}

func TestAfterALimitEachTenantHasItsShareOfCreations(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		c := &clock{}
		cfg := gateConfig(s, c)
		m := open(t, cfg)
		for range 30 { // no share while the provider's limit was never met
			if enter(t, m, "create", "greedy") != nil {
				t.Fatal("closed without a reason")
			}
			m.Gate().Report(ctx, "create", "", "", 0)
		}
		m.Gate().Report(ctx, "create", "", "rate_limited", time.Second)
		s.pass(t, c, 2*time.Second)
		m.Gate().Report(ctx, "create", probe(t, m, "create", "greedy"), "", 0)
		granted := 0
		for range 30 {
			got := enter(t, m, "create", "greedy")
			if got == nil {
				granted++
				m.Gate().Report(ctx, "create", "", "", 0)
			} else if got.Why != "share" || got.RetryAfter <= 0 || got.RetryAfter > 14*time.Second {
				t.Fatalf("got %v", got)
			}
		}
		if granted != 5 {
			t.Errorf("%d creations of a share of 5", granted)
		}
		if enter(t, m, "create", "modest") != nil {
			t.Error("one tenant's share used up another's")
		}
		s.pass(t, c, 13*time.Second)
		if enter(t, m, "create", "greedy") != nil {
			t.Error("the share does not refill")
		}
	})
}

func TestAnOutageClosesAnOperationByBackoffAndOneProbeOpensIt(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		c := &clock{}
		m := open(t, gateConfig(s, c))
		fail := func(pass string) { m.Gate().Report(ctx, "exec", pass, "unavailable", 0) }
		for i := range 5 {
			if enter(t, m, "exec", "acme") != nil {
				t.Fatalf("closed after %d failures", i)
			}
			fail("")
		}
		for _, backoff := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second} {
			got := enter(t, m, "exec", "acme")
			if got == nil || got.RetryAfter > backoff*12/10 || got.RetryAfter < backoff*7/10 {
				t.Fatalf("backoff %s: got %v", backoff, got)
			}
			s.pass(t, c, backoff+100*time.Millisecond)
			p := probe(t, m, "exec", "acme")
			if enter(t, m, "exec", "other") == nil {
				t.Fatal("two probes")
			}
			fail(p)
		}
		s.pass(t, c, 11*time.Second)
		m.Gate().Report(ctx, "exec", probe(t, m, "exec", "acme"), "not_found", 0) // it answered
		for range 3 {
			if got := enter(t, m, "exec", "acme"); got != nil {
				t.Fatalf("after a good probe: %v", got)
			}
		}
	})
}

func TestAProbeThatSaysNothingOrDiesIsReplaced(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		c := &clock{}
		m := open(t, gateConfig(s, c))
		enter(t, m, "create", "acme")
		m.Gate().Report(ctx, "create", "", "rate_limited", time.Second)
		s.pass(t, c, 2*time.Second)
		m.Gate().Report(ctx, "create", probe(t, m, "create", "acme"), "canceled", 0)
		s.pass(t, c, time.Millisecond)
		first := probe(t, m, "create", "acme") // after a canceled one
		if enter(t, m, "create", "acme") == nil {
			t.Fatal("two probes")
		}
		s.pass(t, c, 91*time.Second)
		second := probe(t, m, "create", "acme") // after one that died
		m.Gate().Report(ctx, "create", first, "", 0)
		if enter(t, m, "create", "acme") == nil {
			t.Fatal("the answer of a probe that was given up opened the gate")
		}
		m.Gate().Report(ctx, "create", second, "", 0)
		if got := enter(t, m, "create", "acme"); got != nil {
			t.Fatalf("after a good probe: %v", got)
		}
	})
}

// An answer that Redis does not hear would leave the operation closed for the whole fleet until the probe's time is over.
func TestAProbesAnswerThatIsLostIsToldAgain(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, m *lease.Manager, p *proxy){
		"the report is lost": func(t *testing.T, m *lease.Manager, p *proxy) {
			mine := probe(t, m, "exec", "acme")
			p.partition()
			m.Gate().Report(context.Background(), "exec", mine, "", 0)
			p.heal()
		},
		"the caller left": func(t *testing.T, m *lease.Manager, p *proxy) {
			p.holdFrom("exec")
			ctx, cancel := context.WithCancel(context.Background())
			left := make(chan error, 1)
			go func() {
				_, err := m.Gate().Enter(ctx, "exec", "acme")
				left <- err
			}()
			<-p.onHeld
			cancel()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Errorf("entered after it was canceled: %v", err)
			}
			p.pass()
			p.deliver(t)
		},
		"the pass is lost": func(t *testing.T, m *lease.Manager, p *proxy) {
			p.holdFrom("exec")
			mine, closed := pass(t, m, "exec", "acme")
			if closed != nil {
				t.Fatalf("closed without Redis: %v", closed)
			}
			<-p.onHeld
			p.pass()
			p.deliver(t)
			eventually(t, "the probe is on record", func() bool {
				states, err := m.Gate().States(context.Background())
				return err == nil && len(states) == 1 && states[0].Status == lease.GateProbing
			})
			m.Gate().Report(context.Background(), "exec", mine, "", 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startReal(t)
			p := startProxy(t, s.addr)
			cfg := gateConfig(s, nil)
			direct := open(t, cfg)
			cfg.CallTimeout, cfg.URL, cfg.Owner = 300*time.Millisecond, p.url(), "cut.1"
			m := open(t, cfg)
			enter(t, m, "exec", "acme") // warms the script, and makes the operation known
			enter(t, direct, "exec", "acme")
			direct.Gate().Report(context.Background(), "exec", "", "rate_limited", time.Millisecond)
			run(t, m)
			lose(t, m, p)
			eventually(t, "the gate is open, or tells the next caller to probe", func() bool { return enter(t, direct, "exec", "other") == nil })
		})
	}
}

// Calls that began before an outage end while a probe is out: they neither close the gate for longer nor stand in for the
// probe's own answer.
func TestOnlyTheProbesOwnAnswerCounts(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		c := &clock{}
		m := open(t, gateConfig(s, c))
		for range 7 { // all begin before any ends
			if got := enter(t, m, "get", "acme"); got != nil {
				t.Fatal(got)
			}
		}
		for range 5 {
			m.Gate().Report(ctx, "get", "", "unavailable", 0)
		}
		s.pass(t, c, 1100*time.Millisecond)
		p := probe(t, m, "get", "acme")
		for _, class := range []string{"timeout", ""} {
			m.Gate().Report(ctx, "get", "", class, 0)
			if enter(t, m, "get", "acme") == nil {
				t.Fatalf("an old call that ended as %q decided for the probe", class)
			}
		}
		m.Gate().Report(ctx, "get", p, "", 0)
		if got := enter(t, m, "get", "acme"); got != nil {
			t.Fatalf("after a good probe: %v", got)
		}
	})
}

func TestAFewFailuresAmongManySuccessesCloseNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		m := open(t, gateConfig(s, nil))
		for i := range 60 {
			if got := enter(t, m, "exec", "acme"); got != nil {
				t.Fatalf("call %d: %v", i, got)
			}
			class := ""
			if i%3 == 0 {
				class = "timeout"
			}
			m.Gate().Report(ctx, "exec", "", class, 0)
		}
		for _, class := range []string{"concurrent_limit", "canceled", "not_found", "conflict", "invalid", "unauthorized"} {
			for range 10 {
				m.Gate().Report(ctx, "exec", "", class, 0)
			}
			if got := enter(t, m, "exec", "acme"); got != nil {
				t.Errorf("%s closed the gate: %v", class, got)
			}
		}
	})
}

func TestWithoutRedisTheGateDoesNotHoldCallsUp(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	m := open(t, gateConfig(s, nil))
	enter(t, m, "exec", "acme")
	s.kill()
	for i := range 3 {
		if got := enter(t, m, "exec", "acme"); got != nil {
			t.Errorf("call %d: %v", i, got)
		}
		m.Gate().Report(context.Background(), "exec", "", "timeout", 0)
	}
}

func TestOneLeaderAtATimeAndTheNextTakesOver(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		cfg.TTL, cfg.CallTimeout = 1200*time.Millisecond, 290*time.Millisecond
		type term struct {
			who string
			ctx context.Context
		}
		led := make(chan term)
		lead := func(who string) (*lease.Manager, context.CancelFunc, chan error) {
			cfg.Owner = who
			m := open(t, cfg)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() {
				done <- m.Lead(ctx, "sweep", func(ctx context.Context) error {
					select {
					case led <- term{who, ctx}:
					case <-ctx.Done():
					}
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
			t.Cleanup(func() { cancel(); <-done; done <- nil })
			return m, cancel, done
		}
		_, stopA, doneA := lead("a.1")
		first := <-led
		if first.who != "a.1" {
			t.Fatalf("%s leads", first.who)
		}
		b, _, _ := lead("b.1")
		select {
		case second := <-led:
			t.Fatalf("%s leads beside a", second.who)
		case <-time.After(1300 * time.Millisecond): // more than a ttl
		}
		stopA()
		if err := <-doneA; !errors.Is(err, context.Canceled) {
			t.Errorf("lead returned %v", err)
		}
		doneA <- nil
		second := <-led
		if second.who != "b.1" {
			t.Fatalf("%s leads", second.who)
		}
		// No operator takes a leadership away: the leader would go on beside the next one.
		records, err := b.List(context.Background(), lease.Filter{Kind: lease.KindLeader})
		if err != nil || len(records) != 1 || records[0].Job != "sweep" {
			t.Fatalf("%+v %v", records, err)
		}
		if err := b.Revoke(context.Background(), records[0].ID, "test", "ops", true); !errors.Is(err, lease.ErrNotRevocable) {
			t.Errorf("revoked: %v", err)
		}
		if second.ctx.Err() != nil {
			t.Errorf("it ended: %v", context.Cause(second.ctx))
		}
	})
}

func TestALeaderThatRedisDoesNotConfirmStopsBeforeItsTermIsOver(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	cfg := s.config()
	cfg.TTL, cfg.CallTimeout = 1600*time.Millisecond, 300*time.Millisecond
	m := open(t, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leading, stopped, done := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() {
		done <- m.Lead(ctx, "sweep", func(ctx context.Context) error {
			close(leading)
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			cancel()
			return nil
		})
	}()
	<-leading
	s.kill()
	var lost *lease.Lost
	if err := <-stopped; !errors.As(err, &lost) || lost.Reason != lease.Expired {
		t.Errorf("stopped by %v", err)
	}
	<-done
}

func TestABudgetCountsEachRunOnceInASlidingWindow(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		cfg := s.config()
		cfg.Budget = 3
		m := open(t, cfg)
		for i := range 3 {
			for range 2 {
				if err := m.Charge(ctx, "acme", "ann", fmt.Sprintf("j%d.0", i)); err != nil {
					t.Fatalf("run %d: %v", i, err)
				}
			}
			s.pass(t, nil, time.Hour)
		}
		var over *lease.OverBudget
		if err := m.Charge(ctx, "acme", "ann", "j3.0"); !errors.As(err, &over) || over.RetryAfter < 20*time.Hour || over.RetryAfter > 21*time.Hour {
			t.Fatalf("the fourth: %v", err)
		}
		if err := m.Charge(ctx, "acme", "ann", "j1.0"); err != nil {
			t.Errorf("a run charged before: %v", err)
		}
		if err := m.Charge(ctx, "acme", "bob", "j3.0"); err != nil {
			t.Errorf("another user: %v", err)
		}
		s.pass(t, nil, 21*time.Hour+time.Minute)
		if err := m.Charge(ctx, "acme", "ann", "j3.0"); err != nil {
			t.Errorf("after the oldest left the window: %v", err)
		}
		off := open(t, s.config())
		for i := range 50 {
			if err := off.Charge(ctx, "acme", "ann", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	})
}
