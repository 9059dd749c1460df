package job_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

const ours = `"wakebus-deployment-mine"`

// stray makes a Sprite that Wakebus does not know of, and puts it to sleep.
func (h *house) stray(t testing.TB, name, labels string) {
	t.Helper()
	h.provider(t, http.MethodPost, "/v1/sprites", fmt.Sprintf(`{"name":%q,"labels":[%s]}`, name, labels))
	if err := h.inst.Emulator().Sleep(name); err != nil {
		t.Fatal(err)
	}
}

func sweeping(c *clock) []change {
	return []change{settings("WAKEBUS_DEPLOYMENT_ID", "mine"), eachWorker(func(_ int, cfg *job.Config) { cfg.Clock = c })}
}

func (h *house) sweeper(t testing.TB, n int) *job.Sweeper {
	t.Helper()
	s, err := h.inst.App(n).Worker().NewSweeper()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func swept(r *job.SweepReport) map[string]job.Swept {
	rows := map[string]job.Swept{}
	for _, row := range r.Rows {
		rows[row.Sandbox] = row
	}
	return rows
}

// Case 78: a sweep takes real orphans, seen twice and an hour apart, and nothing that lives: not another deployment's,
// not a page's, not one that a lease or a running job has, not one that is awake.
func TestCase78ASweepTakesOrphansAndNothingThatLives(t *testing.T) {
	t.Parallel()
	c := &clock{}
	h := build(t, append(sweeping(c), workers(2))...)
	exited(t, h.sh(t, "idle", "true"), 0)
	exited(t, h.sh(t, "awake", "true"), 0)
	long := h.exec(t, bus.ExecRequest{ConversationID: "long", Shell: "echo up; sleep 600", TimeoutMs: 600_000}, nil)
	long.until(bus.EventStdout)
	h.stray(t, "orphan", ours)
	h.stray(t, "foreign", `"wakebus-deployment-staging"`)
	h.stray(t, "nobodys", ``)
	h.stray(t, "leased", ours)
	h.stray(t, "page", ours)
	page := session.Key{Kind: plan.KindTerminal, Tenant: tenant, ID: "p"}
	hold := session.Hold{Run: "acme/open.0", Seq: 1}
	snap, err := h.links(t).BeginCreate(t.Context(), session.Snapshot{Key: page}, hold, "page", false)
	if err == nil {
		_, err = h.links(t).Commit(t.Context(), snap, hold, session.Live{Instance: "i", PolicyHash: "p", SetupDone: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	m := h.leases(t)
	if _, err := m.Acquire(t.Context(), lease.Request{ID: "acme.x.0.0", Owner: "w.e", Kind: lease.KindExec, Tenant: tenant, User: "ann", Sandbox: "leased",
		Scopes: lease.Scopes(lease.KindExec, tenant, "ann", "business", lease.DefaultLimits())}); err != nil {
		t.Fatal(err)
	}
	idle, running := h.name(t, "idle"), h.name(t, "long")
	if err := h.inst.Emulator().Sleep(idle); err != nil {
		t.Fatal(err)
	}
	first := h.sweeper(t, 0)
	if report, err := first.Sweep(t.Context()); err != nil || report.Doomed != 0 {
		t.Fatalf("before the expiry: %+v, %v", report, err)
	}
	c.forward(50 * time.Hour)
	report, err := first.Sweep(t.Context())
	if err != nil || report.Doomed != 0 {
		t.Fatalf("seen once: %+v, %v", report, err)
	}
	c.forward(2 * time.Hour)
	// Another worker goes on with what the first one saw. Two are doomed, and the budget of eight Sprites is one.
	report, err = h.sweeper(t, 1).Sweep(t.Context())
	if !errors.Is(err, job.ErrSweepStopped) || report.Doomed != 2 {
		t.Fatalf("over the budget: %d doomed, %v", report.Doomed, err)
	}
	if n := h.inst.Emulator().Count("sprite.delete", ""); n != 0 {
		t.Fatalf("%d deletes over the budget", n)
	}
	// With the stray orphan claimed by a link, the idle conversation's is the only one left.
	h.provider(t, http.MethodDelete, "/v1/sprites/orphan", "")
	report, err = h.sweeper(t, 1).Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := swept(report)
	if !rows[idle].Deleted || h.exists(idle) {
		t.Errorf("the idle conversation's: %+v", rows[idle])
	}
	if s := h.link(t, "idle").State(); s != plan.LinkNone {
		t.Errorf("its link is %s", s)
	}
	for _, name := range []string{"foreign", "nobodys", "leased", "page", running, h.name(t, "awake")} {
		if rows[name].Verdict != plan.SweepKeep || !h.exists(name) {
			t.Errorf("%s: %+v", name, rows[name])
		}
	}
	h.stray(t, "orphan2", ours)
	if report, err = first.Sweep(t.Context()); err != nil || report.Doomed != 0 {
		t.Fatalf("seen once: %+v, %v", report, err)
	}
	c.forward(2 * time.Hour)
	if report, err = first.Sweep(t.Context()); err != nil || !swept(report)["orphan2"].Deleted || h.exists("orphan2") {
		t.Errorf("a real orphan: %+v, %v", swept(report)["orphan2"], err)
	}
}

// An emptied Redis, and a job that has run for longer than the hard expiry with its Sprite's last activity long past:
// the journal knows it.
func TestASweepSparesARunningJobWhoseLeaseIsGone(t *testing.T) {
	t.Parallel()
	c := &clock{}
	h := build(t, sweeping(c)...)
	a := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "echo up; sleep 600", TimeoutMs: 600_000}, nil)
	a.until(bus.EventStdout)
	name := h.name(t, "c")
	s := h.sweeper(t, 0)
	h.inst.Redis().FlushAll()
	for range 2 {
		c.forward(50 * time.Hour)
		report, err := s.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), report); err != nil {
			t.Fatal(err)
		}
	}
	if !h.exists(name) || h.inst.Emulator().Count("sprite.delete", "") != 0 {
		t.Error("the Sprite of a running job was deleted")
	}
}

// A listing that is cut short, or fails, deletes nothing, and the alarm is counted.
func TestASweepByAPartialListingDeletesNothing(t *testing.T) {
	t.Parallel()
	c := &clock{}
	h := build(t, sweeping(c)...)
	h.stray(t, "orphan", ours)
	s := h.sweeper(t, 0)
	for range 2 {
		c.forward(50 * time.Hour)
		if _, err := s.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.forward(50 * time.Hour)
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.forward(50 * time.Hour)
	for name, answer := range map[string]emulator.Fault{
		"fails":        {Status: 400},
		"is cut short": {Status: 200, Body: `{"sprites":[],"has_more":true,"next_continuation_token":null}`},
	} {
		answer.Route, answer.Do = "sprite.list", emulator.FaultStatus
		h.fault(t, answer)
		if _, err := s.Sweep(t.Context()); !errors.Is(err, job.ErrSweepStopped) {
			t.Errorf("a listing that %s: got %v", name, err)
		}
		if !h.exists("orphan") {
			t.Errorf("an orphan was deleted by a listing that %s", name)
		}
		h.inst.Emulator().ClearFaults()
	}
	if report, err := s.Sweep(t.Context()); err != nil || !swept(report)["orphan"].Deleted {
		t.Errorf("afterwards: %+v, %v", report, err)
	}
}

// A conversation that was revived after an end goes like any other once it is idle for too long, and begins anew after.
func TestASweepTakesAConversationThatWasRevivedAfterAnEnd(t *testing.T) {
	t.Parallel()
	c := &clock{}
	h := build(t, sweeping(c)...)
	exited(t, h.sh(t, "c", "true"), 0)
	outcome(t, h.end(t, "c"), plan.OutcomeEnded, "")
	exited(t, h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "true", FreshStart: true}, nil).result(), 0)
	name := h.link(t, "c").Link.Sandbox
	if err := h.inst.Emulator().Sleep(name); err != nil {
		t.Fatal(err)
	}
	h.free(t, h.leases(t))
	s := h.sweeper(t, 0)
	c.forward(50 * time.Hour)
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.forward(2 * time.Hour)
	report, err := s.Sweep(t.Context())
	if err != nil || !swept(report)[name].Deleted || h.exists(name) {
		t.Fatalf("got %+v, %v", swept(report)[name], err)
	}
	c.ahead.Store(0)
	r := h.sh(t, "c", "true")
	exited(t, r, 0)
	if !r.Fresh {
		t.Error("its next Sprite is not said to be fresh")
	}
}
