package job_test

import (
	"errors"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// Case 31: an end is final and may be repeated; only a fresh start begins anew.
func TestCase31AnEndIsFinalAndIdempotent(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "echo kept >f"), 0)
	// Authorisation gates use, never clean-up: the verdict does not matter.
	id := h.id("end")
	header := grant{"sub": "gone", "verdict": plan.ReasonNoEditAccess}.header(t)
	r := h.publish(t, bus.KindEnd, tenant, id, bus.EndRequest{V: 1, JobID: id, ConversationID: "c"}, header).result()
	outcome(t, r, plan.OutcomeEnded, "")
	if r.Plan != plan.ActionTeardown || r.Pending == nil || *r.Pending || h.exists(h.name(t, "c")) {
		t.Fatalf("plan %s, pending %v", r.Plan, r.Pending)
	}
	calls := len(h.inst.Emulator().Calls())
	if r = h.end(t, "c"); r.Plan != plan.ActionNoop {
		t.Errorf("the second end: plan %s", r.Plan)
	}
	outcome(t, h.sh(t, "c", "true"), plan.OutcomeDenied, plan.ReasonSessionEnded)
	_, err := h.bus.FileRead(t.Context(), tenant, nil, bus.FileReadParams{ConversationID: "c", Path: "f"})
	var no *bus.EndpointError
	if !errors.As(err, &no) || no.Reason != plan.ReasonSessionEnded {
		t.Errorf("a read of an ended session: %v", err)
	}
	if n := len(h.inst.Emulator().Calls()) - calls; n != 0 {
		t.Errorf("%d calls for an ended session", n)
	}
	r = h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "cat f", FreshStart: true}, nil).result()
	exited(t, r, 1)
	if !r.Fresh || r.Why != plan.WhyFreshStart {
		t.Errorf("the fresh start: plan %s (%s), fresh %v", r.Plan, r.Why, r.Fresh)
	}
	exited(t, h.sh(t, "c", "true"), 0)
}

// An end stops what runs in the session, and says whose jobs it stopped.
func TestAnEndStopsWhatRuns(t *testing.T) {
	t.Parallel()
	h := build(t)
	a := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "echo up; sleep 600", TimeoutMs: 600_000}, nil)
	a.until(bus.EventStdout)
	ended := h.end(t, "c")
	outcome(t, ended, plan.OutcomeEnded, "")
	if len(ended.Canceled) != 1 || ended.Canceled[0] != a.job {
		t.Errorf("canceled: %v, want %s", ended.Canceled, a.job)
	}
	r := a.result()
	if r.Outcome != plan.OutcomeCanceled || r.Run.Stop == nil || r.Run.Stop.Reason != plan.StopSessionEnded {
		t.Errorf("the job: %s, stop %+v", says(r), r.Run.Stop)
	}
	if h.exists(h.name(t, "c")) {
		t.Error("the Sprite is still there")
	}
}

// Case 36: a provider that never answers a delete holds nobody up; the record stays until the Sprite is gone.
func TestCase36AnEndThatCannotBeConfirmedIsPending(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "true"), 0)
	name := h.name(t, "c")
	h.fault(t, emulator.Fault{Route: "sprite.delete", Sprite: name, Do: emulator.FaultHang})
	r := h.end(t, "c")
	outcome(t, r, plan.OutcomeEnded, "")
	if r.Pending == nil || !*r.Pending || !h.exists(name) {
		t.Fatalf("pending %v, the Sprite exists: %v", r.Pending, h.exists(name))
	}
	if l := h.link(t, "c").Link; l.State != plan.LinkTearingDown || l.Reclaim == nil || l.Reclaim.Tries != 1 {
		t.Fatalf("the link is %s, reclaim %+v", l.State, l.Reclaim)
	}
	// Nothing is made under the name meanwhile.
	outcome(t, h.sh(t, "c", "true"), plan.OutcomeDenied, plan.ReasonSessionEnded)
	h.inst.Emulator().ClearFaults()
	if n := h.teardowns(t, string(plan.WhySessionEnd)); n != 0 {
		t.Errorf("%d records of a tear-down that is pending", n)
	}
	if err := h.inst.App(0).Worker().ReclaimOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.teardowns(t, string(plan.WhySessionEnd)); n != 1 {
		t.Errorf("%d records of a tear-down that was finished", n)
	}
	if h.exists(name) {
		t.Error("the Sprite is still there")
	}
	if s := h.link(t, "c").State(); s != plan.LinkEnded {
		t.Errorf("the link is %s", s)
	}
}

// Case 35: while a reclaim may still have a delete on its way, nobody makes the next Sprite of that name.
func TestCase35AStaleTearDownNeverHitsTheNextSprite(t *testing.T) {
	t.Parallel()
	h := build(t)
	exited(t, h.sh(t, "c", "true"), 0)
	name := h.name(t, "c")
	h.fault(t, emulator.Fault{Route: "sprite.delete", Sprite: name, Do: emulator.FaultHang, Times: 1},
		emulator.Fault{Route: "sprite.delete", Sprite: name, Do: emulator.FaultDelay, Delay: 1500 * 1_000_000, Times: 1})
	if r := h.end(t, "c"); r.Pending == nil || !*r.Pending {
		t.Fatalf("got %s", says(r))
	}
	done := make(chan error, 1)
	go func() { done <- h.inst.App(0).Worker().ReclaimOnce(t.Context()) }()
	eventually(t, "the reclaim deletes", func() bool { return h.inst.Emulator().Count("sprite.delete", name) == 2 })
	r := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "true", FreshStart: true}, nil).result()
	exited(t, r, 0)
	if err := <-done; err != nil {
		t.Error(err)
	}
	exited(t, h.sh(t, "c", "true"), 0)
	if l := h.link(t, "c").Link; l.State != plan.LinkLive || !h.exists(name) {
		t.Errorf("the link is %s, the Sprite exists: %v", l.State, h.exists(name))
	}
	if n := h.inst.Emulator().Count("sprite.delete", name); n != 2 {
		t.Errorf("%d deletes", n)
	}
}
