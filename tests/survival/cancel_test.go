package survival_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/tests/rig"
)

func (w *world) canceled(j *rig.Job) {
	w.t.Helper()
	if r := w.wait(j); r.Outcome != plan.OutcomeCanceled || r.By != "rig" {
		w.t.Errorf("%s ended as %s by %q", j.ID, rig.Says(r), r.By)
	}
}

func (w *world) cancel(job string) {
	w.t.Helper()
	if err := w.Cancel(w.ctx, job); err != nil {
		w.t.Fatal(err)
	}
}

func TestAQueuedOrUnknownJobThatIsCanceledNeverStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(-1))
	w.process(rig.Spec{}) // sets the streams up
	w.run("make", "home", "true")
	before := w.inst.Emulator().Count("exec.ws", "*")
	w.cancel("unknown") // before it was ever published
	w.canceled(w.exec(bus.ExecRequest{JobID: "unknown", Shell: "echo ran"}))
	if n := w.inst.Emulator().Count("exec.ws", "*"); n != before {
		t.Errorf("%d commands were started", n-before)
	}
}

func TestAParkedJobIsCanceledAtOnceAndAnEndedOneStaysAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	deadline := time.Now().Add(time.Hour)
	holder := w.execAs(bus.ExecRequest{JobID: "holder", Shell: "sleep 600"}, "ann", "free")
	w.until(holder, bus.EventStarted)
	parked := w.execAs(bus.ExecRequest{JobID: "parked", Shell: "echo ran", OnLimit: "wait", Deadline: &deadline}, "ann", "free")
	w.until(parked, bus.EventWaiting)
	w.cancel("parked")
	w.canceled(parked)
	w.cancel("holder")
	w.canceled(holder)
	if slices.Contains(parked.Kinds(), bus.EventDialing) {
		t.Errorf("the parked job was dialled: %v", parked.Kinds())
	}
	ended := w.run("ended", "home", "exit 9")
	w.cancel("ended")
	again, err := w.Follow(w.ctx, ended.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	w.exited(again, 9)
	if held := w.leases(); len(held) > 0 {
		t.Errorf("leases %v", held)
	}
}

func TestACanceledCommandGetsTermThenKillAndIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stubborn := w.exec(bus.ExecRequest{JobID: "stubborn", Shell: "trap '' TERM; echo $$ > /workspace/pid; echo up; while :; do sleep 0.2; done"})
	w.until(stubborn, bus.EventStdout)
	w.cancel("stubborn")
	w.canceled(stubborn)
	if stubborn.Result.Stopped != "confirmed" {
		t.Errorf("stopped %s", stubborn.Result.Stopped)
	}
	if look := w.run("look", "home", "kill -0 $(cat /workspace/pid) 2>/dev/null && echo alive || echo gone"); string(look.Stdout) != "gone\n" {
		t.Errorf("the process is %s", look.Stdout)
	}
}

func TestAWholeConversationIsCanceledAndNothingPublishedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("make", "chat", "true")
	var jobs []*rig.Job
	for i := range 3 {
		j := w.exec(bus.ExecRequest{JobID: fmt.Sprintf("chat-%d", i), ConversationID: "chat", Shell: "sleep 600"})
		w.until(j, bus.EventStarted)
		jobs = append(jobs, j)
	}
	other := w.exec(bus.ExecRequest{JobID: "other", ConversationID: "elsewhere", Shell: "sleep 1; exit 6"})
	target := bus.CancelTarget{Tenant: rig.Tenant, Conversation: "chat"}
	if err := w.Bus.MarkCancel(w.ctx, target, bus.CancelRequest{By: "rig"}, nil); err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		w.canceled(j)
	}
	w.exited(other, 6)
	if later := w.run("later", "chat", "exit 2"); later.Result.Outcome != plan.OutcomeExited {
		t.Errorf("a later job ended as %s", rig.Says(later.Result))
	}
}

// A cancel that comes while a job has no owner is heard by the next one.
func TestACancelDuringATakeOverIsHeard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workers(-1))
	dying := w.process(rig.Spec{ID: "dying"})
	j := w.exec(bus.ExecRequest{JobID: "orphan", Shell: "echo up; sleep 600"})
	w.until(j, bus.EventStdout)
	dying.Kill()
	w.cancel("orphan")
	w.process(rig.Spec{ID: "taker"})
	w.canceled(j)
}

// The figure is printed, not judged: it depends on the machine.
func TestTheTimeFromACancelToTermIsMeasured(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("make", "home", "true")
	var took []time.Duration
	for i := range 20 {
		j := w.exec(bus.ExecRequest{JobID: fmt.Sprintf("c-%d", i), Shell: `trap 'date +%s%N; exit' TERM; echo up; while :; do sleep 0.01; done`})
		w.until(j, bus.EventStdout)
		start := time.Now()
		w.cancel(j.ID)
		w.canceled(j)
		at, err := strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(string(j.Stdout), "up\n")), 10, 64)
		if err != nil {
			t.Fatalf("the command did not get TERM: %q", j.Stdout)
		}
		took = append(took, time.Unix(0, at).Sub(start))
	}
	slices.Sort(took)
	t.Logf("cancel to TERM over %d: p50 %s, p99 %s", len(took), took[len(took)/2], took[len(took)-1])
}
