package job_test

import (
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// Case 5: the command's clock starts when its socket is open. A boot that takes longer than the command may run costs it
// nothing.
func TestCase05ACommandsClockStartsOnlyOnceItsSocketIsOpen(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "true"), 0)
	const limit, boot = 6 * time.Second, 8 * time.Second
	h.fault(t, emulator.Fault{Route: "exec.ws", Sprite: h.name(t, "c"), Do: emulator.FaultDelay, Delay: boot, Times: 1})
	began := time.Now()
	r := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "exit 7", TimeoutMs: limit.Milliseconds()}, nil).result()
	exited(t, r, 7)
	if took := time.Since(began); took < boot {
		t.Errorf("it ended after %s: the handshake was not held up", took)
	}
}

// Case 10: past its limit a command is stopped for good, its children and whatever ignores TERM included; the result says
// timed_out and no exit code, the lease is free, and the sandbox and its files are kept.
func TestCase10ATimeoutStopsTheCommandAndKeepsTheSandbox(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "echo kept >f"), 0)
	name := h.name(t, "c")
	for what, text := range map[string]string{
		"children": "sleep 600 & echo $! >pid; wait",
		"stubborn": "trap '' TERM; echo $$ >pid; while :; do sleep 0.1; done",
	} {
		kills := h.inst.Emulator().Count("exec.kill", name)
		r := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: text, TimeoutMs: 1000}, nil).result()
		outcome(t, r, plan.OutcomeTimedOut, "")
		if r.ExitCode != nil || r.Stopped != "confirmed" || r.LimitMs != 1000 {
			t.Errorf("%s: exit code %v, stopped %q, limit %d ms", what, r.ExitCode, r.Stopped, r.LimitMs)
		}
		if n := h.inst.Emulator().Count("exec.kill", name); n == kills {
			t.Errorf("%s: its session was not killed", what)
		}
		// The file is there once the command has begun; before its limit it has, or there is nothing to outlive it.
		exited(t, h.sh(t, "c", `if [ -s pid ] && kill -0 "$(cat pid)" 2>/dev/null; then exit 9; fi; rm -f pid; cat f`), 0)
	}
	if n := h.inst.Emulator().Count("sprite.delete", name); n != 0 {
		t.Errorf("%d deletes", n)
	}
	h.free(t, h.leases(t))
}
