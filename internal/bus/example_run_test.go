package bus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// One worker and one caller on an embedded broker: a request is queued, claimed, run and read.
func Example() {
	ctx := context.Background()
	server, err := bus.StartServer(ctx, bus.ServerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	b, err := bus.Connect(ctx, bus.Config{InProcess: server, Limits: bus.Limits{Jobs: 8 << 20, Output: 8 << 20}})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	if err := b.Setup(ctx); err != nil {
		log.Fatal(err)
	}

	work := func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		run, err := b.Claim(ctx, key, "worker-1.1", bus.Claim{Record: bus.Record{Queued: d.Queued, Kind: d.Kind}})
		if err != nil {
			return // somebody else has it
		}
		code := 0
		_ = run.Dialing(ctx, bus.DialingBody{Try: 1})
		_ = run.Write(ctx, bus.EventStdout, []byte("hello\n"))
		if err := run.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeExited, ExitCode: &code}); err == nil {
			_ = d.Ack(ctx)
		}
	}
	pool, err := bus.NewPool(b, bus.PoolConfig{Slots: 2}, work)
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()

	reader, err := b.Subscribe(ctx, "dev", "job-1")
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	if _, err := b.Publish(ctx, bus.KindExec, "dev", nil, []byte(`{"v":1,"job_id":"job-1"}`)); err != nil {
		log.Fatal(err)
	}
	for {
		e, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Seq, e.Kind)
	}
	pool.Drain()
	fmt.Println("drained:", <-done)
	// Output:
	// 1 accepted
	// 2 dialing
	// 3 stdout
	// 4 result
	// drained: <nil>
}
