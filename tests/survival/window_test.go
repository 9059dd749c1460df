package survival_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// A tenant whose every job waits for the provider's rate limit holds up nobody: its jobs are parked, and what does not fit
// there is given back, so that the broker's window of what is in flight has room.
func TestATenantThatWaitsOnARateLimitLeavesTheWindowToOthers(t *testing.T) {
	t.Parallel()
	const backlog = 20
	w := newWorld(t, setting("WAKEBUS_TENANT_BACKLOG", fmt.Sprint(backlog)), setting("WAKEBUS_SLOTS", "4"))
	w.run("make", "home", "true")
	err := w.inst.Emulator().AddFaults(emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 429,
		Headers: map[string]string{"Retry-After": "3600"}})
	if err != nil {
		t.Fatal(err)
	}
	header := bus.Header{}
	header.Set(bus.HeaderGrant, `{"sub":"ann","tier":"business"}`)
	refused := 0
	for n := 0; refused < 3; n++ {
		id := fmt.Sprintf("waits-%d", n)
		body, err := json.Marshal(bus.ExecRequest{V: 1, JobID: id, ConversationID: id, Shell: "true"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Bus.Publish(w.ctx, bus.KindExec, "slow", header, body); err != nil {
			refused++ // parked and queued, it has as many as it may
			w.run(fmt.Sprintf("other-%d", n), "home", "exit 0")
		}
		if n > 10*backlog {
			t.Fatalf("%d requests of one tenant were taken", n)
		}
	}
	stream, err := w.stream().Stream(w.ctx, bus.StreamSandbox)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.Consumer(w.ctx, string(bus.KindExec))
	if err != nil {
		t.Fatal(err)
	}
	if n := consumer.CachedInfo().NumAckPending; n > backlog+4 {
		t.Errorf("%d requests are in flight", n)
	}
	for n := range 5 {
		w.exited(w.exec(bus.ExecRequest{JobID: fmt.Sprintf("free-%d", n), Shell: "exit 5"}), 5)
	}
}
