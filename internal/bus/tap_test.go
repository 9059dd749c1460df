package bus_test

import (
	"errors"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
)

func TestATapHearsEveryJobOfItsTenantAndNobodyElses(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	heard := make(chan bus.Event, 8)
	tap, err := r.bus.Tap(ctx, "acme", func(e bus.Event) { heard <- e })
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	for _, key := range []bus.RunKey{{Tenant: "other", Job: "j0"}, {Tenant: "acme", Job: "j1"}, {Tenant: "acme", Job: "j2"}} {
		if _, err := r.bus.Claim(ctx, key, "w.1", bus.Claim{Record: bus.Record{Queued: 1, Kind: bus.KindExec}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range []string{"j1", "j2"} {
		select {
		case e := <-heard:
			if e.Key.Job != job || e.Kind != bus.EventAccepted {
				t.Fatalf("heard %s of %s, want accepted of %s", e.Kind, e.Key, job)
			}
		case <-ctx.Done():
			t.Fatalf("%s was not heard", job)
		}
	}
	if n := tap.Dropped(); n != 0 {
		t.Fatalf("%d dropped", n)
	}
}

func TestATapRefusesATenantThatIsNoToken(t *testing.T) {
	t.Parallel()
	if _, err := setup(t).bus.Tap(within(t), "a.*", func(bus.Event) {}); !errors.Is(err, bus.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
}

func TestStoredAndTrafficGrowWithWhatIsPublished(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	before, err := r.bus.Stored(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := r.server.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := r.bus.Publish(ctx, bus.KindExec, "acme", bus.Header{}, []byte(`{"v":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	after, err := r.bus.Stored(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if after.Messages-before.Messages != 3 || after.Bytes <= before.Bytes {
		t.Fatalf("from %+v to %+v", before, after)
	}
	now, err := r.server.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	if now.InMsgs < sent.InMsgs+3 || now.InBytes <= sent.InBytes || now.OutMsgs <= sent.OutMsgs {
		t.Fatalf("from %+v to %+v", sent, now)
	}
}
