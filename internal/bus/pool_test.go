package bus_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

func execBody(job string) []byte { return fmt.Appendf(nil, `{"v":1,"job_id":%q}`, job) }

func publish(t *testing.T, b *bus.Bus, job string) uint64 {
	t.Helper()
	seq, err := b.Publish(within(t), bus.KindExec, "ten", nil, execBody(job))
	if err != nil {
		t.Fatalf("publish %s: %v", job, err)
	}
	return seq
}

// startPool runs a pool until the test ends, or until the returned function is called, which reports Run's error.
func startPool(t *testing.T, b *bus.Bus, cfg bus.PoolConfig, handler bus.Handler) (*bus.Pool, func() error) {
	t.Helper()
	if cfg.PullWait == 0 {
		cfg.PullWait = 200 * time.Millisecond
	}
	p, err := bus.NewPool(b, cfg, handler)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		p.Drain()
		select {
		case err := <-done:
			cancel()
			return err
		case <-time.After(20 * time.Second):
			cancel()
			return errors.Join(errors.New("the pool did not drain"), <-done)
		}
	})
	t.Cleanup(func() {
		cancel()
		if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the pool ended with %v", err)
		}
	})
	return p, stop
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-within(t).Done():
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx := within(t); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

func queued(t *testing.T, r *rig, stream string) uint64 {
	t.Helper()
	s, err := r.js.Stream(within(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func TestADeliveryKnowsItsTenantIdentityAndKey(t *testing.T) {
	t.Parallel()
	r := setup(t)
	got := make(chan *bus.Delivery, 1)
	startPool(t, r.bus, bus.PoolConfig{}, func(ctx context.Context, d *bus.Delivery) {
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		got <- d
	})
	before := time.Now().Add(-time.Minute)
	seq, err := r.bus.Publish(within(t), bus.KindExec, "ten", bus.Header{bus.HeaderGrant: {"g"}, bus.HeaderRun: {"5"}, bus.HeaderJob: {"evil"}, bus.HeaderQueued: {"1"}}, execBody("job1"))
	if err != nil {
		t.Fatal(err)
	}
	d := receive(t, got)
	key, ok := d.Key()
	// What a tenant may write into headers says nothing about the run.
	if !ok || key != (bus.RunKey{Tenant: "ten", Job: "job1"}) || d.Queued != seq || d.Run != 0 || d.Replay || d.Source != bus.SourceQueue {
		t.Errorf("delivery is %+v, key %v", d, key)
	}
	if d.QueuedAt.Before(before) || d.Delivered != 1 || d.Header.Get(bus.HeaderGrant) != "g" {
		t.Errorf("delivery is %+v", d)
	}
	if _, err := r.bus.Publish(within(t), bus.KindTerminal, "", nil, []byte(`{"v":1,"open_id":"o1"}`)); err != nil {
		t.Fatal(err)
	}
	if d := receive(t, got); d.Kind != bus.KindTerminal || d.Tenant != plan.NoTenant {
		t.Errorf("delivery is %+v", d)
	}
	eventually(t, "the queue is empty", func() bool { return queued(t, r, bus.StreamSandbox) == 0 })
}

func TestCase49ACommandLongerThanAckWaitIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *bus.Config) { c.AckWait = 600 * time.Millisecond })
	var deliveries atomic.Int32
	release, begun := make(chan struct{}), make(chan struct{}, 8)
	handler := func(ctx context.Context, d *bus.Delivery) {
		deliveries.Add(1)
		begun <- struct{}{}
		<-release
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	startPool(t, r.bus, bus.PoolConfig{}, handler)
	startPool(t, connect(t, r.server, func(c *bus.Config) { c.AckWait = 600 * time.Millisecond }), bus.PoolConfig{}, handler)
	publish(t, r.bus, "long")
	receive(t, begun)
	// Three times AckWait as the broker counts it: the consumer's own clock is what must not run out.
	timer := time.NewTimer(1800 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
	close(release)
	eventually(t, "the queue is empty", func() bool { return queued(t, r, bus.StreamSandbox) == 0 })
	if n := deliveries.Load(); n != 1 {
		t.Errorf("delivered %d times, want once", n)
	}
}

func TestCase49NothingIsPulledWithoutAFreeSlot(t *testing.T) {
	t.Parallel()
	r := setup(t)
	release, begun := make(chan struct{}), make(chan string, 16)
	p, _ := startPool(t, r.bus, bus.PoolConfig{Slots: 2, Reserve: 1, Kinds: []bus.Kind{bus.KindExec}}, func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		begun <- key.Job
		<-release
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	for i := range 2 {
		publish(t, r.bus, fmt.Sprintf("busy%d", i))
	}
	receive(t, begun)
	receive(t, begun)
	for i := range 5 {
		publish(t, r.bus, fmt.Sprintf("waiting%d", i))
	}
	// Another worker gets all five although the first one holds unfinished work: it holds nothing beyond its slots, and what
	// its reserve looked at went back at once.
	other := make(chan string, 16)
	startPool(t, connect(t, r.server), bus.PoolConfig{Slots: 8}, func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		other <- key.Job
	})
	for range 5 {
		receive(t, other)
	}
	if n := p.Running(); n != 2 {
		t.Errorf("%d requests are running in two slots", n)
	}
	close(release)
	eventually(t, "the queue is empty", func() bool { return queued(t, r, bus.StreamSandbox) == 0 })
}

func TestTheReserveTakesOverWhatAnotherWorkerLeft(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *bus.Config) { c.AckWait = 400 * time.Millisecond })
	ctx := within(t)
	seq := publish(t, r.bus, "left")
	// A worker that took the request, began the run and died.
	cons, err := r.js.Consumer(ctx, bus.StreamSandbox, string(bus.KindExec))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cons.Next(jetstream.FetchMaxWait(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	c, err := r.bus.Claim(ctx, key("left"), "dead.1", claimOf(seq))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	release, begun, rescued := make(chan struct{}), make(chan struct{}, 4), make(chan *bus.Delivery, 4)
	startPool(t, r.bus, bus.PoolConfig{Slots: 1, Kinds: []bus.Kind{bus.KindExec}}, func(ctx context.Context, d *bus.Delivery) {
		if key, _ := d.Key(); key.Job == "left" {
			rescued <- d
		} else {
			begun <- struct{}{}
			<-release
		}
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	publish(t, r.bus, "busy")
	receive(t, begun) // the only slot is taken, or the left run came first; either way both get done
	publish(t, r.bus, "fresh")
	if d := receive(t, rescued); d.Queued != seq || d.Delivered < 2 {
		t.Errorf("rescued %+v", d)
	}
	close(release)
	eventually(t, "the queue is empty", func() bool { return queued(t, r, bus.StreamSandbox) == 0 })
}

func TestCase56DrainGivesBackWhatWaitsAndLetsRunningWorkFinish(t *testing.T) {
	t.Parallel()
	r := setup(t)
	release, begun := make(chan struct{}), make(chan string, 16)
	_, stop := startPool(t, r.bus, bus.PoolConfig{Slots: 1, Kinds: []bus.Kind{bus.KindExec}}, func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		begun <- key.Job
		select {
		case <-release:
		case <-ctx.Done():
			t.Error("draining ended the context of running work")
		}
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	publish(t, r.bus, "running")
	receive(t, begun)
	for i := range 5 {
		publish(t, r.bus, fmt.Sprintf("buffered%d", i))
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	peer := make(chan string, 16)
	startPool(t, connect(t, r.server), bus.PoolConfig{}, func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		peer <- key.Job
	})
	for range 5 {
		if job := receive(t, peer); job == "running" {
			t.Error("the peer got what still runs")
		}
	}
	close(release)
	if err := receive(t, stopped); err != nil {
		t.Errorf("drain: %v", err)
	}
	eventually(t, "the queue is empty", func() bool { return queued(t, r, bus.StreamSandbox) == 0 })
}

func TestRunEndsTheHandlersContextWhenItsOwnEnds(t *testing.T) {
	t.Parallel()
	r := setup(t)
	begun, cause := make(chan struct{}, 1), errors.New("grace is over")
	ended := make(chan error, 1)
	p, err := bus.NewPool(r.bus, bus.PoolConfig{PullWait: 100 * time.Millisecond}, func(ctx context.Context, d *bus.Delivery) {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	publish(t, r.bus, "cut")
	receive(t, begun)
	cancel(cause)
	if err := receive(t, ended); !errors.Is(err, cause) {
		t.Errorf("the handler saw %v", err)
	}
	if err := receive(t, done); !errors.Is(err, cause) {
		t.Errorf("run ended with %v", err)
	}
}

func TestCase54PullingResumesAfterTheConsumerWasDeleted(t *testing.T) {
	t.Parallel()
	r := setup(t)
	got := make(chan string, 4)
	startPool(t, r.bus, bus.PoolConfig{Kinds: []bus.Kind{bus.KindExec}}, func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		got <- key.Job
	})
	publish(t, r.bus, "before")
	receive(t, got)
	for stream, name := range map[string]string{bus.StreamSandbox: "exec", bus.StreamRetry: "exec-due"} {
		if err := r.js.DeleteConsumer(within(t), stream, name); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, r.bus, "after")
	if job := receive(t, got); job != "after" {
		t.Errorf("got %s", job)
	}
	if err := r.bus.Park(within(t), key("parked"), bus.KindExec, time.Now(), nil, execBody("parked")); err != nil {
		t.Fatal(err)
	}
	if job := receive(t, got); job != "parked" {
		t.Errorf("got %s", job)
	}
}

func TestCase54PullingResumesAfterTheBrokerWasRestarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := bus.StartServer(t.Context(), bus.ServerConfig{Dir: dir, User: "u", Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(t, server)
	b := connect(t, server)
	if err := b.Setup(within(t)); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 4)
	p, _ := startPool(t, b, bus.PoolConfig{Kinds: []bus.Kind{bus.KindExec}}, func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		got <- key.Job
	})
	publish(t, b, "before")
	receive(t, got)
	if err := p.Healthy(); err != nil {
		t.Errorf("healthy before: %v", err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pool is unhealthy while the broker is away", func() bool { return p.Healthy() != nil })
	startServer(t, bus.ServerConfig{Dir: dir, User: "u", Password: "p", Port: port})
	eventually(t, "the pool is healthy again", func() bool { return p.Healthy() == nil })
	eventually(t, "the reconnect is noted", func() bool { return !b.ReconnectedAt().IsZero() })
	publish(t, b, "after")
	if job := receive(t, got); job != "after" {
		t.Errorf("got %s", job)
	}
}

func TestAPausedKindIsNotPulledAndOthersAre(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var paused atomic.Bool
	paused.Store(true)
	got := make(chan bus.Kind, 4)
	startPool(t, r.bus, bus.PoolConfig{Paused: func(k bus.Kind) bool { return k == bus.KindExec && paused.Load() }}, func(ctx context.Context, d *bus.Delivery) {
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		got <- d.Kind
	})
	publish(t, r.bus, "held")
	if _, err := r.bus.Publish(within(t), bus.KindEnd, "ten", nil, []byte(`{"v":1,"job_id":"e"}`)); err != nil {
		t.Fatal(err)
	}
	if k := receive(t, got); k != bus.KindEnd {
		t.Fatalf("got %s while exec is paused", k)
	}
	paused.Store(false)
	if k := receive(t, got); k != bus.KindExec {
		t.Errorf("got %s", k)
	}
}

func TestAHandlersPanicCostsItsRequestOnlyATry(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *bus.Config) { c.AckWait = 300 * time.Millisecond })
	got := make(chan int, 4)
	startPool(t, r.bus, bus.PoolConfig{Kinds: []bus.Kind{bus.KindExec}}, func(ctx context.Context, d *bus.Delivery) {
		if d.Delivered == 1 {
			panic("a bug")
		}
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		got <- d.Delivered
	})
	publish(t, r.bus, "poison")
	if n := receive(t, got); n < 2 {
		t.Errorf("delivery %d", n)
	}
}

func TestAFullBacklogIsRefusedForThatTenantOnly(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *bus.Config) { c.TenantBacklog = 3 })
	for i := range 3 {
		publish(t, r.bus, fmt.Sprintf("j%d", i))
	}
	_, err := r.bus.Publish(within(t), bus.KindExec, "ten", nil, execBody("j4"))
	var refused *bus.Refused
	if !errors.As(err, &refused) || refused.Reason != plan.ReasonRateLimited || refused.Tenant != "ten" {
		t.Fatalf("got %v, want a refusal", err)
	}
	if _, err := r.bus.Publish(within(t), bus.KindExec, "other", nil, execBody("j4")); err != nil {
		t.Errorf("another tenant was refused: %v", err)
	}
	if _, err := r.bus.Publish(within(t), bus.KindExec, "other", nil, make([]byte, bus.MaxRequestBytes+1)); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("a large body: got %v, want ErrTooLarge", err)
	}
	for _, tenant := range []string{"a.b", "*", ">", "a b", "a\r\nPUB x"} {
		if _, err := r.bus.Publish(within(t), bus.KindExec, tenant, nil, execBody("j")); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("tenant %q: got %v, want ErrInvalid (case 84)", tenant, err)
		}
	}
}

func TestPoolConfigReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	r := setup(t)
	_, err := bus.NewPool(r.bus, bus.PoolConfig{Slots: -1, EndSlots: 9999, Reserve: 1, TerminalSlots: 1, Kinds: []bus.Kind{"odd"}, PullWait: time.Hour}, nil)
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 4 {
		t.Fatalf("got %v, want four problems", err)
	}
}
