package survival_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/tests/rig"
)

// Case 56: what runs is handed over by a word, not by a death; what was not begun is given back; the process ends with 0.
func TestCase56ADrainHandsOverWhatRunsAndGivesBackTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(-1), setting("WAKEBUS_DRAIN_GRACE", "0s"), setting("WAKEBUS_SLOTS", "1"))
	leaving := w.process(rig.Spec{ID: "leaving"})
	w.run("make", "home", "true")
	running := w.exec(bus.ExecRequest{JobID: "running", Shell: ticking})
	w.until(running, bus.EventStdout)
	var queued []*rig.Job
	for i := range 5 {
		queued = append(queued, w.exec(bus.ExecRequest{JobID: fmt.Sprintf("queued-%d", i), Shell: "exit 5"}))
	}
	if err := leaving.Terminate(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.process(rig.Spec{ID: "staying"})
	w.process(rig.Spec{ID: "helping"})
	for _, j := range queued {
		w.exited(j, 5)
	}
	w.goneOn(running)
	if r := running.Result; r.Run.Crashes != 0 || !r.Timing.Detached {
		t.Errorf("crashes %d, detached %v", r.Run.Crashes, r.Timing.Detached)
	}
	at := slices.IndexFunc(running.Events, func(e bus.Event) bool { return e.Kind == bus.EventWaiting })
	if at < 0 || running.Events[at].Owner != bus.NoOwner {
		t.Errorf("nobody said that it let go: %v", running.Kinds())
	}
	w.nothingLeft()
}

func TestARunningJobMayFinishDuringTheGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(-1))
	leaving := w.process(rig.Spec{ID: "leaving"})
	j := w.exec(bus.ExecRequest{JobID: "finishing", Shell: "echo up; sleep 1; exit 3"})
	w.until(j, bus.EventStdout)
	if err := leaving.Terminate(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.exited(j, 3)
	if slices.Contains(j.Kinds(), bus.EventTakenOver) {
		t.Errorf("it was handed over: %v", j.Kinds())
	}
	w.nothingLeft()
}

func TestARollingRestartUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(-1), setting("WAKEBUS_DRAIN_GRACE", "0s"), setting("WAKEBUS_SLOTS", "6"))
	old := []*rig.Worker{w.process(rig.Spec{ID: "a1"}), w.process(rig.Spec{ID: "b1"})}
	w.run("make", "home", "true")
	var jobs []*rig.Job
	load := func(wave int) {
		for i := range 8 {
			id := fmt.Sprintf("load-%d-%d", wave, i)
			jobs = append(jobs, w.exec(bus.ExecRequest{JobID: id, Shell: count(id) + "; echo a; sleep 3; echo b"}))
		}
		w.until(jobs[len(jobs)-8], bus.EventStdout) // the wave has begun to run
	}
	load(0)
	for n, worker := range old {
		if err := worker.Terminate(w.ctx); err != nil {
			t.Error(err)
		}
		w.process(rig.Spec{ID: fmt.Sprintf("%c2", 'a'+n)})
		load(n + 1)
	}
	for _, j := range jobs {
		w.exited(j, 0)
		if string(j.Stdout) != "a\nb\n" && len(j.Gaps) == 0 {
			t.Errorf("%s: output %q", j.ID, j.Stdout)
		}
	}
	ran := strings.Fields(string(w.run("count", "home", "cat /workspace/runs").Stdout))
	slices.Sort(ran)
	if once := slices.Compact(slices.Clone(ran)); len(ran) != len(jobs) || len(once) != len(ran) {
		t.Errorf("%d jobs made %d runs, %d of them different", len(jobs), len(ran), len(once))
	}
	w.nothingLeft()
}

// A worker that was frozen past the take-over is silent about the job once it goes on.
func TestAFrozenWorkerIsSilentAfterTheTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(-1))
	zombie := w.process(rig.Spec{ID: "zombie"})
	j := w.exec(bus.ExecRequest{JobID: "fought-for", Shell: ticking, TimeoutMs: 60_000})
	limited := w.exec(bus.ExecRequest{JobID: "limited", Shell: "echo up; sleep 600", TimeoutMs: 4000})
	w.until(j, bus.EventStdout)
	w.until(limited, bus.EventStdout)
	if err := zombie.Freeze(); err != nil {
		t.Fatal(err)
	}
	w.process(rig.Spec{ID: "taker"})
	w.until(j, bus.EventTakenOver)
	if r := w.wait(limited); r.Outcome != plan.OutcomeTimedOut {
		t.Errorf("the limited job ended as %s", rig.Says(r))
	}
	kills := w.inst.Emulator().Count("exec.kill", "*")
	if err := zombie.Thaw(); err != nil {
		t.Fatal(err)
	}
	// It is awake again once it has taken a new job; by then its timers have fired.
	for i := 0; ; i++ {
		woken := w.run(fmt.Sprintf("wake-%d", i), "home", "true")
		if strings.HasPrefix(woken.Events[0].Owner, "zombie.") {
			break
		}
	}
	w.goneOn(j)
	for _, e := range append(j.Events, limited.Events...) {
		if e.Kind == bus.EventResult && !strings.HasPrefix(e.Owner, "taker.") {
			t.Errorf("%s of %s after the take-over", e.Kind, e.Owner)
		}
	}
	if n := w.inst.Emulator().Count("exec.kill", "*"); n != kills {
		t.Errorf("%d kills after the zombie woke", n-kills)
	}
	w.nothingLeft()
}
