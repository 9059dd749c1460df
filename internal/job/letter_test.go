package job_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// replay does what an operator does: mark, then park. It reports false when another operator was first.
func (h *house) replay(t testing.TB, id, by string) bool {
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
	if err := h.bus.ParkReplay(t.Context(), entry, bus.Replay{At: time.Now(), Deadline: time.Now().Add(5 * time.Minute), Grant: g}); err != nil {
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

// During an outage every job ends in a letter; a canary stops at its first failures; afterwards all are replayed, each
// runs once, with the environment and stdin of its first request, and of two operators each letter has one.
// It is not parallel: its many worlds in one would starve the others of two cores.
func TestAnOutageEndsInLettersThatReplayOnce(t *testing.T) {
	n := 8
	if v := os.Getenv("WAKEBUS_TEST_OUTAGE_JOBS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	c := &clock{}
	h := build(t, workers(2), settings("WAKEBUS_TENANT_BACKLOG", "2000"), eachWorker(func(_ int, cfg *job.Config) { cfg.Clock = c }),
		eachApp(func(_ int, a *job.AppConfig) {
			a.Sprites = func(sc *sprites.Config) {
				sc.Sleep = func(ctx context.Context, d time.Duration) error {
					if c.ahead.Load() < 0 {
						return ctx.Err()
					}
					t := time.NewTimer(d)
					defer t.Stop()
					select {
					case <-t.C:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}
		}))
	h.fault(t, emulator.Fault{Route: "sprite.*", Do: emulator.FaultStatus, Status: 503})
	// A clock that is behind makes each wait due at once: the outage lasts for hours in a moment.
	c.ahead.Store(-int64(time.Hour))
	jobs := make([]*asked, n)
	for i := range jobs {
		id := "out" + strconv.Itoa(i)
		jobs[i] = h.exec(t, bus.ExecRequest{JobID: id, ConversationID: id, Shell: `echo x >>ran; wc -l <ran; echo "$MINE"; cat`,
			Env: map[string]string{"MINE": "env of " + id}, Stdin: []byte("stdin of " + id)}, grant{"sub": id})
	}
	for _, a := range jobs {
		r := a.result()
		outcome(t, r, plan.OutcomeFailed, plan.ReasonProvisionFailed)
		l := h.deadLetter(t, a.job, bus.LetterDead)
		if l.Class != bus.ClassProvisionUnavailable || l.AttemptCount < 6 || l.Actor == nil || l.Actor.User != a.job {
			t.Errorf("letter %s: class %s, %d attempts, actor %+v", a.job, l.Class, l.AttemptCount, l.Actor)
		}
		if strings.Contains(string(l.Redacted), "env of") || strings.Contains(string(l.Redacted), base64.StdEncoding.EncodeToString([]byte("stdin of"))[:8]) {
			t.Error("the readable copy shows the environment or stdin")
		}
	}
	// Four tries in each of six attempts would be the calls without a breaker.
	if calls := h.inst.Emulator().Count("sprite.*", ""); calls >= n*24 {
		t.Errorf("%d calls: no breaker opened", calls)
	}
	canary := min(3, n)
	for _, a := range jobs[:canary] {
		h.replay(t, a.job, "ops")
	}
	failures := 0
	for _, a := range jobs[:canary] {
		if r := a.result(); r.Outcome == plan.OutcomeFailed {
			failures++
			if l := h.deadLetter(t, a.job, bus.LetterDead); l.Run != 1 {
				t.Errorf("letter %s is about run %d", a.job, l.Run)
			}
		}
	}
	if failures != canary {
		t.Fatalf("%d of %d canaries failed during the outage", failures, canary)
	}
	h.inst.Emulator().ClearFaults()
	c.ahead.Store(0)
	h.inst.Redis().FlushAll() // the breaker opens by its probes within half a minute; the test does not wait for it
	wins := make([]int, n)
	var mu sync.Mutex
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
	for i, a := range jobs {
		if wins[i] != 1 {
			t.Errorf("letter %s was replayed %d times", a.job, wins[i])
		}
		a.events = nil
		exited(t, a.result(), 0)
		if want := "1\nenv of " + a.job + "\nstdin of " + a.job; a.stdout() != want {
			t.Errorf("%s printed %q", a.job, a.stdout())
		}
		h.deadLetter(t, a.job, bus.LetterResolved)
	}
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
