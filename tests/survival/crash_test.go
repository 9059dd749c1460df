package survival_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/tests/rig"
)

// Case 52: a request that kills each of its workers ends, with one dead letter and nothing left in the queue.
func TestCase52ARequestThatKillsItsWorkersEndsAsACrashLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(-1))
	var j *rig.Job
	for n := range plan.MaxCrashes {
		dying := w.process(rig.Spec{ID: fmt.Sprintf("dying-%d", n), Stops: map[string]job.Step{"poison": job.StepPlanning}})
		if n == 0 {
			// The first worker has set the streams up.
			j = w.exec(bus.ExecRequest{JobID: "poison", Shell: "echo ran"})
		}
		if err := dying.Stopped(w.ctx, "poison"); err != nil {
			t.Fatal(err)
		}
		dying.Kill()
	}
	w.process(rig.Spec{ID: "last"})
	r := w.wait(j)
	if r.Outcome != plan.OutcomeFailed || r.Reason != plan.ReasonCrashLoop || slices.Contains(j.Kinds(), bus.EventDialing) {
		t.Errorf("%s: %v", rig.Says(r), j.Kinds())
	}
	w.nothingLeft()
	letter, err := w.Bus.Letter(w.ctx, bus.LetterID{Tenant: rig.Tenant, Job: "poison"})
	if err != nil || letter.Class != bus.ClassCrashLoop {
		t.Errorf("dead letter %+v, %v", letter, err)
	}
}
