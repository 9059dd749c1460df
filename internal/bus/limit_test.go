package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// fillJournal publishes events of other runs until the journal refuses more.
func fillJournal(t *testing.T, r *rig) {
	t.Helper()
	data := bytes.Repeat([]byte(" "), 60<<10)
	for i := 0; ; i++ {
		msg := nats.NewMsg(bus.RunKey{Tenant: "filler", Job: fmt.Sprintf("f%d", i)}.StateEventSubject())
		msg.Data = data
		if i > 100 {
			t.Fatal("the journal has no limit")
		}
		_, err := r.js.PublishMsg(within(t), msg)
		var api *jetstream.APIError
		if errors.As(err, &api) && len(data) > 1<<10 {
			data = data[:len(data)/2]
		} else if err != nil {
			return
		}
	}
}

func TestAFullJournalHoldsStateBackUntilThereIsRoomAndPullingRests(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *bus.Config) { c.Limits.Jobs = 1 << 20 })
	c := mustClaim(t, r.bus, key("full"), "w1.1")
	fillJournal(t, r)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	body := bus.ResultBody{Outcome: plan.OutcomeExited, Message: string(bytes.Repeat([]byte("m"), 2<<10))}
	if err := c.Result(short, body); !errors.Is(err, bus.ErrFull) || errors.Is(err, bus.ErrFenced) {
		t.Errorf("got %v, want ErrFull", err)
	}
	got := make(chan struct{}, 1)
	p, _ := startPool(t, r.bus, bus.PoolConfig{}, func(ctx context.Context, d *bus.Delivery) {
		if err := d.Ack(ctx); err != nil {
			t.Error(err)
		}
		got <- struct{}{}
	})
	eventually(t, "the pool rests", p.JournalFull)
	publish(t, r.bus, "held")
	stream, err := r.js.Stream(within(t), bus.StreamJobs)
	if err != nil {
		t.Fatal(err)
	}
	if n := queued(t, r, bus.StreamSandbox); n != 1 {
		t.Errorf("%d requests are queued while pulling rests, want 1", n)
	}
	if err := stream.Purge(within(t), jetstream.WithPurgeSubject("sandbox.reply.filler.>")); err != nil {
		t.Fatal(err)
	}
	receive(t, got)
	if err := c.Result(within(t), body); err != nil {
		t.Errorf("the result after there is room: %v", err)
	}
}

func TestCase51And52DeliveriesAreUnlimitedAndUndelayedOnTheBrokersSide(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	for _, at := range []struct{ stream, consumer string }{{bus.StreamSandbox, "exec"}, {bus.StreamSandbox, "terminal"}, {bus.StreamSandbox, "end"},
		{bus.StreamRetry, "exec-due"}, {bus.StreamRetry, "terminal-due"}, {bus.StreamRetry, "end-due"}} {
		cons, err := r.js.Consumer(ctx, at.stream, at.consumer)
		if err != nil {
			t.Fatal(err)
		}
		if cfg := cons.CachedInfo().Config; cfg.MaxDeliver != -1 || len(cfg.BackOff) != 0 || cfg.AckWait != 9*time.Second {
			t.Errorf("%s of %s: MaxDeliver %d, BackOff %v, AckWait %s", at.consumer, at.stream, cfg.MaxDeliver, cfg.BackOff, cfg.AckWait)
		}
	}
	const naks = 40
	done := make(chan int, 1)
	startPool(t, r.bus, bus.PoolConfig{}, func(ctx context.Context, d *bus.Delivery) {
		if d.Delivered <= naks {
			if err := d.Nak(0); err != nil {
				t.Error(err)
			}
			return
		}
		if err := d.Ack(ctx); err != nil {
			t.Error(err)
		}
		done <- d.Delivered
	})
	publish(t, r.bus, "nak")
	if n := receive(t, done); n != naks+1 {
		t.Errorf("delivery %d", n)
	}
	eventually(t, "nothing is left", func() bool { return queued(t, r, bus.StreamSandbox) == 0 })
}

func TestAnInProcessConnectionNeedsNoSocket(t *testing.T) {
	t.Parallel()
	server := startServer(t, bus.ServerConfig{SyncAlways: true, MaxPayload: 2 << 20})
	b := connect(t, server, func(c *bus.Config) { c.InProcess = server; c.URL = "" })
	if err := errors.Join(b.Setup(within(t)), b.Ready()); err != nil {
		t.Fatal(err)
	}
	if b.MaxPayload() != 2<<20 {
		t.Errorf("max payload is %d", b.MaxPayload())
	}
	b.Close()
	b.Close()
	if err := b.Ready(); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("ready after close: %v", err)
	}
	if _, err := b.Claim(within(t), key("x"), "w.1", bus.Claim{}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("claim after close: %v", err)
	}
}

func TestAServerTakesAShippedConfigurationOnAFreePort(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nats.conf")
	err := os.WriteFile(file, []byte(`
port: 4222
accounts: { APP: { jetstream: enabled, users: [ { user: web, password: w, permissions: { publish: ["sandbox.exec.>"], subscribe: ["_INBOX_web.>"] } } ] } }
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	server := startServer(t, bus.ServerConfig{ConfigFile: file})
	if _, err := bus.Connect(within(t), bus.Config{URL: server.URL()}); !errors.Is(err, bus.ErrUnauthorized) {
		t.Errorf("without a user: got %v, want ErrUnauthorized", err)
	}
	b := connect(t, server, func(c *bus.Config) {
		c.URL = fmt.Sprintf("nats://web:w@127.0.0.1:%d", portOf(t, server))
		c.InboxPrefix, c.PublishTimeout = "_INBOX_web", 200*time.Millisecond
	})
	if err := b.Ready(); err != nil {
		t.Errorf("as web: %v", err)
	}
	// What the permissions forbid ends in the call's own time-out.
	if _, _, err := b.LastState(within(t), key("secret")); !errors.Is(err, bus.ErrUnreachable) {
		t.Errorf("a role without the right to read the journal: got %v", err)
	}
}
