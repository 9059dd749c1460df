package survival_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/tests/rig"
)

func sha(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// broker starts a broker of the test's own, which can be stopped and started again with its store.
func broker(t *testing.T) *rig.Broker {
	t.Helper()
	b, err := rig.StartBroker(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// ticking says a line every 100 ms, and ends with 7 once the test says so.
const ticking = "i=0; while [ ! -e /workspace/go ]; do echo tick $i; i=$((i+1)); sleep 0.1; done; exit 7"

// ticked checks a ticking command's output: every line once, in order.
func (w *world) ticked(j *rig.Job) {
	w.t.Helper()
	for i, line := range strings.Split(strings.TrimSuffix(string(j.Stdout), "\n"), "\n") {
		if line != fmt.Sprintf("tick %d", i) {
			w.t.Fatalf("%s: line %d is %q", j.ID, i, line)
		}
	}
	if len(j.Gaps) > 0 {
		w.t.Errorf("%s: gaps %+v", j.ID, j.Gaps)
	}
}

// goneOn lets a ticking command end, and checks that it did so whole.
func (w *world) goneOn(j *rig.Job) {
	w.t.Helper()
	w.run("go-on", "home", "touch /workspace/go")
	w.exited(j, 7)
	w.ticked(j)
}

// Case 54: the broker is stopped for longer than the ack wait and started again while a command runs.
func TestCase54ABrokerRestartLosesNothing(t *testing.T) {
	t.Parallel()
	b := broker(t)
	w := newWorld(t, workers(2), func(c *instance.Config) { c.NATSURL = b.URL })
	j := w.exec(bus.ExecRequest{JobID: "through", Shell: ticking})
	w.until(j, bus.EventStdout)
	for range 2 {
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
		<-time.After(ackWait + ackWait/2) // an outage has a length; nothing waits for its end
		if err := b.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.goneOn(j)
	w.nothingLeft()
}

// Case 54: the broker goes away while a worker starts; the worker waits for it.
func TestCase54AWorkerThatStartsIntoAnOutageWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	b := broker(t)
	w := newWorld(t, workers(-1), func(c *instance.Config) { c.NATSURL = b.URL })
	app, err := rig.NewApp(w.ctx, rig.Spec{Env: w.inst.Env(), AckWait: ackWait}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx) }()
	<-time.After(7 * time.Second) // an outage has a length: here that of the first try
	if err := b.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.run("after", "home", "exit 0")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the worker ended with %v", err)
	}
}

// Case 54: a consumer that somebody deleted is made again.
func TestCase54ADeletedConsumerIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("before", "home", "true")
	stream, err := w.stream().Stream(w.ctx, bus.StreamSandbox)
	if err != nil {
		t.Fatal(err)
	}
	deleted := 0
	for name := range stream.ConsumerNames(w.ctx).Name() {
		if err := stream.DeleteConsumer(w.ctx, name); err != nil {
			t.Fatal(err)
		}
		deleted++
	}
	if deleted == 0 {
		t.Fatal("there was no consumer to delete")
	}
	w.run("after", "home", "true")
}

// Case 48 beside a running command: Redis goes, and comes back empty; the command is not touched, the slot is counted
// again, and what is published meanwhile is not denied.
func TestARedisRestartTouchesNoCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.exec(bus.ExecRequest{JobID: "through", Shell: ticking})
	w.until(j, bus.EventStdout)
	if err := w.redis.Stop(); err != nil {
		t.Fatal(err)
	}
	meanwhile := w.exec(bus.ExecRequest{JobID: "meanwhile", Shell: "touch /workspace/go; exit 2"})
	<-time.After(2 * time.Second) // an outage has a length
	if err := w.redis.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.exited(meanwhile, 2)
	w.exited(j, 7)
	w.ticked(j)
	w.nothingLeft()
}

// The connection is lost, and the provider away after that: it is asked again, and the command's own end stands.
func TestAProviderOutageDuringARunIsOutwaited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("make", "home", "true")
	emu := w.inst.Emulator()
	if err := emu.AddFaults(emulator.Fault{Route: "exec.ws", Nth: 1, Do: emulator.FaultDropAfter, Bytes: 30}); err != nil {
		t.Fatal(err)
	}
	before := emu.Count("*", "*")
	j := w.exec(bus.ExecRequest{JobID: "dropped", Shell: "for i in 0 1 2 3 4 5 6 7; do echo tick $i; sleep 0.3; done; exit 7"})
	w.until(j, bus.EventStdout)
	if err := emu.AddFaults(emulator.Fault{Route: "*", Do: emulator.FaultStatus, Status: 503}); err != nil {
		t.Fatal(err)
	}
	<-time.After(4 * time.Second) // the command ends meanwhile, unseen
	emu.ClearFaults()
	r := w.wait(j)
	if r.Outcome != plan.OutcomeExited || *r.ExitCode != 7 {
		t.Errorf("ended as %s (%s) after %d calls: %v", rig.Says(r), r.Message, emu.Count("*", "*")-before, j.Kinds())
	}
	w.nothingLeft()
}

// A breaking of both at once, and the worker's own disk has no part in it.
func TestABrokerAndRedisOutageTogetherLoseNothing(t *testing.T) {
	t.Parallel()
	b := broker(t)
	w := newWorld(t, workers(2), func(c *instance.Config) { c.NATSURL = b.URL })
	j := w.exec(bus.ExecRequest{JobID: "through", Shell: ticking})
	w.until(j, bus.EventStdout)
	if err := errors.Join(b.Stop(), w.redis.Stop()); err != nil {
		t.Fatal(err)
	}
	<-time.After(ackWait + ackWait/2) // an outage has a length
	if err := errors.Join(b.Start(w.ctx), w.redis.Start(w.ctx)); err != nil {
		t.Fatal(err)
	}
	w.goneOn(j)
	w.nothingLeft()
}

// Case 51: a provider that is away for a while is asked on a schedule, and the request succeeds afterwards.
func TestCase51AnOutageBeforeTheStartBurnsNoAttemptsInABlink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("make", "home", "true")
	emu := w.inst.Emulator()
	if err := emu.AddFaults(emulator.Fault{Route: "*", Do: emulator.FaultStatus, Status: 503}); err != nil {
		t.Fatal(err)
	}
	j := w.exec(bus.ExecRequest{JobID: "later", Shell: "exit 6"})
	w.until(j, bus.EventWaiting)
	<-time.After(3 * time.Second) // an outage has a length
	emu.ClearFaults()
	w.exited(j, 6)
	var waits []time.Time
	events, err := w.Journal(w.ctx, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == bus.EventWaiting {
			waits = append(waits, e.Time)
		}
	}
	for i := 1; i < len(waits); i++ {
		if d := waits[i].Sub(waits[i-1]); d < time.Second {
			t.Errorf("try %d came %s after the one before", i+1, d)
		}
	}
}

// Case 56: a shutdown ends in bounded time also while the broker is away; the command is taken over once it is back.
func TestCase56AShutdownWithoutABrokerEnds(t *testing.T) {
	t.Parallel()
	b := broker(t)
	w := newWorld(t, workers(-1), setting("WAKEBUS_DRAIN_GRACE", "0s"), func(c *instance.Config) { c.NATSURL = b.URL })
	leaving := w.process(rig.Spec{ID: "leaving"})
	j := w.exec(bus.ExecRequest{JobID: "left", Shell: ticking})
	w.until(j, bus.EventStdout)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := leaving.Terminate(w.ctx); err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	if err := b.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.process(rig.Spec{ID: "taker"})
	w.goneOn(j)
	w.nothingLeft()
}

// A broker whose every answer is late, as one on a slow disk is, makes a worker slow and nothing else: it is not taken for
// dead, and no byte is lost or doubled.
func TestASlowBrokerIsNoOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(-1))
	_, env := w.proxy("NATS_URL", rig.ProxyConfig{Delay: 150 * time.Millisecond})
	w.process(rig.Spec{ID: "slow", Env: env})
	j := w.exec(bus.ExecRequest{JobID: "slowly", Shell: "i=0; while [ $i -lt 60 ]; do echo tick $i; i=$((i+1)); sleep 0.05; done; exit 7"})
	w.until(j, bus.EventStdout)
	w.process(rig.Spec{ID: "quick"}) // would take it over if it could
	w.exited(j, 7)
	w.ticked(j)
	if slices.Contains(j.Kinds(), bus.EventTakenOver) || !strings.HasPrefix(j.Events[0].Owner, "slow.") {
		t.Errorf("%v by %s", j.Kinds(), j.Events[0].Owner)
	}
	w.nothingLeft()
}

// Somebody changes a consumer under a running worker: what runs is not touched, what comes is served, and the next worker
// that starts puts the contract's settings back.
func TestAConsumerThatSomebodyChangedServesAndIsMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.exec(bus.ExecRequest{JobID: "through", Shell: ticking})
	w.until(j, bus.EventStdout)
	stream, err := w.stream().Stream(w.ctx, bus.StreamSandbox)
	if err != nil {
		t.Fatal(err)
	}
	read := func() jetstream.ConsumerConfig {
		c, err := stream.Consumer(w.ctx, string(bus.KindExec))
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo().Config
	}
	before := read()
	changed := before
	changed.AckWait, changed.MaxDeliver, changed.MaxAckPending = time.Hour, 2, 7
	if _, err := stream.UpdateConsumer(w.ctx, changed); err != nil {
		t.Fatal(err)
	}
	w.exited(w.exec(bus.ExecRequest{JobID: "during", Shell: "exit 5"}), 5)
	w.process(rig.Spec{ID: "next"})
	if after := read(); after.AckWait != before.AckWait || after.MaxDeliver != before.MaxDeliver || after.MaxAckPending != before.MaxAckPending {
		t.Errorf("the consumer has AckWait %s, MaxDeliver %d, MaxAckPending %d", after.AckWait, after.MaxDeliver, after.MaxAckPending)
	}
	w.goneOn(j)
	w.nothingLeft()
}
