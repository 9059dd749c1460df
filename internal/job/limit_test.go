package job_test

import (
	"context"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// latch is a command that runs until release is called.
func (h *house) latch(t testing.TB, conversation string, g grant) (a *asked, release func()) {
	t.Helper()
	a = h.exec(t, bus.ExecRequest{ConversationID: conversation, Shell: "echo up; until [ -e go ]; do sleep 0.05; done", TimeoutMs: 300_000}, g)
	a.until(bus.EventStdout)
	return a, func() {
		t.Helper()
		if _, err := h.bus.FileWrite(t.Context(), tenant, nil, bus.FileWriteParams{ConversationID: conversation, Path: "go"}, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

func soon(d time.Duration) *time.Time {
	at := time.Now().Add(d)
	return &at
}

// A run that may wait is parked, holds no slot, and starts when one is free; who cancels or comes too late while parked
// ends without starting, and keeps no place in the line.
func TestARunWaitsForASlotWithoutHoldingOne(t *testing.T) {
	t.Parallel()
	h := build(t)
	who := grant{"sub": "ann"}
	first, release := h.latch(t, "c", who)
	wait := bus.ExecRequest{ConversationID: "c", Shell: "echo ran", OnLimit: "wait", Deadline: soon(5 * time.Minute)}
	canceled, late, second := wait, wait, wait
	late.Deadline = soon(3 * time.Second)
	inTheWay := h.exec(t, canceled, who)
	inTheWay.until(bus.EventWaiting)
	expired := h.exec(t, late, who)
	expired.until(bus.EventWaiting)
	waiting := h.exec(t, second, who)
	waiting.until(bus.EventWaiting)
	m := h.leases(t)
	if got := h.held(t, m); len(got) != 1 {
		t.Errorf("leases while one runs and three wait: %v", got)
	}
	if err := h.bus.MarkCancel(t.Context(), bus.CancelTarget{Tenant: tenant, Job: inTheWay.job}, bus.CancelRequest{By: "ann"}, nil); err != nil {
		t.Fatal(err)
	}
	outcome(t, inTheWay.result(), plan.OutcomeCanceled, "")
	outcome(t, expired.result(), plan.OutcomeExpired, "")
	release()
	exited(t, first.result(), 0)
	freed := time.Now()
	exited(t, waiting.result(), 0)
	t.Logf("a freed slot was taken and its command had ended after %s", time.Since(freed).Round(time.Millisecond))
	if got := waiting.stdout(); got != "ran\n" {
		t.Errorf("it printed %q", got)
	}
	h.free(t, m)
}

// A slot may be freed after a run was refused and before it is parked. Its call then finds nothing to wake, and must not
// be lost: the run's own look comes too late for its deadline.
func TestASlotFreedWhileARunIsBeingParkedIsTaken(t *testing.T) {
	t.Parallel()
	var free func()
	var once sync.Once
	h := build(t, workers(1), eachWorker(func(_ int, c *job.Config) {
		c.Step = func(_ context.Context, s job.Step, k bus.RunKey) error {
			if s == job.StepParked && k.Job == "waiter" {
				once.Do(free)
			}
			return nil
		}
	}))
	l, err := h.leases(t).Acquire(t.Context(), lease.Request{ID: tenant + ".holder.0.1", Kind: lease.KindExec, Tenant: tenant, User: "ann",
		Scopes: []lease.Scope{lease.UserScope(lease.KindExec, tenant, "ann", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	free = func() {
		if ok, err := l.Release(context.Background()); !ok || err != nil {
			t.Errorf("release: %v %v", ok, err)
		}
		for !slices.ContainsFunc(h.inst.Redis().Keys(), func(k string) bool { return strings.Contains(k, ":k:") }) {
			if t.Context().Err() != nil {
				return
			}
			runtime.Gosched() // until a worker has taken the call
		}
		time.Sleep(300 * time.Millisecond) // nothing says that it has looked for the run and found none
	}
	exited(t, h.exec(t, bus.ExecRequest{JobID: "waiter", ConversationID: "c", Shell: "true", OnLimit: "wait", Deadline: soon(20 * time.Second)},
		grant{"sub": "ann"}).result(), 0)
}

// A tenant has a bounded number of places to wait in; who comes after that is told so.
func TestOnlySoManyOfATenantsRunsWait(t *testing.T) {
	t.Parallel()
	h := build(t, settings("WAKEBUS_TENANT_BACKLOG", "2"))
	who := grant{"sub": "ann"}
	first, release := h.latch(t, "c", who)
	wait := bus.ExecRequest{ConversationID: "c", Shell: "true", OnLimit: "wait", Deadline: soon(5 * time.Minute)}
	var waiting []*asked
	for range 2 {
		a := h.exec(t, wait, who)
		a.until(bus.EventWaiting)
		waiting = append(waiting, a)
	}
	r := h.exec(t, wait, who).result()
	outcome(t, r, plan.OutcomeDenied, plan.ReasonRateLimited)
	if !r.Retryable || r.RetryAfterMs <= 0 {
		t.Errorf("retryable %v, after %d ms", r.Retryable, r.RetryAfterMs)
	}
	release()
	for _, a := range append(waiting, first) {
		exited(t, a.result(), 0)
	}
}

// While the provider is away a tenant's runs wait, but only so many are parked: the rest stays in the tenant's own
// backlog, and none is lost.
func TestAnOutageParksOnlySoManyOfATenantsRuns(t *testing.T) {
	t.Parallel()
	h := build(t, settings("WAKEBUS_TENANT_BACKLOG", "3"))
	h.fault(t, emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 409})
	var jobs []*asked
	for i := range 6 {
		a := h.exec(t, bus.ExecRequest{ConversationID: "c" + strconv.Itoa(i), Shell: "true"}, grant{"sub": "u" + strconv.Itoa(i)})
		a.until(bus.EventWaiting)
		jobs = append(jobs, a)
		if n, err := h.bus.Parked(t.Context(), tenant); err != nil || n > 3 {
			t.Fatalf("%d runs are parked (%v)", n, err)
		}
	}
	h.inst.Emulator().ClearFaults()
	for _, a := range jobs {
		exited(t, a.result(), 0)
	}
}

// A denial says who is in the way; of the whole deployment's limit it names nobody of another tenant.
func TestADenialNamesNoOtherTenantsJobs(t *testing.T) {
	t.Parallel()
	h := build(t, settings("WAKEBUS_LIMIT_GLOBAL", "2"))
	theirs := h.execFor(t, "other", bus.ExecRequest{JobID: "merger-talks", ConversationID: "o", Shell: "echo up; sleep 60"}, grant{"sub": "bob"})
	theirs.until(bus.EventStdout)
	own := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "echo up; sleep 60"}, grant{"sub": "ann"})
	own.until(bus.EventStdout)
	r := h.exec(t, bus.ExecRequest{ConversationID: "d", Shell: "true"}, grant{"sub": "eve"}).result()
	outcome(t, r, plan.OutcomeDenied, plan.ReasonConcurrencyLimit)
	if !strings.Contains(r.Message, "global") || !strings.Contains(r.Message, own.job) || strings.Contains(r.Message, theirs.job) {
		t.Errorf("the denial says %q", r.Message)
	}
	for whose, a := range map[string]*asked{"other": theirs, tenant: own} {
		if err := h.bus.MarkCancel(t.Context(), bus.CancelTarget{Tenant: whose, Job: a.job}, bus.CancelRequest{}, nil); err != nil {
			t.Fatal(err)
		}
		outcome(t, a.result(), plan.OutcomeCanceled, "")
	}
}

// Commands one after another at a limit of one, each sent on seeing the last one's result: none is denied, because the
// slot goes back before the result is said.
func TestCommandsInARowAtALimitOfOneAreNeverDenied(t *testing.T) {
	t.Parallel()
	n := 100
	if v := os.Getenv("WAKEBUS_TEST_COMMANDS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	h := build(t, emulated(func(c *emulator.Config) { c.Instant = true }))
	for range n {
		exited(t, h.exec(t, bus.ExecRequest{ConversationID: "c", Argv: []string{"true"}}, nil).result(), 0)
	}
	m := h.leases(t)
	h.free(t, m)
}

// Case 48: Redis away is not a limit: nothing is denied, created or dead-lettered, and the run goes on afterwards.
func TestCase48AnOutageOfRedisDeniesNobody(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "true"), 0)
	creates := h.inst.Emulator().Count("sprite.create", "")
	h.inst.Redis().SetError("LOADING Redis is loading the dataset in memory")
	a := h.exec(t, bus.ExecRequest{ConversationID: "d", Shell: "echo ran"}, nil)
	eventually(t, "the worker stops admitting", func() bool { return h.inst.App(0).Worker().Ready() != nil })
	if n := h.inst.Emulator().Count("sprite.create", ""); n != creates {
		t.Errorf("%d creates without Redis's word", n-creates)
	}
	h.inst.Redis().SetError("")
	exited(t, a.result(), 0)
	stats, err := h.bus.LetterStats(t.Context(), bus.LetterFilter{})
	if err != nil || len(stats.ByState) != 0 {
		t.Errorf("dead letters: %v (%v)", stats.ByState, err)
	}
}

// Case 22: after the provider's creation limit each tenant has a share of creations, so that one tenant's many
// conversations cannot starve another's first.
func TestCase22OneTenantsCreationsLeaveAnothersItsShare(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.fault(t, emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 429, Times: 1, Headers: map[string]string{"Retry-After": "1"},
		Body: `{"error":"sprite_creation_rate_limited","retry_after_seconds":1}`})
	first := h.execFor(t, "greedy", bus.ExecRequest{JobID: "g", ConversationID: "g", Shell: "true"}, grant{"sub": "g"})
	exited(t, first.result(), 0)
	if !slices.Contains(first.waits(), bus.WaitRate) {
		t.Fatalf("it waited for %v", first.waits())
	}
	var many []*asked
	for i := range 8 {
		id := "g" + strconv.Itoa(i)
		many = append(many, h.execFor(t, "greedy", bus.ExecRequest{JobID: id, ConversationID: id, Shell: "true"}, grant{"sub": id}))
	}
	for _, a := range many {
		a.first(bus.EventWaiting, bus.EventResult)
	}
	modest := h.execFor(t, "modest", bus.ExecRequest{JobID: "m", ConversationID: "m", Shell: "true"}, grant{"sub": "m"})
	exited(t, modest.result(), 0)
	if waits := modest.waits(); len(waits) > 0 {
		t.Errorf("another tenant's first creation waited for %v", waits)
	}
	var since time.Time
	made := 0
	for _, call := range h.inst.Emulator().Calls() {
		switch {
		case call.Route != "sprite.create":
		case call.Status == http.StatusTooManyRequests:
			since = call.Time
		default:
			made++
			if share := 5 + call.Time.Sub(since).Seconds()/12; float64(made) > share+2 { // one met the limit before it held, one is the modest tenant's
				t.Errorf("%d creations %s after the limit; a share is five, and five a minute", made, call.Time.Sub(since))
			}
		}
	}
}
