package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

func TestParkedRunsKeepTheirIdentityAndComeDue(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	got := make(chan *bus.Delivery, 4)
	startPool(t, r.bus, bus.PoolConfig{}, func(ctx context.Context, d *bus.Delivery) {
		if d.Source == bus.SourceQueue {
			key, _ := d.Key()
			if err := r.bus.ParkDelivery(ctx, d, key, time.Now().Add(300*time.Millisecond)); err != nil {
				t.Error(err)
			}
		}
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		got <- d
	})
	if _, err := r.bus.Publish(ctx, bus.KindExec, "ten", bus.Header{bus.HeaderGrant: {"g"}}, execBody("p1")); err != nil {
		t.Fatal(err)
	}
	first := receive(t, got)
	second := receive(t, got)
	if second.Source != bus.SourceRetry || second.Queued != first.Queued || !second.QueuedAt.Equal(first.QueuedAt) ||
		second.Header.Get(bus.HeaderGrant) != "g" || string(second.Data) != string(first.Data) {
		t.Errorf("parked as %+v, came back as %+v", first, second)
	}
	if key, ok := second.Key(); !ok || key != (bus.RunKey{Tenant: "ten", Job: "p1"}) {
		t.Errorf("key is %v", key)
	}
	eventually(t, "nothing is left", func() bool { return queued(t, r, bus.StreamSandbox)+queued(t, r, bus.StreamRetry) == 0 })
}

func TestAParkedRunCanBeCountedShownWokenReplacedAndTakenAway(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	far := time.Now().Add(time.Hour).UTC()
	mine := bus.RunKey{Tenant: "ten", Job: "p", Run: 2}
	for _, k := range []bus.RunKey{mine, mine, {Tenant: "ten", Job: "q"}, {Tenant: "other", Job: "p", Run: 2}} {
		if err := r.bus.Park(ctx, k, bus.KindTerminal, far, bus.Header{bus.HeaderQueued: {"9"}, "Nats-Scheduler": {"x"}}, []byte("body")); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := r.bus.Parked(ctx, "ten"); err != nil || n != 2 {
		t.Errorf("%d are parked, %v; want 2: one run is parked once, and other tenants do not count", n, err)
	}
	p, ok, err := r.bus.ParkedShow(ctx, mine)
	if err != nil || !ok || p.Kind != bus.KindTerminal || !p.At.Equal(far) || string(p.Data) != "body" || p.Header.Get(bus.HeaderQueued) != "9" {
		t.Errorf("parked as %+v %v %v", p, ok, err)
	}
	if ok, err := r.bus.Unpark(ctx, bus.RunKey{Tenant: "ten", Job: "q"}); !ok || err != nil {
		t.Errorf("unpark: %v %v", ok, err)
	}
	if ok, err := r.bus.Unpark(ctx, bus.RunKey{Tenant: "ten", Job: "q"}); ok || err != nil {
		t.Errorf("unpark again: %v %v", ok, err)
	}
	if ok, err := r.bus.Wake(ctx, bus.RunKey{Tenant: "ten", Job: "q"}); ok || err != nil {
		t.Errorf("wake what is not parked: %v %v", ok, err)
	}
	got := make(chan *bus.Delivery, 4)
	startPool(t, r.bus, bus.PoolConfig{}, func(ctx context.Context, d *bus.Delivery) {
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		got <- d
	})
	if ok, err := r.bus.Wake(ctx, mine); !ok || err != nil {
		t.Fatalf("wake: %v %v", ok, err)
	}
	if d := receive(t, got); d.Run != 2 || d.Job != "p" || d.Kind != bus.KindTerminal || d.Queued != 9 {
		t.Errorf("woken as %+v", d)
	}
	if n, err := r.bus.Parked(ctx, "ten"); err != nil || n != 0 {
		t.Errorf("%d are parked after the wake, %v", n, err)
	}
}

func TestCase75AReplayIsDeliveredHoweverSoonAfterTheOriginal(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	got := make(chan *bus.Delivery, 8)
	startPool(t, r.bus, bus.PoolConfig{}, func(ctx context.Context, d *bus.Delivery) {
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		got <- d
	})
	// The same id twice is two messages: the journal, not the broker, is what makes it one run.
	a, b := publish(t, r.bus, "same"), publish(t, r.bus, "same")
	if receive(t, got); a == b {
		t.Error("the broker swallowed the second request")
	}
	receive(t, got)
	for n := 1; n <= 2; n++ {
		h := bus.Header{bus.HeaderReplayOf: {"same"}}
		if err := r.bus.Park(ctx, bus.RunKey{Tenant: "ten", Job: "same", Run: n}, bus.KindExec, time.Now(), h, nil); err != nil {
			t.Fatal(err)
		}
		if d := receive(t, got); !d.Replay || d.Run != n || d.Job != "same" || len(d.Data) != 0 {
			t.Errorf("replay %d came as %+v", n, d)
		}
	}
}

func TestBacklogCountsByTenantAndStateWithTheOldest(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	for i := range 3 {
		publish(t, r.bus, fmt.Sprintf("j%d", i))
	}
	for _, job := range []string{"a", "b"} {
		if err := r.bus.Park(ctx, bus.RunKey{Tenant: "t2", Job: job}, bus.KindExec, time.Now().Add(time.Hour), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	depths, err := r.bus.Backlog(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(depths) != 2 || depths[0].Count != 3 || depths[0].Tenant != "ten" || depths[0].Kind != bus.KindExec || depths[0].State != bus.QueueFresh ||
		depths[1].Count != 2 || depths[1].Tenant != "t2" || depths[1].State != bus.QueueParked {
		t.Fatalf("backlog is %+v", depths)
	}
	for _, d := range depths {
		if d.Oldest.IsZero() {
			t.Errorf("%+v has no age", d)
		}
	}
}

func TestOrphansAreRunsThatNoMessageCarries(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	claim := func(job string, seq uint64) *bus.Chain {
		c, err := r.bus.Claim(ctx, key(job), "w.1", bus.Claim{Record: bus.Record{Queued: seq, Kind: bus.KindExec}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	claim("carried", publish(t, r.bus, "carried"))
	ended := claim("ended", 900)
	if err := ended.Result(ctx, bus.ResultBody{}); err != nil {
		t.Fatal(err)
	}
	parked := claim("parked", 901)
	if err := errors.Join(r.bus.Park(ctx, key("parked"), bus.KindExec, time.Now().Add(time.Hour), nil, nil),
		parked.Detach(ctx, bus.WaitLimit, time.Now(), "")); err != nil {
		t.Fatal(err)
	}
	waits := claim("waits", 902)
	if err := waits.Detach(ctx, bus.WaitLimit, time.Now().Add(time.Hour), ""); err != nil {
		t.Fatal(err)
	}
	lost := claim("orphan", 903)
	if err := errors.Join(lost.Planned(ctx, bus.PlannedBody{}), lost.Started(ctx, bus.StartedBody{})); err != nil {
		t.Fatal(err)
	}
	if young, err := r.bus.Orphans(ctx, time.Hour, 10); err != nil || len(young) != 0 {
		t.Errorf("young runs: %v %v", young, err)
	}
	orphans, err := r.bus.Orphans(ctx, 0, 10)
	if err != nil || len(orphans) != 1 || orphans[0].Key != key("orphan") || orphans[0].Queued != 903 || orphans[0].Phase != plan.PhaseStarted {
		t.Fatalf("orphans are %+v, %v", orphans, err)
	}
	// Who has parked it meanwhile has its body, which an empty one must not replace.
	if err := r.bus.Park(ctx, orphans[0].Key, bus.KindExec, time.Now().Add(time.Hour), nil, []byte("body")); err != nil {
		t.Fatal(err)
	}
	if queued, err := r.bus.Requeue(ctx, orphans[0]); err != nil || queued {
		t.Errorf("a parked run was queued again: %t, %v", queued, err)
	}
	if p, ok, err := r.bus.ParkedShow(ctx, orphans[0].Key); err != nil || !ok || string(p.Data) != "body" {
		t.Errorf("parked is %+v, %t, %v", p, ok, err)
	}
	if _, err := r.bus.Unpark(ctx, orphans[0].Key); err != nil {
		t.Fatal(err)
	}
	if queued, err := r.bus.Requeue(ctx, orphans[0]); err != nil || !queued {
		t.Fatal(queued, err)
	}
	if again, err := r.bus.Orphans(ctx, 0, 10); err != nil || len(again) != 0 {
		t.Errorf("requeued and still an orphan: %+v %v", again, err)
	}
	got := make(chan *bus.Delivery, 4)
	startPool(t, r.bus, bus.PoolConfig{}, func(ctx context.Context, d *bus.Delivery) {
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		if d.Source == bus.SourceRetry {
			got <- d
		}
	})
	if d := receive(t, got); d.Job != "orphan" || d.Queued != 903 {
		t.Errorf("requeued as %+v", d)
	}
}

func TestCase56WhatWasGivenBackLeavesBeforeTheConnectionCloses(t *testing.T) {
	t.Parallel()
	// AckWait is far beyond the test: only the giving back itself can bring the request to a peer.
	long := func(c *bus.Config) { c.AckWait = 10 * time.Minute }
	r := setup(t, long)
	worker := connect(t, r.server, long)
	begun, leave := make(chan struct{}, 1), make(chan struct{})
	_, stop := startPool(t, worker, bus.PoolConfig{}, func(_ context.Context, d *bus.Delivery) {
		select {
		case begun <- struct{}{}:
		default: // it came back before the draining began
		}
		<-leave
		if err := d.Nak(0); err != nil {
			t.Error(err)
		}
	})
	publish(t, r.bus, "handed")
	receive(t, begun)
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	close(leave)
	if err := receive(t, stopped); err != nil {
		t.Fatal(err)
	}
	worker.Close()
	got := make(chan int, 1)
	startPool(t, r.bus, bus.PoolConfig{}, func(ctx context.Context, d *bus.Delivery) {
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		got <- d.Delivered
	})
	if n := receive(t, got); n < 2 {
		t.Errorf("delivery %d", n)
	}
}
