package lease_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wakebus/wakebus/internal/lease"
)

// case 43, case 48
func TestCase43APausedServerCostsNobodyARunAndAdmitsNothing(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	cfg := s.config()
	cfg.TTL, cfg.CallTimeout = 2400*time.Millisecond, 300*time.Millisecond
	m := open(t, cfg)
	run(t, m)
	l := must(t, m, ask("acme.a.0.1", 1))
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err := m.Acquire(context.Background(), ask("acme.b.0.1", 9))
	var down *lease.Unavailable
	if !errors.As(err, &down) || down.Class != lease.ClassTimeout || !errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("acquire of a stopped server: %v", err)
	}
	var denied *lease.Denied
	if errors.As(err, &denied) {
		t.Fatal("an outage must not look like a denial")
	}
	eventually(t, "the lease counts as unconfirmed", func() bool { return l.State() == lease.Unconfirmed })
	if m.Admit() {
		t.Error("admits while a lease is unconfirmed")
	}
	if _, err := m.Acquire(context.Background(), ask("acme.b.0.1", 9)); !errors.Is(err, lease.ErrUnconfirmed) {
		t.Errorf("acquire while unconfirmed: %v", err)
	}
	if l.Context().Err() != nil {
		t.Fatalf("the outage ended the run: %v", context.Cause(l.Context()))
	}
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease is held again", func() bool { return l.State() == lease.Held })
	eventually(t, "new work is admitted", m.Admit)
	if n := inUse(t, m, ask("", 1).Scopes[0]); n < 1 {
		t.Errorf("%d in use after reattaching", n)
	}
	if l.Context().Err() != nil {
		t.Error("the run was ended")
	}
}

// case 43: what vanished with Redis is put back, over by one if it is full.
func TestCase43ALeaseThatVanishedIsReattachedOverTheLimit(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m := open(t, s.config())
		old := must(t, m, ask("acme.a.0.1", 1))
		fence := old.Fence()
		if err := s.raw.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		must(t, m, ask("acme.b.0.1", 1))
		if err := old.RenewNow(); err != nil {
			t.Fatal(err)
		}
		if old.Fence() <= fence {
			t.Errorf("fence %d after %d", old.Fence(), fence)
		}
		if n := inUse(t, m, ask("", 1).Scopes[0]); n != 2 {
			t.Errorf("%d in use, want 2: over by one and counted", n)
		}
		if _, err := m.Acquire(context.Background(), ask("acme.c.0.1", 2)); err == nil {
			t.Error("the reattached lease does not count")
		}
	})
}

// case 46: the holder notices at its next renewal that a key is gone.
func TestCase46AnEvictedKeyIsHealedAtTheNextRenewal(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		m := open(t, cfg)
		for _, key := range []string{":z:exec:u:acme:ann", ":r:acme.a.0.1", ":s"} {
			l := must(t, m, ask("acme.a.0.1", 1))
			if err := s.raw.Del(context.Background(), cfg.Prefix+key).Err(); err != nil {
				t.Fatal(err)
			}
			if err := l.RenewNow(); err != nil {
				t.Fatalf("%s gone: %v", key, err)
			}
			if n := inUse(t, m, ask("", 1).Scopes[0]); n != 1 {
				t.Errorf("%s gone: %d in use", key, n)
			}
			if ok, err := l.Release(context.Background()); !ok || err != nil {
				t.Errorf("%s gone: release %v %v", key, ok, err)
			}
			if n := inUse(t, m, ask("", 1).Scopes[0]); n != 0 {
				t.Errorf("%s gone: %d left", key, n)
			}
		}
	})
}

// case 46
func TestCase46ClocksOfWorkersDoNotMatter(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		var ms []*lease.Manager
		for i, skew := range []time.Duration{-time.Minute, 0, time.Minute} {
			cfg.Owner = []string{"slow.1", "right.1", "fast.1"}[i]
			cfg.Now = func() time.Time { return time.Now().Add(skew) }
			ms = append(ms, open(t, cfg))
		}
		held := 0
		for i := range 9 {
			if _, err := ms[i%3].Acquire(context.Background(), ask("acme."+string(rune('a'+i))+".0.1", 2)); err == nil {
				held++
			}
		}
		if held != 2 {
			t.Errorf("%d granted of a limit of 2", held)
		}
	})
}

func TestAnEmptyRestartIsQuarantinedUntilHoldersAreBack(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	cfg := s.config()
	cfg.Quarantine = time.Minute
	m := open(t, cfg)
	if _, err := m.Acquire(context.Background(), ask("acme.x.0.1", 3)); !errors.Is(err, lease.ErrWarmingUp) {
		t.Fatalf("a new server: %v", err)
	}
	s.pass(t, nil, 2*time.Minute)
	leases := []*lease.Lease{must(t, m, ask("acme.a.0.1", 2)), must(t, m, ask("acme.b.0.1", 2))}
	s.restart(t)
	eventually(t, "the new server is reached", func() bool { return m.Ready(context.Background()) == nil })
	if _, err := m.Acquire(context.Background(), ask("acme.c.0.1", 2)); !errors.Is(err, lease.ErrWarmingUp) {
		t.Fatalf("right after the restart: %v", err)
	}
	for _, l := range leases {
		if err := l.RenewNow(); err != nil {
			t.Fatal(err)
		}
	}
	r := ask("acme.a.0.1", 2)
	r.Owner, r.Force = "taker.1", true
	must(t, m, r) // a take-over passes
	s.pass(t, nil, 61*time.Second)
	for _, l := range leases[1:] {
		if err := l.RenewNow(); err != nil {
			t.Fatal(err)
		}
	}
	if n := inUse(t, m, ask("", 2).Scopes[0]); n < 1 {
		t.Errorf("%d in use", n)
	}
}

// case 48: a partition, and no grant to two at once that both think confirmed.
func TestAPartitionedHolderIsUnconfirmedBeforeItsSlotIsGivenAway(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	p := startProxy(t, s.addr)
	cfg := s.config()
	cfg.TTL, cfg.CallTimeout = 2400*time.Millisecond, 590*time.Millisecond
	other := open(t, cfg)
	cfg.CallTimeout, cfg.URL, cfg.Owner = 300*time.Millisecond, p.url(), "cut.1"
	m := open(t, cfg)
	run(t, m)
	l := must(t, m, ask("acme.a.0.1", 1))
	p.partition()
	var second *lease.Lease
	eventually(t, "the slot is given away", func() bool {
		got, err := other.Acquire(context.Background(), ask("acme.b.0.1", 1))
		if err == nil {
			second = got
		}
		return err == nil
	})
	if l.State() != lease.Unconfirmed {
		t.Errorf("the cut-off holder is %s while its slot has another holder", l.State())
	}
	p.heal()
	eventually(t, "the cut-off holder is back", func() bool { return l.State() == lease.Held })
	if l.Context().Err() != nil || second.Context().Err() != nil {
		t.Error("the partition ended a run")
	}
	if n := inUse(t, other, ask("", 1).Scopes[0]); n != 2 {
		t.Errorf("%d in use, want both counted", n)
	}
}

func TestAnAcquireThatArrivesLateIsTakenBack(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	p := startProxy(t, s.addr)
	cfg := s.config()
	direct := open(t, cfg)
	cfg.CallTimeout = 300 * time.Millisecond
	// Warm the scripts: an unknown EVALSHA would be refused and prove nothing.
	warm := must(t, direct, ask("acme.w.0.1", 1))
	if _, err := warm.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	cfg.URL, cfg.Owner = p.url(), "slow.1"
	m := open(t, cfg)
	p.holdFrom("acme.late.0.1")
	if _, err := m.Acquire(context.Background(), ask("acme.late.0.1", 1)); !errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	<-p.onHeld
	p.pass()
	if m.Pending() != 1 {
		t.Fatalf("%d give-backs wait, want 1", m.Pending())
	}
	eventually(t, "the give-back is through", func() bool { m.Settle(context.Background()); return m.Pending() == 0 })
	before := processed(t, s)
	p.deliver(t)
	eventually(t, "the late bytes are executed", func() bool { return processed(t, s) > before })
	if n := inUse(t, direct, ask("", 1).Scopes[0]); n != 0 {
		t.Fatalf("the late acquire holds %d", n)
	}
	must(t, direct, ask("acme.next.0.1", 1))
}

// processed counts the acquire scripts that ran: the late bytes are one more.
func processed(t testing.TB, s *server) int64 {
	t.Helper()
	stats, err := s.raw.InfoMap(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for name, line := range stats["Commandstats"] {
		if name == "cmdstat_evalsha" {
			for i := 6; i < len(line) && line[i] >= '0' && line[i] <= '9'; i++ {
				n = n*10 + int64(line[i]-'0')
			}
		}
	}
	return n
}

// case 44: no renewal that was on its way raises a released lease.
func TestCase44AHeartbeatThatArrivesAfterTheReleaseRaisesNothing(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	p := startProxy(t, s.addr)
	cfg := s.config()
	direct := open(t, cfg)
	cfg.CallTimeout, cfg.URL, cfg.Owner = 300*time.Millisecond, p.url(), "slow.1"
	m := open(t, cfg)
	l := must(t, m, ask("acme.a.0.1", 1))
	if err := l.RenewNow(); err != nil { // warms the script
		t.Fatal(err)
	}
	p.holdFrom("acme.a.0.1")
	if err := l.RenewNow(); !errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("renewal: %v", err)
	}
	<-p.onHeld
	p.pass()
	released := false
	eventually(t, "the release is through", func() bool {
		ok, err := l.Release(context.Background())
		released = released || ok
		if err != nil {
			m.Settle(context.Background())
		}
		return inUse(t, direct, ask("", 1).Scopes[0]) == 0
	})
	before := processed(t, s)
	p.deliver(t)
	eventually(t, "the late heartbeat is executed", func() bool { return processed(t, s) > before })
	if n := inUse(t, direct, ask("", 1).Scopes[0]); n != 0 {
		t.Errorf("the late heartbeat raised the lease: %d in use", n)
	}
}

func TestAReleaseThatFailsIsFinishedInTheBackground(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	p := startProxy(t, s.addr)
	cfg := s.config()
	direct := open(t, cfg)
	cfg.CallTimeout, cfg.URL, cfg.Owner = 300*time.Millisecond, p.url(), "cut.1"
	m := open(t, cfg)
	run(t, m)
	l := must(t, m, ask("acme.a.0.1", 1))
	p.partition()
	if ok, err := l.Release(context.Background()); ok || !errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("release: %v %v", ok, err)
	}
	p.heal()
	began := time.Now()
	eventually(t, "the slot is free", func() bool { return inUse(t, direct, ask("", 1).Scopes[0]) == 0 })
	if time.Since(began) > 11*time.Second {
		t.Error("freed by expiry, not by the background")
	}
}

func TestTroubleHasAClass(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		cfg := lease.Config{URL: "redis://127.0.0.1:1"}
		_, err := lease.Open(ctx, cfg)
		var down *lease.Unavailable
		if !errors.As(err, &down) || down.Class != lease.ClassTransport {
			t.Errorf("got %v", err)
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		t.Parallel()
		s := startReal(t, "--requirepass", "right")
		cfg := s.config()
		cfg.URL = "redis://:sentinel-secret@" + s.addr
		_, err := lease.Open(ctx, cfg)
		var bad *lease.Misconfigured
		if !errors.As(err, &bad) || bad.Class != lease.ClassUnauthorized {
			t.Fatalf("got %v", err)
		}
		if contains(err, "sentinel-secret") {
			t.Errorf("the password is in %q", err)
		}
	})
	t.Run("a broken URL does not show its password", func(t *testing.T) {
		t.Parallel()
		for _, u := range []string{"redis://:sentinel-secret@host:port", "http://:sentinel-secret@h:1", "redis://:sentinel-secret@h:1/x?addr=%zz",
			"redis+what://:sentinel-secret@h:1", "redis+sentinel://:sentinel-secret@h:1", "redis://:sentinel-secret@h:1/notadb"} {
			_, err := lease.Open(ctx, lease.Config{URL: u})
			var bad *lease.Misconfigured
			if !errors.As(err, &bad) || contains(err, "sentinel-secret") {
				t.Errorf("%s: %v", u[:8], err)
			}
		}
	})
	t.Run("a policy that evicts leases", func(t *testing.T) {
		t.Parallel()
		for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
			s := startReal(t, "--maxmemory", "100mb", "--maxmemory-policy", policy)
			_, err := lease.Open(ctx, s.config())
			var bad *lease.Misconfigured
			if !errors.As(err, &bad) || bad.Class != lease.ClassEviction || !contains(err, "CONFIG SET maxmemory-policy noeviction") {
				t.Errorf("%s: %v", policy, err)
			}
		}
	})
	t.Run("a replica", func(t *testing.T) {
		t.Parallel()
		s := startReal(t)
		m := open(t, s.config())
		l := must(t, m, ask("acme.a.0.1", 1))
		if err := s.raw.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil {
			t.Fatal(err)
		}
		_, err := m.Acquire(ctx, ask("acme.b.0.1", 2))
		var down *lease.Unavailable
		if !errors.As(err, &down) || down.Class != lease.ClassReadOnly || m.Admit() {
			t.Errorf("got %v, admit %v", err, m.Admit())
		}
		if err := s.raw.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		if err := l.RenewNow(); err != nil {
			t.Errorf("after the failover: %v", err)
		}
	})
	t.Run("out of memory refuses whole and releases still", func(t *testing.T) {
		t.Parallel()
		s := startReal(t)
		m := open(t, s.config())
		r := two("acme.a.0.1", 2, 3)
		l := must(t, m, r)
		if err := s.raw.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
		_, err := m.Acquire(ctx, two("acme.b.0.1", 2, 3))
		var down *lease.Unavailable
		if !errors.As(err, &down) || down.Class != lease.ClassFull {
			t.Errorf("got %v", err)
		}
		for i := range 2 {
			if n := inUse(t, m, r.Scopes[i]); n != 1 {
				t.Errorf("scope %d holds %d", i, n)
			}
		}
		if ok, err := l.Release(ctx); !ok || err != nil {
			t.Errorf("release: %v %v", ok, err)
		}
		if n := inUse(t, m, r.Scopes[1]); n != 0 {
			t.Errorf("%d left", n)
		}
	})
	t.Run("loading", func(t *testing.T) {
		t.Parallel()
		s := startMini(t)
		m := open(t, s.config())
		s.mini.SetError("LOADING Redis is loading the dataset in memory")
		_, err := m.Acquire(ctx, ask("acme.a.0.1", 1))
		s.mini.SetError("")
		var down *lease.Unavailable
		if !errors.As(err, &down) || down.Class != lease.ClassLoading {
			t.Errorf("got %v", err)
		}
		must(t, m, ask("acme.a.0.1", 1))
	})
	t.Run("the caller leaves", func(t *testing.T) {
		t.Parallel()
		m := open(t, startMini(t).config())
		gone, cancel := context.WithCancelCause(ctx)
		left := errors.New("left")
		cancel(left)
		_, err := m.Acquire(gone, ask("acme.a.0.1", 1))
		var denied *lease.Denied
		if !errors.Is(err, left) || errors.Is(err, lease.ErrUnavailable) || errors.As(err, &denied) {
			t.Errorf("got %v (case 48)", err)
		}
	})
}

func TestAfterAMassCrashOneCallPrunesABoundedPart(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	cfg := s.config()
	m := open(t, cfg)
	const dead = 100_000
	key := cfg.Prefix + ":z:exec:u:acme:ann"
	ctx := context.Background()
	for i := 0; i < dead; i += 1000 {
		batch := make([]redis.Z, 1000)
		for j := range batch {
			batch[j] = redis.Z{Score: float64(i + j + 1), Member: i + j}
		}
		if err := s.raw.ZAdd(ctx, key, batch...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	must(t, m, ask("acme.a.0.1", 1))
	took := time.Since(began)
	left, err := s.raw.ZCard(ctx, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	if left != dead-128+1 {
		t.Errorf("%d members left, want %d: one call prunes 128", left, dead-128+1)
	}
	t.Logf("the acquire after 100,000 expiries took %s", took)
}
