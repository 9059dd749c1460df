package survival_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// stream connects as anybody who may publish everywhere.
func (w *world) stream() jetstream.JetStream {
	w.t.Helper()
	nc, err := nats.Connect(w.inst.Env()["NATS_URL"])
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	return js
}

// The tenant of requests without one is nobody's to name: its jobs belong to the one backend that publishes without.
func TestTheReservedTenantCannotBeNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, subject := range []string{"sandbox.exec._", "terminal.open._", "sandbox.end._"} {
		if _, err := w.stream().Publish(w.ctx, subject, []byte(`{"v":1,"job_id":"j","conversation_id":"c","shell":"true"}`)); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		stats, err := w.Bus.LetterStats(w.ctx, bus.LetterFilter{})
		if err != nil {
			t.Fatal(err)
		}
		if stats.ByClass[bus.ClassMalformed] == 3 {
			break
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			t.Fatalf("dead letters %+v", stats)
		}
	}
	if _, _, err := w.Bus.LastState(w.ctx, bus.RunKey{Tenant: plan.NoTenant, Job: "j"}); !errors.Is(err, bus.ErrNoJournal) {
		t.Errorf("somebody ran it: %v", err)
	}
	w.nothingLeft()
}
