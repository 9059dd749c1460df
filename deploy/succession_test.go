package deploy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/tests/rig"
)

// What a worker does only when something went wrong needs rights too: a missing one would show on the day it is needed.

func TestAWorkerTakesOverFromADeadOneUnderItsRole(t *testing.T) {
	t.Parallel()
	soon := func(c *bus.Config) { c.AckWait = 500 * time.Millisecond }
	b := startBroker(t, "nats.conf")
	b.setUp(soon)
	s := &system{T: t, broker: b, log: &locked{}}
	_, r := s.caller("web", "dev").exec("c", "echo inherited")
	claimAndDie(t, b.connect("worker", soon))
	startSystemOn(t, b, nil, func(a *job.AppConfig) { a.AckWait = 500 * time.Millisecond })
	s.until(r, bus.EventTakenOver)
	if _, out := s.outcome(r, plan.OutcomeExited); out != "inherited\n" {
		t.Errorf("the successor's command printed %q", out)
	}
}

// claimAndDie takes one command, claims it, and goes away without a word.
func claimAndDie(t *testing.T, b *bus.Bus) {
	t.Helper()
	claimed := make(chan error, 1)
	pool, err := bus.NewPool(b, bus.PoolConfig{PullWait: 50 * time.Millisecond}, func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		_, err := b.Claim(ctx, key, "dead.1", bus.Claim{Record: bus.Record{Queued: d.Queued, QueuedAt: d.QueuedAt, Kind: d.Kind}})
		d.Forget()
		claimed <- err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	select {
	case err := <-claimed:
		if err != nil {
			t.Error(err)
		}
	case <-within(t).Done():
		t.Error("nothing to claim")
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	b.Close()
}

func TestAParkedRunIsCanceledAndTakenOutOfTheScheduleUnderTheWorkersRole(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	web := s.caller("web", "dev")
	_, long := web.exec("c", "echo up; sleep 600")
	s.until(long, bus.EventStdout)
	deadline := time.Now().Add(time.Hour)
	parked := web.newID()
	r := web.send(bus.KindExec, parked, bus.ExecRequest{V: 1, JobID: parked, ConversationID: "d", Shell: "true", OnLimit: bus.OnLimitWait, Deadline: &deadline})
	s.until(r, bus.EventWaiting)
	if err := web.bus.MarkCancel(within(t), bus.CancelTarget{Tenant: "dev", Job: parked}, bus.CancelRequest{By: "ann"}, nil); err != nil {
		t.Fatal(err)
	}
	s.outcome(r, plan.OutcomeCanceled)
	ops := s.broker.connect("ops")
	waitFor(t, func() bool {
		_, there, err := ops.ParkedShow(within(t), bus.RunKey{Tenant: "dev", Job: parked})
		return err == nil && !there
	})
	if err := web.bus.MarkCancel(within(t), bus.CancelTarget{Tenant: "dev", Conversation: "c"}, bus.CancelRequest{By: "ann"}, nil); err != nil {
		t.Fatal(err)
	}
	s.outcome(long, plan.OutcomeCanceled)
}

func TestARunThatNoMessageCarriesIsQueuedAgainUnderTheWorkersRole(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	key := bus.RunKey{Tenant: "dev", Job: "orphan"}
	r := s.caller("web", "dev").read(key.Job)
	worker := s.broker.connect("worker")
	if _, err := worker.Claim(within(t), key, "dead.1", bus.Claim{Record: bus.Record{Queued: 1 << 40, Kind: bus.KindExec,
		Actor: &bus.Actor{Tenant: "dev", User: "ann", Conversation: "c"}}}); err != nil {
		t.Fatal(err)
	}
	orphans, err := worker.Orphans(within(t), 0, 10)
	if err != nil || len(orphans) != 1 || orphans[0].Key != key {
		t.Fatalf("%+v, %v", orphans, err)
	}
	if queued, err := worker.Requeue(within(t), orphans[0]); err != nil || !queued {
		t.Fatal(queued, err)
	}
	if body, _ := s.result(r); body.Outcome == plan.OutcomeExited {
		t.Errorf("a run without its request ended as %s", body.Outcome)
	}
}

// Grants are asked for, and nobody has given the canary one: it signs its own.
func TestTheFleetIsMeasuredAndACanaryRunsUnderTheWorkersRole(t *testing.T) {
	t.Parallel()
	_, file, err := rig.KeySet(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := startSystem(t, map[string]string{"AUTHZ_MODE": "grant", "GRANT_KEYS_FILE": file})
	w := s.inst.App(0).Worker()
	if err := w.GaugeFleet(within(t), true); err != nil {
		t.Error(err)
	}
	if outcome, err := w.CanaryOnce(within(t)); outcome != job.CanaryOK {
		t.Errorf("%s: %v", outcome, err)
	}
	web := s.caller("web", job.CanaryTenant)
	_, r := web.exec("canary", "true")
	s.outcome(r, plan.OutcomeDenied)
}
