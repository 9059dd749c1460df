package job_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// replay does what an operator does: mark, then park. It reports false when another operator was first.
func (h *house) replay(t testing.TB, id, by string) bool {
	t.Helper()
	return h.replayUntil(t, id, by, 5*time.Minute)
}

func (h *house) replayUntil(t testing.TB, id, by string, patience time.Duration) bool {
	t.Helper()
	entry, err := h.bus.MarkReplaying(t.Context(), bus.LetterID{Tenant: tenant, Job: id}, bus.ReplayOptions{By: by})
	var refused *bus.ReplayRefused
	if errors.As(err, &refused) {
		return false
	}
	if err != nil {
		t.Error(err)
		return false
	}
	g := grant{"iss": "ops", "sub": by, "job": id}.header(t).Get(bus.HeaderGrant)
	if err := h.bus.ParkReplay(t.Context(), entry, bus.Replay{At: time.Now(), Deadline: time.Now().Add(patience), Grant: g}); err != nil {
		t.Error(err)
	}
	return true
}

// streams is a raw look at the broker, as no part of Wakebus has it.
func (h *house) streams(t testing.TB) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(h.inst.Env()["NATS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Replays of one user's jobs, started at once by two operators, wait for the user's only slot in place of being denied: each
// runs once. Their readable copies show neither environment nor stdin.
func TestReplaysOfOneUserWaitForTheSlotAndRunOnce(t *testing.T) {
	t.Parallel()
	const n = 5
	h := build(t, workers(2))
	h.fault(t, emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 400, Times: n})
	jobs := make([]*asked, n)
	for i := range jobs {
		id := "out" + strconv.Itoa(i)
		jobs[i] = h.exec(t, bus.ExecRequest{JobID: id, ConversationID: id, Shell: `echo x >>ran; wc -l <ran; echo "$MINE"; cat; sleep 0.2`,
			Env: map[string]string{"MINE": "env of " + id}, Stdin: []byte("stdin of " + id)}, grant{"sub": "ann"})
		outcome(t, jobs[i].result(), plan.OutcomeFailed, plan.ReasonProvisionFailed)
		l := h.deadLetter(t, id, bus.LetterDead)
		if l.Class != bus.ClassProvisionInvalid || l.Actor == nil || l.Actor.User != "ann" {
			t.Errorf("letter %s: class %s, actor %+v", id, l.Class, l.Actor)
		}
		if strings.Contains(string(l.Redacted), "env of") || strings.Contains(string(l.Redacted), base64.StdEncoding.EncodeToString([]byte("stdin of"))[:8]) {
			t.Error("the readable copy shows the environment or stdin")
		}
	}
	wins := make([]int, n)
	var mu sync.Mutex // protects wins
	var group sync.WaitGroup
	for _, who := range []string{"ann", "ben"} {
		group.Go(func() {
			for i, a := range jobs {
				if h.replay(t, a.job, who) {
					mu.Lock()
					wins[i]++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	waited := 0
	for i, a := range jobs {
		if wins[i] != 1 {
			t.Errorf("letter %s was replayed %d times", a.job, wins[i])
		}
		a.events = nil
		exited(t, a.result(), 0)
		if want := "1\nenv of " + a.job + "\nstdin of " + a.job; a.stdout() != want {
			t.Errorf("%s printed %q", a.job, a.stdout())
		}
		if slices.Contains(a.waits(), bus.WaitLimit) {
			waited++
		}
		h.deadLetter(t, a.job, bus.LetterResolved)
	}
	if waited == 0 {
		t.Error("no replay had to wait: this shows nothing")
	}
	h.free(t, h.leases(t))
	js := h.streams(t)
	var records map[string]map[string]any
	record := func(kind, job string) map[string]any { return records["sandbox.audit."+tenant+"."+kind+"."+job+".1"] }
	eventually(t, "every replay is in the audit trail, beside its run", func() bool {
		records = auditOf(t, h, js)
		return !slices.ContainsFunc(jobs, func(a *asked) bool { return record("run", a.job) == nil || record("replay", a.job) == nil })
	})
	for _, a := range jobs {
		r := record("replay", a.job)
		actor, _ := r["actor"].(map[string]any)
		if r["outcome"] != string(plan.OutcomeExited) || r["job_id"] != a.job || r["run"] != 1.0 || actor["user"] != "ann" || actor["operator"] == nil || r["usage"] != nil {
			t.Errorf("the replay of %s is recorded as %v", a.job, r)
		}
	}
}

// A replay that gets no slot until its deadline is dead again and says so; it does not wait for ever.
func TestAReplayWaitsForASlotUntilItsDeadlineOnly(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.fault(t, emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 400, Times: 1})
	a := h.exec(t, bus.ExecRequest{JobID: "late", ConversationID: "late", Shell: "true"}, grant{"sub": "ann"})
	outcome(t, a.result(), plan.OutcomeFailed, plan.ReasonProvisionFailed)
	h.deadLetter(t, "late", bus.LetterDead)
	first, release := h.latch(t, "c", grant{"sub": "ann"})
	if !h.replayUntil(t, "late", "ops", 2*time.Second) {
		t.Fatal("refused")
	}
	outcome(t, a.result(), plan.OutcomeExpired, "")
	if l := h.deadLetter(t, "late", bus.LetterDead); l.Class != bus.ClassReplayDenied || l.Step != "deadline" || l.Run != 1 {
		t.Errorf("letter: class %s, step %s, run %d", l.Class, l.Step, l.Run)
	}
	release()
	exited(t, first.result(), 0)
	h.free(t, h.leases(t))
}

// A terminal that could not be opened replays its provisioning, and gives the slot back: nobody waits for it.
func TestAReplayedTerminalReadiesItsSandboxAndKeepsNoSlot(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.fault(t, emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 400, Times: 1})
	a := h.publish(t, bus.KindTerminal, tenant, "open1", bus.TerminalRequest{V: 1, OpenID: "open1", PageID: "p", Cols: 80, Rows: 24}, grant{"sub": "ann", "page": "p"}.header(t))
	outcome(t, a.result(), plan.OutcomeFailed, plan.ReasonProvisionFailed)
	h.deadLetter(t, "open1", bus.LetterDead)
	if !h.replay(t, "open1", "ops") {
		t.Fatal("refused")
	}
	r := a.result()
	outcome(t, r, plan.OutcomeOpened, "")
	if r.LeaseTicket != nil || !h.exists(r.Sandbox) {
		t.Errorf("ticket %+v, sandbox %q", r.LeaseTicket, r.Sandbox)
	}
	h.deadLetter(t, "open1", bus.LetterResolved)
	h.free(t, h.leases(t))
}

// Case 74: while a dead letter cannot be stored its request stays, and afterwards there is one letter and no request.
func TestCase74ARequestStaysUntilItsDeadLetterIsSafe(t *testing.T) {
	t.Parallel()
	h := build(t)
	js := h.streams(t)
	if err := js.DeleteStream(t.Context(), bus.StreamDLQ); err != nil {
		t.Fatal(err)
	}
	h.fault(t, emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 400})
	a := h.exec(t, bus.ExecRequest{JobID: "kept", ConversationID: "c", Shell: "true"}, nil)
	outcome(t, a.result(), plan.OutcomeFailed, plan.ReasonProvisionFailed)
	eventually(t, "the letter's failure is noticed", func() bool { return strings.Contains(h.logs.String(), "dead letter not stored") })
	if n := waiting(t, js); n != 1 {
		t.Errorf("%d requests are in the queue", n)
	}
	if err := h.bus.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.deadLetter(t, "kept", bus.LetterDead)
	eventually(t, "the request is gone", func() bool { return waiting(t, js) == 0 })
	stream, err := js.Stream(t.Context(), bus.StreamDLQ)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 1 {
		t.Errorf("%d letters (%v)", info.State.Msgs, err)
	}
}

func waiting(t testing.TB, js jetstream.JetStream) uint64 {
	t.Helper()
	stream, err := js.Stream(t.Context(), bus.StreamSandbox)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

// Case 77: what the user did, or what was refused, leaves no dead letter.
func TestCase77UsersOwnFailuresLeaveNoDeadLetter(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "exit 3"), 3)
	outcome(t, h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "sleep 60", TimeoutMs: 100}, nil).result(), plan.OutcomeTimedOut, "")
	outcome(t, h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "true"}, grant{"verdict": plan.ReasonNoEditAccess}).result(), plan.OutcomeDenied, plan.ReasonNoEditAccess)
	a := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "echo up; sleep 60"}, nil)
	a.until(bus.EventStdout)
	if err := h.bus.MarkCancel(t.Context(), bus.CancelTarget{Tenant: tenant, Job: a.job}, bus.CancelRequest{By: "ann"}, nil); err != nil {
		t.Fatal(err)
	}
	outcome(t, a.result(), plan.OutcomeCanceled, "")
	stats, err := h.bus.LetterStats(t.Context(), bus.LetterFilter{})
	if err != nil || len(stats.ByState) != 0 {
		t.Errorf("dead letters: %v (%v)", stats.ByState, err)
	}
}

// everything reads all that a stream holds, headers and bodies.
func everything(ctx context.Context, t testing.TB, js jetstream.JetStream, name string) []*jetstream.RawStreamMsg {
	t.Helper()
	stream, err := js.Stream(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && seq > 0; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func auditOf(t testing.TB, h *house, js jetstream.JetStream) map[string]map[string]any {
	t.Helper()
	records := map[string]map[string]any{}
	for _, m := range everything(t.Context(), t, js, bus.StreamAudit) {
		var r map[string]any
		if err := json.Unmarshal(m.Data, &r); err != nil {
			t.Fatal(err)
		}
		if _, twice := records[m.Subject]; twice {
			t.Errorf("%s was recorded twice", m.Subject)
		}
		records[m.Subject] = r
	}
	return records
}
