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

// An owner that cannot follow a command any more announces that it stops it, and says lost. It dies between the two, and
// its successor says what it would have said.
func TestAGivenUpCommandIsLostWhoeverSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(-1))
	dying := w.process(rig.Spec{ID: "dying", Stops: map[string]job.Step{"cursed": job.StepStopping}, Fails: map[string]job.Step{"cursed": job.StepOpened}})
	j := w.exec(bus.ExecRequest{JobID: "cursed", Shell: "echo $$ > /workspace/pid; sleep 600"})
	if err := dying.Stopped(w.ctx, "cursed"); err != nil {
		t.Fatal(err)
	}
	dying.Kill()
	w.process(rig.Spec{ID: "taker"})
	r := w.wait(j)
	if r.Outcome != plan.OutcomeLost || r.Class != string(bus.ClassOutcomeUnknown) || r.Stopped != "confirmed" || r.DeadLetter == "" {
		t.Errorf("%s, class %q, stopped %q, dead letter %q: %v", rig.Says(r), r.Class, r.Stopped, r.DeadLetter, j.Kinds())
	}
	if look := w.run("look", "home", "kill -0 $(cat /workspace/pid) 2>/dev/null && echo alive || echo gone"); string(look.Stdout) != "gone\n" {
		t.Errorf("the process is %s", look.Stdout)
	}
	w.nothingLeft()
}
