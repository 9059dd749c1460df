package survival_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
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

// state is where a worker is killed, and what must come of the job.
type state struct {
	name string
	step job.Step
	// request is the command; long where it is empty.
	request func(*bus.ExecRequest)
	// outcome and code are the one result that is right. Code -1 is none.
	outcome plan.Outcome
	code    int
	// ended: the command is over at the kill, or is stopped, so that nobody can read on where the dead worker was; a gap
	// may be said.
	ended bool
	// tier is the user's; the free one has one slot, which another job holds.
	tier string
	own  bool // a conversation of its own, so that its Sprite is created
	// canceled: it is asked to stop once it has started.
	canceled bool
}

const longCode, shortCode = 7, 3

// long says on both streams how far it is, waits for a file between, which the test makes once another worker has it, and
// goes on. short ends at once. Both count their runs and read all of their input.
func long(id string) string {
	say := `say() { echo "out $1"; echo "err $1" >&2; }; `
	return count(id) + "; cksum; " + say + `for i in 0 1 2 3 4 5; do say $i; done; while [ ! -e /workspace/go ]; do sleep 0.2; done; ` +
		`for i in 6 7 8 9 10 11; do say $i; sleep 0.05; done; exit ` + strconv.Itoa(longCode)
}

func short(id string) string {
	return count(id) + `; cksum; echo done; exit ` + strconv.Itoa(shortCode)
}

func count(id string) string { return "echo " + id + " >> /workspace/runs" }

var stdin = bytes.Repeat([]byte("some input\\n"), 4000)

func shorter(r *bus.ExecRequest) { r.Shell = short(r.JobID) }

func states() []state {
	all := []state{
		{name: "create", step: job.StepProvisioning, own: true, request: shorter, code: shortCode},
		{name: "stopping-limit", step: job.StepStopping, outcome: plan.OutcomeTimedOut, code: -1, ended: true,
			request: func(r *bus.ExecRequest) { r.TimeoutMs = 700 }},
		{name: "stopping-output", step: job.StepStopping, outcome: plan.OutcomeOutputLimit, code: -1, ended: true,
			request: func(r *bus.ExecRequest) { r.OnOutputLimit, r.StreamBytes = "kill", 40 }},
		{name: "stopping-cancel", step: job.StepStopping, outcome: plan.OutcomeCanceled, code: -1, ended: true, canceled: true},
		{name: "parked", step: job.StepParked, tier: "free", request: func(r *bus.ExecRequest) {
			deadline := time.Now().Add(10 * time.Minute)
			r.OnLimit, r.Deadline = "wait", &deadline
		}},
	}
	for _, s := range []job.Step{job.StepBeforeClaim, job.StepAfterClaim, job.StepAfterLease, job.StepPlanning, job.StepProvisioning,
		job.StepPlanned, job.StepDialing, job.StepOpened, job.StepStarted, job.StepStreaming} {
		all = append(all, state{name: string(s), step: s})
	}
	for _, s := range []job.Step{job.StepExited, job.StepBeforeRelease, job.StepBeforeResult} {
		all = append(all, state{name: string(s), step: s, request: shorter, code: shortCode, ended: true})
	}
	for _, s := range []job.Step{job.StepAfterResult, job.StepAfterLetter, job.StepBeforeAck} {
		all = append(all, state{name: string(s), step: s, request: shorter, code: shortCode})
	}
	for i := range all {
		if all[i].outcome == "" {
			all[i].outcome = plan.OutcomeExited
			if all[i].code == 0 {
				all[i].code = longCode
			}
		}
	}
	return all
}

func TestEveryStepIsAStateInWhichAWorkerIsKilled(t *testing.T) {
	t.Parallel()
	var missing []job.Step
	for _, s := range job.Steps() {
		if !slices.ContainsFunc(states(), func(st state) bool { return st.step == s }) {
			missing = append(missing, s)
		}
	}
	if len(missing) > 0 {
		t.Fatalf("no worker is killed at %v", missing)
	}
}

// kills is how often a worker is killed in each state: 2, or what WAKEBUS_KILLS says for a long run by hand.
func kills(t *testing.T) int {
	text := os.Getenv("WAKEBUS_KILLS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("WAKEBUS_KILLS=%s is not a number of kills", text)
	}
	return n
}

// Case 50: a worker is killed in each of its states with two jobs there, and a peer brings each job to its one result.
func TestCase50AJobSurvivesTheDeathOfItsWorkerInEveryState(t *testing.T) {
	t.Parallel()
	for _, m := range []mode{
		{name: "exact replay", change: func(c *emulator.Config) { c.Attach = emulator.AttachExact }},
		{name: "server offset", merged: true, change: func(c *emulator.Config) { c.Attach, c.Offset = emulator.AttachMerged, true }},
	} {
		t.Run(m.name, func(t *testing.T) {
			if m.merged && os.Getenv("WAKEBUS_KILLS") == "" {
				t.Skip("only in a long run: WAKEBUS_KILLS is not set")
			}
			table := newTable()
			// Each round is a test of its own, so that its world ends before the next one's begins.
			for round := range (kills(t) + 1) / 2 {
				t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) { killRound(t, table, m) })
			}
			for _, hold := range []int64{20 << 10, 40 << 10} {
				t.Run(fmt.Sprintf("input up to %d", hold), func(t *testing.T) { inputRound(t, hold, table, m) })
			}
			t.Logf("state x outcome x count, %s:\n%s", m.name, table)
			table.keep(t, m.name)
		})
	}
}

// mode is how the service replays.
type mode struct {
	name   string
	change func(*emulator.Config)
	merged bool
}

// victim is a job that its worker dies with.
type victim struct {
	state
	job *rig.Job
}

// running reports that the command runs while nobody owns it.
func (v *victim) running() bool {
	return v.step == job.StepOpened || v.step == job.StepStarted || v.step == job.StepStreaming
}

// killRound lets one worker stop with two jobs in every state, kills it, and lets another carry all of them on.
func killRound(t *testing.T, table *table, m mode) {
	w := newWorld(t, workers(-1), emulated(m.change), func(c *instance.Config) { c.Settings["WAKEBUS_SLOTS"] = "128" })
	stops := map[string]job.Step{}
	for _, s := range states() {
		stops["k-"+s.name+"-"] = s.step
	}
	dying := w.process(rig.Spec{ID: "dying", Stops: stops})
	w.run("warm-up", "home", "true") // the shared conversation's Sprite stands
	holder := w.execAs(bus.ExecRequest{JobID: "holder", Shell: long("holder"), Stdin: stdin}, "waiter", "free")
	w.until(holder, bus.EventStderr)
	var victims []*victim
	var ids []string
	for _, s := range states() {
		for n := range 2 {
			v := w.victim(s, fmt.Sprintf("k-%s-%d", s.name, n))
			victims, ids = append(victims, v), append(ids, v.job.ID)
		}
	}
	for _, v := range victims {
		if v.canceled {
			w.until(v.job, bus.EventStarted)
			if err := w.Cancel(w.ctx, v.job.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := dying.Stopped(w.ctx, ids...); err != nil {
		t.Fatal(err)
	}
	dying.Kill()
	before := len(w.inst.Emulator().Calls())
	w.process(rig.Spec{ID: "taker"})
	victims = append(victims, &victim{state: state{name: "two streams flowing", step: job.StepStreaming, outcome: plan.OutcomeExited, code: longCode}, job: holder})
	running := 0
	for _, v := range victims {
		if v.running() {
			running++
			w.until(v.job, bus.EventTakenOver)
		}
	}
	w.joined(before, running)
	w.run("go-on", "home", "touch /workspace/go")
	for _, v := range victims {
		w.judge(v, table, m)
	}
	w.judgeRuns(victims)
}

// joined waits until the takers read the running commands' output again: one that ends before, on a machine that is very
// busy, has a gap with good reason.
func (w *world) joined(before, sessions int) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		found := map[string]bool{}
		for _, c := range w.inst.Emulator().Calls()[before:] {
			if c.Route == "exec.attach" && c.Status == http.StatusSwitchingProtocols {
				found[c.Session] = true
			}
		}
		if len(found) >= sessions {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("%d of %d sessions were joined again", len(found), sessions)
		}
	}
}

// inputRound kills a worker of which only a part of what it sent has arrived: its commands' input is not in, or not all of
// it, whatever the worker believes.
func inputRound(t *testing.T, hold int64, table *table, m mode) {
	w := newWorld(t, workers(-1), emulated(m.change))
	direct := w.process(rig.Spec{ID: "first"})
	w.run("warm-up", "home", "true")
	direct.Kill()
	proxy, env := w.proxy("SPRITES_API_URL", rig.ProxyConfig{HoldAfter: hold})
	dying := w.process(rig.Spec{ID: "dying", Env: env})
	s := state{name: "stdin half in", outcome: plan.OutcomeExited, code: longCode}
	var victims []*victim
	for n := range max(1, kills(t)/2) {
		victims = append(victims, w.victim(s, fmt.Sprintf("k-input-%d", n)))
	}
	if err := proxy.Held(w.ctx, len(victims)); err != nil {
		t.Fatal(err)
	}
	dying.Kill()
	w.process(rig.Spec{ID: "taker"})
	for _, v := range victims {
		w.until(v.job, bus.EventTakenOver)
	}
	w.run("go-on", "home", "touch /workspace/go")
	for _, v := range victims {
		w.judge(v, table, m)
	}
	w.judgeRuns(victims)
}

func (w *world) victim(s state, id string) *victim {
	w.t.Helper()
	req := bus.ExecRequest{JobID: id, ConversationID: "home", Shell: long(id), Stdin: stdin}
	if s.request != nil {
		s.request(&req)
	}
	if s.own {
		req.ConversationID = id
	}
	user, tier := "user-"+id, "business"
	if s.tier != "" {
		user, tier = "waiter", s.tier
	}
	return &victim{state: s, job: w.execAs(req, user, tier)}
}

// judge waits for a victim's result and holds it against what is right.
func (w *world) judge(v *victim, table *table, m mode) {
	w.t.Helper()
	r := w.wait(v.job)
	table.add(v.name, r)
	code := -1
	if r.ExitCode != nil {
		code = *r.ExitCode
	}
	if r.Outcome != v.outcome || code != v.code {
		w.t.Errorf("%s: %s (%s), want %s %d: %v", v.job.ID, rig.Says(r), r.Message, v.outcome, v.code, v.job.Kinds())
	}
	if !v.ended && len(v.job.Gaps) > 0 {
		w.t.Errorf("%s: gaps %+v", v.job.ID, v.job.Gaps)
	}
	if !v.ended && v.code == longCode {
		w.whole(v.job, m.merged)
	}
}

// whole checks that a long command's output is there from its first byte to its last, each once. Where the service
// replays both streams as one, nobody can tell them apart again; then the lines of both count together.
func (w *world) whole(j *rig.Job, merged bool) {
	w.t.Helper()
	var out, err strings.Builder
	for i := range 12 {
		fmt.Fprintf(&out, "out %d\n", i)
		fmt.Fprintf(&err, "err %d\n", i)
	}
	const sum = "3389318751 48000\n" // of stdin, by cksum
	same := string(j.Stdout) == sum+out.String() && string(j.Stderr) == err.String()
	if merged {
		same = slices.Equal(lines(string(j.Stdout)+string(j.Stderr)), lines(sum+out.String()+err.String()))
	}
	if !same {
		w.t.Errorf("%s: output is not what the command wrote:\n%s---\n%s", j.ID, j.Stdout, j.Stderr)
	}
}

func lines(text string) []string {
	l := strings.Split(text, "\n")
	slices.Sort(l)
	return l
}

// judgeRuns asks the sandbox how often each command ran.
func (w *world) judgeRuns(victims []*victim) {
	w.t.Helper()
	ran := map[string]int{}
	seen := map[string]bool{}
	for _, v := range victims {
		conversation := "home"
		if v.own {
			conversation = v.job.ID
		}
		if seen[conversation] {
			continue
		}
		seen[conversation] = true
		for _, id := range strings.Fields(string(w.run("count-"+conversation, conversation, "cat /workspace/runs").Stdout)) {
			ran[id]++
		}
	}
	for _, v := range victims {
		if ran[v.job.ID] != 1 {
			w.t.Errorf("%s ran %d times", v.job.ID, ran[v.job.ID])
		}
	}
}
