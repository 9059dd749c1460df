package survival_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/tests/rig"
)

// Case 57: a deadline that passes before the start, at whatever point, keeps the command from starting.
func TestCase57ADeadlineIsCheckedAtDequeueAfterTheLeaseAndAfterTheWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emulated(func(c *emulator.Config) { c.ColdWake = 3 * time.Second }))
	w.run("make", "home", "true")
	for _, step := range []job.Step{job.StepBeforeClaim, job.StepAfterLease, job.StepPlanned, ""} {
		deadline := time.Now().Add(1500 * time.Millisecond)
		w.onStep(func(ctx context.Context, s job.Step, k bus.RunKey) error {
			if s == step && k.Job == "late-"+string(step) {
				<-time.After(time.Until(deadline))
			}
			return nil
		})
		if step == "" {
			name := w.inst.Emulator().Sprites()[0].Name
			if err := w.inst.Emulator().Cold(name); err != nil {
				t.Fatal(err)
			}
		}
		j := w.exec(bus.ExecRequest{JobID: "late-" + string(step), Shell: "echo ran", Deadline: &deadline})
		if r := w.wait(j); r.Outcome != plan.OutcomeExpired || slices.Contains(j.Kinds(), bus.EventDialing) {
			t.Errorf("at %q: %s, %v", step, rig.Says(r), j.Kinds())
		}
	}
	w.onStep(nil)
	deadline := time.Now().Add(time.Hour)
	w.exited(w.exec(bus.ExecRequest{JobID: "in-time", Shell: "exit 8", Deadline: &deadline}), 8)
	w.nothingLeft()
}

func TestAJobThatIsPublishedAgainRunsOnceAndAnotherBodyCanBeTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(2))
	first := w.exec(bus.ExecRequest{JobID: "twice", Shell: "echo ran >> /workspace/runs; sleep 1; exit 3"})
	w.until(first, bus.EventStarted)
	// While it runs: the same again is no take-over, another body is not run.
	again := w.exec(bus.ExecRequest{JobID: "twice", Shell: "echo ran >> /workspace/runs; sleep 1; exit 3"})
	other := w.exec(bus.ExecRequest{JobID: "twice", Shell: "echo other >> /workspace/runs"})
	for _, j := range []*rig.Job{first, again, other} {
		w.exited(j, 3)
		if slices.Contains(j.Kinds(), bus.EventTakenOver) {
			t.Errorf("a duplicate took the run over: %v", j.Kinds())
		}
	}
	after := w.exec(bus.ExecRequest{JobID: "twice", Shell: "echo later >> /workspace/runs"})
	w.exited(after, 3)
	body, err := json.Marshal(bus.ExecRequest{V: 1, JobID: "twice", ConversationID: "home", Shell: "echo later >> /workspace/runs"})
	if err != nil {
		t.Fatal(err)
	}
	if after.Events[0].Request == sha(body) || after.Events[0].Request == "" {
		t.Error("the caller cannot tell that its id was used for another request")
	}
	if ran := w.run("count", "home", "cat /workspace/runs"); string(ran.Stdout) != "ran\n" {
		t.Errorf("ran: %q", ran.Stdout)
	}
	w.nothingLeft()
	audited, err := w.stream().Stream(w.ctx, bus.StreamAudit)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := audited.GetLastMsgForSubject(w.ctx, bus.SubjectAudit+"."+rig.Tenant+".block.>")
	if err != nil || !strings.Contains(string(msg.Data), "used before with another body") {
		t.Errorf("the other body is not audited: %v", err)
	}
}

// Case 49: a command three times longer than the ack wait has one execution.
func TestCase49ALongCommandIsNotTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(2), func(c *instance.Config) { c.Settings["WAKEBUS_SLOTS"] = "2" })
	j := w.run("long", "home", "echo ran >> /workspace/runs; sleep 6.5; cat /workspace/runs")
	if string(j.Stdout) != "ran\n" || slices.Contains(j.Kinds(), bus.EventTakenOver) {
		t.Errorf("ran %q: %v", j.Stdout, j.Kinds())
	}
}
