package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/bench"
	"github.com/wakebus/wakebus/internal/bus"
)

func growConcurrency(ctx context.Context, b *book) error {
	return withCaller(ctx, bench.RigConfig{}, func(_ *bench.Rig, c *bench.Caller) error {
		if _, err := c.Run(ctx, bench.Load{Jobs: 64, InFlight: 16}); err != nil {
			return err
		}
		for _, n := range []int{1, 2, 4, 8, 16, 32} {
			s, err := c.Run(ctx, bench.Load{Jobs: b.n(600, 2*n), InFlight: n})
			if err != nil {
				return err
			}
			d := bench.Distribute(s.Result)
			b.row("concurrency", strconv.Itoa(n), f0(s.PerSecond()), f2(d.P50), f2(d.P99), f2(s.CPU.Seconds()*1000/float64(len(s.Result))))
		}
		return nil
	})
}

// growDepth queues requests while no worker runs, starts one, and times the first of them.
func growDepth(ctx context.Context, b *book) error {
	timed := b.n(2000, 100)
	base := 0.0
	for _, d := range []struct {
		row     string
		waiting int
	}{{"0", 0}, {"10,000", b.n(10_000, 500)}, {"1,000,000", b.n(b.opt.deep, 1000)}} {
		// Those that are timed are among those that wait.
		queued := max(timed, d.waiting)
		rate, stored, err := depth(ctx, timed, queued)
		if err == nil && stored != queued {
			err = fmt.Errorf("the queue took %d of %d requests", stored, queued)
		}
		if err != nil {
			return err
		}
		if base == 0 {
			base = rate
		}
		b.Depth = growthFigure{Before: base, After: rate}
		b.row("depth", d.row, strconv.Itoa(queued), f0(rate), ratio(rate, base))
	}
	return nil
}

func depth(ctx context.Context, timed, queued int) (rate float64, stored int, err error) {
	err = withRig(ctx, bench.RigConfig{Workers: -1}, func(rig *bench.Rig) error {
		client := rig.Target().Bus
		// A worker makes the streams; it may not pull yet.
		n, err := rig.Instance().AddWorker(ctx)
		if err != nil {
			return err
		}
		if err := rig.Instance().StopWorker(n); err != nil {
			return err
		}
		if stored, err = fill(ctx, rig.Instance().Broker().URL(), queued); err != nil {
			return err
		}
		var ended atomic.Int64
		reached := make(chan struct{})
		var first atomic.Int64 // when the first result came
		tap, err := client.Tap(ctx, "deep", func(e bus.Event) {
			if e.Kind != bus.EventResult {
				return
			}
			switch ended.Add(1) {
			case 1 + int64(timed)/4: // its sandboxes were made by the first quarter
				first.Store(time.Now().UnixNano())
			case int64(timed):
				rate = float64(timed-1-timed/4) / time.Since(time.Unix(0, first.Load())).Seconds()
				close(reached)
			}
		})
		if err != nil {
			return err
		}
		defer tap.Close()
		if _, err := rig.Instance().AddWorker(ctx); err != nil {
			return err
		}
		select {
		case <-reached:
			return nil
		case <-time.After(2 * time.Minute):
			return fmt.Errorf("%d of %d queued jobs have ended after 2 minutes", ended.Load(), timed)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return rate, stored, err
}

// fill queues requests of the tenant deep and returns how many the broker took: the queue is bounded in bytes, too.
func fill(ctx context.Context, url string, n int) (int, error) {
	return publishMany(ctx, url, n, func(i int) *nats.Msg {
		msg := nats.NewMsg(bus.RequestSubject(bus.KindExec, "deep"))
		msg.Header.Set(bus.HeaderGrant, fmt.Sprintf(`{"sub":"u%d","tier":"business"}`, i%64))
		msg.Data = fmt.Appendf(nil, `{"v":1,"job_id":"d%d","conversation_id":"c%d","argv":["true"]}`, i, i%64)
		return msg
	})
}

// publishMany publishes with many answers outstanding.
func publishMany(ctx context.Context, url string, n int, message func(int) *nats.Msg) (int, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	var refused atomic.Int64
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2048),
		jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { refused.Add(1) }))
	if err != nil {
		return 0, err
	}
	for i := range n {
		if _, err := js.PublishMsgAsync(message(i), jetstream.WithStallWait(30*time.Second)); err != nil {
			return 0, fmt.Errorf("queue request %d: %w", i, err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return n - int(refused.Load()), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func growConversations(ctx context.Context, b *book) error {
	return withCaller(ctx, bench.RigConfig{}, func(_ *bench.Rig, c *bench.Caller) error {
		base := 0.0
		for _, n := range []int{1, 100, 1000, 10_000} {
			many := b.n(n, min(n, 20))
			if _, err := c.Run(ctx, bench.Load{Jobs: many, InFlight: 32, Conversations: many}); err != nil { // makes them
				return err
			}
			s, err := c.Run(ctx, bench.Load{Jobs: b.n(2000, 64), InFlight: 64, Conversations: many})
			if err != nil {
				return err
			}
			if base == 0 {
				base = s.PerSecond()
			}
			name := strconv.Itoa(n)
			if n >= 1000 {
				name = name[:len(name)-3] + ",000"
			}
			b.row("conversations", name, f0(s.PerSecond()), ratio(s.PerSecond(), base), f1(bench.Distribute(s.Result).P99))
		}
		return nil
	})
}

// growHistory stores events of ended jobs in the reply streams and measures before and after.
func growHistory(ctx context.Context, b *book) error {
	return withCaller(ctx, bench.RigConfig{}, func(rig *bench.Rig, c *bench.Caller) error {
		if _, err := c.Run(ctx, bench.Load{Jobs: 64, InFlight: 16, Conversations: 64}); err != nil {
			return err
		}
		base := 0.0
		for _, row := range []string{"nothing", "200,000 events"} {
			if row != "nothing" {
				if err := storeHistory(ctx, rig, b.n(200_000, 1000)); err != nil {
					return err
				}
			}
			s, err := c.Run(ctx, bench.Load{Jobs: b.n(1500, 64), InFlight: 64})
			if err != nil {
				return err
			}
			one, err := c.Run(ctx, bench.Load{Jobs: b.n(200, 10), InFlight: 1})
			if err != nil {
				return err
			}
			if base == 0 {
				base = s.PerSecond()
			}
			b.row("history", row, f0(s.PerSecond()), ratio(s.PerSecond(), base), f2(bench.Distribute(one.Started).P50))
		}
		return nil
	})
}

func storeHistory(ctx context.Context, rig *bench.Rig, n int) error {
	filler := []byte(strings.Repeat("x", 600))
	stored, err := publishMany(ctx, rig.Instance().Broker().URL(), n, func(i int) *nats.Msg {
		last := "state"
		if i%2 == 1 {
			last = "out"
		}
		msg := nats.NewMsg(fmt.Sprintf("%s.old.h%d.0.%s", bus.SubjectEvent, i/10, last))
		msg.Data = filler
		return msg
	})
	if err == nil && stored != n {
		err = fmt.Errorf("the streams took %d of %d events", stored, n)
	}
	return err
}
