package survival_test

import (
	"context"
	"encoding/json"
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
	plans := map[string]*fault{}
	for _, step := range job.Steps() {
		for _, panics := range []bool{false, true} {
			id := fmt.Sprintf("%s-%v", step, panics)
			plans[id] = &fault{step: step, panics: panics}
		}
	}
	w.onStep(func(_ context.Context, s job.Step, k bus.RunKey) error {
		f := plans[k.Job]
		if f == nil || s != f.step || f.done.Swap(true) {
			return nil
		}
		if f.panics {
			panic("injected")
		}
		return errInjected
	})
	for id, f := range plans {
		f.job = w.faulty(id, f)
	}
	for id, f := range plans {
		w.judgeFault(id, f)
	}
	w.nothingLeft()
	ran := lines(string(w.run("count", "home", "cat /workspace/runs").Stdout))
	if once := slices.Compact(slices.Clone(ran)); len(once) != len(ran) {
		t.Errorf("something ran twice: %v", ran)
	}
}

// fault is a step that fails once for one job.
type fault struct {
	step   job.Step
	panics bool
	done   atomic.Bool
	job    *rig.Job
}

// faulty publishes the job whose step will fail.
func (w *world) faulty(id string, f *fault) *rig.Job {
	w.t.Helper()
	req := bus.ExecRequest{JobID: id, Shell: count(id) + "; echo out; sleep 0.3; exit 3"}
	if f.step == job.StepStopping {
		req.Shell, req.TimeoutMs = count(id)+"; echo out; sleep 600", 500
	}
	if f.step != job.StepParked {
		return w.exec(req)
	}
	deadline := time.Now().Add(time.Hour)
	req.OnLimit, req.Deadline = "wait", &deadline
	holder := w.execAs(bus.ExecRequest{JobID: "hold-" + id, Shell: "sleep 600"}, "user-"+id, "free")
	w.until(holder, bus.EventStarted)
	parked := w.execAs(req, "user-"+id, "free")
	w.until(parked, bus.EventWaiting)
	w.cancel(holder.ID)
	w.canceled(holder)
	return parked
}

// judgeFault holds a job's end against what its fault may have done to it.
func (w *world) judgeFault(id string, f *fault) {
	w.t.Helper()
	r := w.wait(f.job)
	before := slices.Index(job.Steps(), f.step) <= slices.Index(job.Steps(), job.StepDialing)
	switch {
	case !f.done.Load():
		w.t.Errorf("%s: the step was not passed", id)
	case f.step == job.StepStopping:
		if r.Outcome != plan.OutcomeTimedOut || r.Stopped != "confirmed" {
			w.t.Errorf("%s: %s, stopped %s", id, rig.Says(r), r.Stopped)
		}
	case before && r.Outcome == plan.OutcomeFailed && r.Reason == plan.ReasonError:
		if slices.Contains(f.job.Kinds(), bus.EventDialing) {
			w.t.Errorf("%s: said not to have run, but was dialled", id)
		}
	case r.Outcome != plan.OutcomeExited || *r.ExitCode != 3:
		w.t.Errorf("%s: %s (%s): %v", id, rig.Says(r), r.Message, f.job.Kinds())
	}
}

// nothingLeft waits until no request stands in a queue and no lease is held.
func (w *world) nothingLeft() {
	w.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		depths, err := w.Bus.Backlog(w.ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		held := w.leases()
		if len(depths) == 0 && len(held) == 0 {
			return
		}
		if first {
			w.t.Logf("still there: requests %+v, leases %v", depths, held)
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("left over: requests %+v, leases %v", depths, held)
		}
	}
}

// Between saying that it waits and being parked no call for a free slot can reach a run; so whoever gets its message next
// does not let it wait for the time that was said.
func TestARunThatFailedToBeParkedLooksAgainBeforeItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var once atomic.Bool
	w.onStep(func(_ context.Context, s job.Step, k bus.RunKey) error {
		if s == job.StepParked && k.Job == "waits" && !once.Swap(true) {
			return errInjected
		}
		return nil
	})
	deadline := time.Now().Add(time.Hour)
	holder := w.execAs(bus.ExecRequest{JobID: "holds", Shell: "sleep 600"}, "ann", "free")
	w.until(holder, bus.EventStarted)
	j := w.execAs(bus.ExecRequest{JobID: "waits", Shell: "exit 4", OnLimit: "wait", Deadline: &deadline}, "ann", "free")
	w.until(j, bus.EventWaiting)
	var first bus.WaitingBody
	if err := json.Unmarshal(j.Events[len(j.Events)-1].Data, &first); err != nil {
		t.Fatal(err)
	}
	w.until(j, bus.EventWaiting)
	events, err := w.Journal(w.ctx, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if at := events[len(events)-1].Time; !at.Before(first.Until) {
		t.Errorf("it looked again at %s, and was to wait until %s", at, first.Until)
	}
	w.cancel(holder.ID)
	w.exited(j, 4)
}

// A stop whose every try breaks still ends as what it was announced as, and says that nobody saw the command's end.
func TestAStandingFaultBesideAStopLeavesItsReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onStep(func(_ context.Context, s job.Step, k bus.RunKey) error {
		if s == job.StepStopping && k.Job == "cursed" {
			return errInjected
		}
		return nil
	})
	j := w.exec(bus.ExecRequest{JobID: "cursed", Shell: "echo up; sleep 600", TimeoutMs: 500})
	if r := w.wait(j); r.Outcome != plan.OutcomeTimedOut || r.Stopped != "not_confirmed" {
		t.Errorf("%s, stopped %s", rig.Says(r), r.Stopped)
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
