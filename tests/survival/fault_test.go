package survival_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/tests/rig"
)

var errInjected = errors.New("injected")

// Cases 40 and 60: whatever step fails or panics, once, the job has one true result, no slot is kept and no request is
// left; what fails after the command was dialled does not change how it ends.
func TestCase40And60AFaultAtAnyStepLeavesNoSlotAndNoLie(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("make", "home", "true")
	for _, step := range job.Steps() {
		for _, panics := range []bool{false, true} {
			name := fmt.Sprintf("%s-%v", step, panics)
			w.failOnce(step, name, panics)
			req := bus.ExecRequest{JobID: name, Shell: "echo " + name + " >> /workspace/runs; echo out; sleep 0.3; exit 3"}
			before := step == job.StepAfterClaim || step == job.StepAfterLease || step == job.StepPlanning ||
				step == job.StepProvisioning || step == job.StepPlanned || step == job.StepDialing
			switch step {
			case job.StepStopping:
				req.Shell = "echo " + name + " >> /workspace/runs; echo out; sleep 600"
				req.TimeoutMs = 500
			case job.StepParked:
				deadline := time.Now().Add(time.Hour)
				req.OnLimit, req.Deadline = "wait", &deadline
				holder := w.execAs(bus.ExecRequest{JobID: "hold-" + name, Shell: "sleep 600"}, "user-"+name, "free")
				w.until(holder, bus.EventStarted)
				parked := w.execAs(req, "user-"+name, "free")
				w.until(parked, bus.EventWaiting)
				w.cancel(holder.ID)
				w.canceled(holder)
				w.exited(parked, 3)
				continue
			case job.StepBeforeClaim, job.StepAfterClaim, job.StepAfterLease, job.StepPlanning, job.StepProvisioning, job.StepPlanned,
				job.StepDialing, job.StepOpened, job.StepStarted, job.StepStreaming, job.StepExited, job.StepBeforeRelease,
				job.StepBeforeResult, job.StepAfterResult, job.StepAfterLetter, job.StepBeforeAck:
			}
			j := w.exec(req)
			r := w.wait(j)
			switch {
			case step == job.StepStopping:
				if r.Outcome != plan.OutcomeTimedOut || r.Stopped != "confirmed" {
					t.Errorf("%s: %s, stopped %s", name, rig.Says(r), r.Stopped)
				}
			case before && r.Outcome == plan.OutcomeFailed && r.Reason == plan.ReasonError:
				if slices.Contains(j.Kinds(), bus.EventDialing) {
					t.Errorf("%s: said not to have run, but was dialled", name)
				}
			case r.Outcome != plan.OutcomeExited || *r.ExitCode != 3:
				t.Errorf("%s: %s (%s): %v", name, rig.Says(r), r.Message, j.Kinds())
			}
		}
	}
	w.onStep(nil)
	w.nothingLeft()
	runs := map[string]int{}
	for _, id := range lines(string(w.run("count", "home", "cat /workspace/runs").Stdout)) {
		runs[id]++
	}
	for id, n := range runs {
		if id != "" && n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}

// failOnce makes the next passing of a step by the job fail.
func (w *world) failOnce(step job.Step, id string, panics bool) {
	var done atomic.Bool
	w.onStep(func(_ context.Context, s job.Step, k bus.RunKey) error {
		if s != step || k.Job != id || done.Swap(true) {
			return nil
		}
		if panics {
			panic("injected")
		}
		return errInjected
	})
}

// nothingLeft waits until no request stands in a queue and no lease is held.
func (w *world) nothingLeft() {
	w.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		depths, err := w.Bus.Backlog(w.ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		held := w.leases()
		if len(depths) == 0 && len(held) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("left over: requests %+v, leases %v", depths, held)
		}
	}
}

// An unexpected error that stays ends the command, and says that its outcome is not known.
func TestAStandingFaultBesideACommandStopsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onStep(func(_ context.Context, s job.Step, k bus.RunKey) error {
		if s == job.StepOpened && k.Job == "cursed" {
			return errInjected
		}
		return nil
	})
	j := w.exec(bus.ExecRequest{JobID: "cursed", Shell: "echo $$ > /workspace/pid; sleep 600"})
	if r := w.wait(j); r.Outcome != plan.OutcomeLost || r.ExitCode != nil || r.DeadLetter == "" {
		t.Errorf("%s, dead letter %q", rig.Says(r), r.DeadLetter)
	}
	if look := w.run("look", "home", "kill -0 $(cat /workspace/pid) 2>/dev/null && echo alive || echo gone"); string(look.Stdout) != "gone\n" {
		t.Errorf("the process is %s", look.Stdout)
	}
	w.nothingLeft()
}
