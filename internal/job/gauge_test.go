package job_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// gauged reads one figure; ok is false when there is no such series.
func gauged(t *testing.T, reg *prometheus.Registry, name string, labels map[string]string) (value float64, ok bool) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			fits := f.GetName() == name && len(m.GetLabel()) == len(labels)
			for _, l := range m.GetLabel() {
				fits = fits && labels[l.GetName()] == l.GetValue()
			}
			if fits {
				return m.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}

func TestTheFleetsGaugesSayWhatWaitsWhatRunsAndWhatTheProviderCounts(t *testing.T) {
	t.Parallel()
	h := build(t, settings("WAKEBUS_SLOTS", "2"))
	runs := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "echo up; sleep 600"}, nil)
	runs.until(bus.EventStdout)
	deadline := time.Now().Add(time.Hour)
	waits := h.exec(t, bus.ExecRequest{ConversationID: "d", Shell: "true", OnLimit: bus.OnLimitWait, Deadline: &deadline}, nil)
	waits.until(bus.EventWaiting)
	w := h.inst.App(0).Worker()
	inHand := map[string]string{"queue": "fresh", "kind": "exec", "state": "in_hand"}
	eventually(t, "the parked request is acked", func() bool {
		if err := w.GaugeFleet(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		n, _ := gauged(t, h.reg[0], "wakebus_fleet_queue_depth", inHand)
		return n == 1
	})
	for _, want := range []struct {
		name   string
		labels map[string]string
		value  float64
	}{
		{"wakebus_fleet_queue_depth", map[string]string{"queue": "fresh", "kind": "exec", "state": "waiting"}, 0},
		{"wakebus_fleet_queue_depth", map[string]string{"queue": "parked", "kind": "", "state": "waiting"}, 1},
		{"wakebus_fleet_queue_oldest_seconds", map[string]string{"queue": "fresh", "kind": "terminal"}, 0},
		{"wakebus_fleet_unfinished_runs", map[string]string{"state": "running"}, 1},
		{"wakebus_fleet_unfinished_runs", map[string]string{"state": "waiting_limit"}, 1},
		{"wakebus_fleet_sprites", map[string]string{"status": "running"}, 1},
		{"wakebus_fleet_sprites_in_use", nil, 1},
	} {
		if got, ok := gauged(t, h.reg[0], want.name, want.labels); !ok || got != want.value {
			t.Errorf("%s%v is %v (there: %v), want %v", want.name, want.labels, got, ok, want.value)
		}
	}
	for _, name := range []string{"wakebus_fleet_oldest_job_seconds", "wakebus_fleet_journal_used_ratio"} {
		if got, ok := gauged(t, h.reg[0], name, nil); !ok || got <= 0 {
			t.Errorf("%s is %v (there: %v)", name, got, ok)
		}
	}
	if got, _ := gauged(t, h.reg[0], "wakebus_fleet_queue_oldest_seconds", map[string]string{"queue": "parked", "kind": ""}); got <= 0 {
		t.Errorf("the oldest parked run is %v s old", got)
	}
}

func TestAFigureThatCannotBeReadIsNotThere(t *testing.T) {
	t.Parallel()
	h := build(t)
	w := h.inst.App(0).Worker()
	if err := w.GaugeFleet(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	status := map[string]string{"status": "cold"}
	if _, ok := gauged(t, h.reg[0], "wakebus_fleet_sprites", status); !ok {
		t.Fatal("the Sprites are not counted")
	}
	if err := h.inst.Emulator().AddFaults(emulator.Fault{Route: "sprite.list", Do: emulator.FaultStatus, Status: 500}); err != nil {
		t.Fatal(err)
	}
	if err := w.GaugeFleet(t.Context(), true); err == nil {
		t.Error("a listing that failed is no error")
	}
	if _, ok := gauged(t, h.reg[0], "wakebus_fleet_sprites", status); ok {
		t.Error("the figure of before stands")
	}
	if _, ok := gauged(t, h.reg[0], "wakebus_fleet_journal_used_ratio", nil); !ok {
		t.Error("one that could be read is gone too")
	}
}

func TestACanaryRunsAsAnyCallersCommandAndKeepsOneSandbox(t *testing.T) {
	t.Parallel()
	h := build(t)
	w := h.inst.App(0).Worker()
	for range 2 {
		if outcome, err := w.CanaryOnce(t.Context()); outcome != job.CanaryOK {
			t.Fatalf("%s: %v", outcome, err)
		}
	}
	if n := len(h.inst.Emulator().Sprites()); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
	if err := h.inst.Emulator().AddFaults(emulator.Fault{Route: "exec.ws", Do: emulator.FaultStatus, Status: 400, Body: `{"error":"invalid"}`}); err != nil {
		t.Fatal(err)
	}
	if outcome, err := w.CanaryOnce(t.Context()); outcome != job.CanaryFailed || err == nil {
		t.Errorf("%s: %v", outcome, err)
	}
}

func TestACanaryThatIsSwitchedOffLeavesNoSandbox(t *testing.T) {
	t.Parallel()
	h := build(t)
	if outcome, err := h.inst.App(0).Worker().CanaryOnce(t.Context()); outcome != job.CanaryOK {
		t.Fatalf("%s: %v", outcome, err)
	}
	if err := h.inst.StopWorker(0); err != nil {
		t.Fatal(err)
	}
	if _, err := h.inst.AddWorker(t.Context()); err != nil { // its setting is the default, off
		t.Fatal(err)
	}
	eventually(t, "the canary's sandbox is gone", func() bool { return len(h.inst.Emulator().Sprites()) == 0 })
}

func TestACanarysRoleRunsByItselfAndCountsHowLongItTook(t *testing.T) {
	t.Parallel()
	h := build(t, eachWorker(func(_ int, c *job.Config) { c.CanaryEvery = 50 * time.Millisecond }))
	eventually(t, "a canary ended well", func() bool { return h.counted(t, "wakebus_canary_runs_total", string(job.CanaryOK)) >= 1 })
}
