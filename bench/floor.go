package main

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/wakebus/wakebus/internal/bench"
	"github.com/wakebus/wakebus/internal/bus"
)

// measureFloor is what the broker itself takes for publish, pull and ack.
func measureFloor(ctx context.Context, b *book) error {
	var cells [3][]string
	for _, sync := range []bool{false, true} {
		d, rate, err := floor(ctx, b, sync)
		if err != nil {
			return err
		}
		cells[0] = append(cells[0], f2(d.P50))
		cells[1] = append(cells[1], f2(d.P99))
		cells[2] = append(cells[2], f0(rate))
	}
	for i, row := range []string{"one at a time, p50 ms", "one at a time, p99 ms", "32 at a time, messages/s"} {
		b.row("floor", row, cells[i]...)
	}
	return nil
}

func floor(ctx context.Context, b *book, sync bool) (d bench.Distribution, rate float64, err error) {
	server, err := bus.StartServer(ctx, bus.ServerConfig{SyncAlways: sync})
	if err != nil {
		return d, 0, err
	}
	defer func() { _ = server.Close() }()
	nc, err := nats.Connect(server.URL())
	if err != nil {
		return d, 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return d, 0, err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "FLOOR", Subjects: []string{"floor"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage})
	if err != nil {
		return d, 0, err
	}
	cons, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return d, 0, err
	}
	once := func() error {
		if _, err := js.Publish(ctx, "floor", []byte("x")); err != nil {
			return err
		}
		msg, err := cons.Next(jetstream.FetchMaxWait(5 * time.Second))
		if err != nil {
			return err
		}
		return msg.DoubleAck(ctx)
	}
	n := b.n(1000, 50)
	if sync {
		n = b.n(200, 20)
	}
	var took []time.Duration
	for range n {
		began := time.Now()
		if err := once(); err != nil {
			return d, 0, err
		}
		took = append(took, time.Since(began))
	}
	const wide = 32
	each := max(n/8, 1)
	began := time.Now()
	var g errgroup.Group
	for range wide {
		g.Go(func() error {
			for range each {
				if err := once(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return bench.Distribute(took), float64(wide*each) / time.Since(began).Seconds(), err
}
