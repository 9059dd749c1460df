package job_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// provider does something at the provider that Wakebus does not know of.
func (h *house) provider(t testing.TB, method, path, body string) {
	t.Helper()
	e := h.inst.Emulator()
	req, err := http.NewRequestWithContext(t.Context(), method, e.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+e.Token())
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s", method, path, resp.Status)
	}
}

// Case 29: no idle span short of the hard expiry costs anybody a file; past it the caller is told.
func TestCase29IdlenessKeepsTheFilesUntilTheHardExpiry(t *testing.T) {
	t.Parallel()
	c := &clock{}
	h := build(t, eachWorker(func(_ int, cfg *job.Config) { cfg.Clock = c }))
	first := h.sh(t, "c", "echo kept >f")
	exited(t, first, 0)
	if !first.Fresh || first.Plan != plan.ActionCreate || first.Why != plan.WhyNew {
		t.Errorf("the first run: plan %s (%s), fresh %v", first.Plan, first.Why, first.Fresh)
	}
	// The worker's clock alone goes ahead; the link's last use stays where it was.
	for _, idle := range []time.Duration{6 * time.Hour, 23*time.Hour + 50*time.Minute} {
		c.ahead.Store(int64(idle))
		r := h.sh(t, "c", "cat f")
		exited(t, r, 0)
		if r.Plan != plan.ActionResume || r.Why != plan.WhyIdle || r.Fresh {
			t.Errorf("idle for %s: plan %s (%s), fresh %v", idle, r.Plan, r.Why, r.Fresh)
		}
	}
	if n := h.inst.Emulator().Count("sprite.delete", ""); n != 0 {
		t.Fatalf("%d deletes", n)
	}
	c.ahead.Store(int64(25 * time.Hour))
	r := h.sh(t, "c", "cat f")
	exited(t, r, 1)
	if r.Why != plan.WhyHardExpiry || !r.Fresh || r.Sandbox != first.Sandbox {
		t.Errorf("past the expiry: plan %s (%s), fresh %v, sandbox %s", r.Plan, r.Why, r.Fresh, r.Sandbox)
	}
	if n := h.teardowns(t, string(plan.WhyHardExpiry)); n != 1 {
		t.Errorf("%d records of the tear-down", n)
	}
}

// Case 29: a command may run for longer than the hard expiry, and the session is idle from its end.
func TestCase29AConversationWhoseCommandRunsIsNotIdle(t *testing.T) {
	t.Parallel()
	c := &clock{}
	h := build(t, settings("WAKEBUS_HARD_EXPIRY", "1h"), eachWorker(func(_ int, cfg *job.Config) { cfg.Clock = c }))
	who := grant{"sub": "ann", "tier": "business"}
	exited(t, h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "mkfifo go"}, who).result(), 0)
	long := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "read line <go; echo kept >f", TimeoutMs: int64(12 * time.Hour / time.Millisecond)}, who)
	long.until(bus.EventStarted)
	c.forward(2 * time.Hour)
	r := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "echo >go"}, who).result()
	exited(t, r, 0)
	if r.Plan != plan.ActionResume || r.Fresh {
		t.Fatalf("beside a running command: plan %s (%s), fresh %v", r.Plan, r.Why, r.Fresh)
	}
	exited(t, long.result(), 0)
	if n := h.inst.Emulator().Count("sprite.delete", ""); n != 0 {
		t.Errorf("%d deletes", n)
	}
}

// teardowns counts the recorded tear-downs of one why.
func (h *house) teardowns(t testing.TB, why string) int {
	t.Helper()
	n := 0
	for subject, r := range auditOf(t, h, h.streams(t)) {
		if strings.HasPrefix(subject, "sandbox.audit."+tenant+".teardown.") && r["why"] == why && r["outcome"] == string(plan.OutcomeEnded) {
			n++
		}
	}
	return n
}

func TestCase29ASessionIsIdleFromTheEndOfItsLastCommand(t *testing.T) {
	t.Parallel()
	c := &clock{}
	h := build(t, eachWorker(func(_ int, cfg *job.Config) { cfg.Clock = c }))
	long := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "sleep 600", TimeoutMs: int64(12 * time.Hour / time.Millisecond)}, grant{"sub": "ann", "tier": "business"})
	long.until(bus.EventStarted)
	began := time.Now().Add(-3 * time.Hour)
	past, err := session.New(h.bus.Links(), session.Config{Now: func() time.Time { return began }})
	if err != nil {
		t.Fatal(err)
	}
	had := h.link(t, "c")
	l := had.Link
	if _, err := past.Amend(t.Context(), had, session.Live{Instance: l.Instance, Generation: l.Generation, PolicyHash: l.PolicyHash, SetupDone: l.SetupDone, HasBash: l.HasBash}); err != nil {
		t.Fatal(err)
	}
	c.forward(3 * time.Hour)
	if err := h.bus.MarkCancel(t.Context(), bus.CancelTarget{Tenant: tenant, Job: long.job}, bus.CancelRequest{By: "ann"}, nil); err != nil {
		t.Fatal(err)
	}
	if r := long.result(); r.Outcome != plan.OutcomeCanceled {
		t.Fatal(says(r))
	}
	if got := h.link(t, "c").Link; !got.LastActive.After(began) {
		t.Errorf("last active %s, as when it began", got.LastActive)
	}
}

// Case 32: what the link names may be gone; it is made anew once, and the caller is told.
func TestCase32ASpriteThatIsGoneIsMadeAnewOnce(t *testing.T) {
	t.Parallel()
	h := build(t)
	first := h.sh(t, "c", "echo kept >f")
	exited(t, first, 0)
	h.provider(t, http.MethodDelete, "/v1/sprites/"+first.Sandbox, "")
	r := h.sh(t, "c", "cat f")
	exited(t, r, 1)
	if r.Why != plan.WhyGone || !r.Fresh || r.Plan != plan.ActionCreate {
		t.Errorf("plan %s (%s), fresh %v", r.Plan, r.Why, r.Fresh)
	}
	if n := h.inst.Emulator().Count("sprite.create", first.Sandbox); n != 2 {
		t.Errorf("%d creates", n)
	}
	if got := h.link(t, "c").Link; got.State != plan.LinkLive || got.Instance == first.Run.Instance {
		t.Errorf("the link is %s with instance %s", got.State, got.Instance)
	}
	// Gone for good: after one new one nothing is made again.
	h.fault(t, emulator.Fault{Route: "sprite.get", Sprite: first.Sandbox, Do: emulator.FaultStatus, Status: 404})
	before := h.inst.Emulator().Count("sprite.create", first.Sandbox)
	h.fault(t, emulator.Fault{Route: "sprite.create", Sprite: first.Sandbox, Do: emulator.FaultStatus, Status: 201,
		Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"name":"` + first.Sandbox + `","id":"another","status":"running"}`})
	_ = h.sh(t, "c", "true")
	if n := h.inst.Emulator().Count("sprite.create", first.Sandbox) - before; n > 1 {
		t.Errorf("%d creates for one run", n)
	}
}

// Case 26: only 404 and 410 mean gone. Whatever else the control plane answers, the link stays, nothing is created and
// nothing deleted.
func TestCase26AProviderThatCannotBeReachedCostsNobodyASandbox(t *testing.T) {
	t.Parallel()
	h := build(t)
	for name, f := range map[string]emulator.Fault{
		"refused":      {Do: emulator.FaultStatus, Status: 401},
		"forbidden":    {Do: emulator.FaultStatus, Status: 403},
		"broken":       {Do: emulator.FaultStatus, Status: 500, Times: 4},
		"rate limited": {Do: emulator.FaultStatus, Status: 429, Times: 4},
		"dropped":      {Do: emulator.FaultDrop, Times: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := h.id("c")
			who := grant{"sub": c}
			first := h.exec(t, bus.ExecRequest{ConversationID: c, Shell: "echo kept >f"}, who).result()
			exited(t, first, 0)
			f.Route, f.Sprite = "sprite.get", first.Sandbox
			h.fault(t, f)
			r := h.exec(t, bus.ExecRequest{ConversationID: c, Shell: "cat f"}, who).result()
			if f.Times == 0 {
				outcome(t, r, plan.OutcomeFailed, plan.ReasonMisconfigured)
			} else {
				exited(t, r, 0)
			}
			if got := h.link(t, c).Link; got.State != plan.LinkLive || got.Sandbox != first.Sandbox {
				t.Errorf("the link is %s to %q", got.State, got.Sandbox)
			}
			if n := h.inst.Emulator().Count("sprite.create", first.Sandbox); n != 1 {
				t.Errorf("%d creates", n)
			}
			if n := h.inst.Emulator().Count("sprite.delete", first.Sandbox); n != 0 {
				t.Errorf("%d deletes", n)
			}
		})
	}
}

// Case 23: a create whose answer was lost, and a name that is taken, both end in adoption with the lockdown applied.
func TestCase23AnExistingSpriteIsAdopted(t *testing.T) {
	t.Parallel()
	h := build(t)
	t.Run("its answer was lost", func(t *testing.T) {
		t.Parallel()
		name := h.name(t, "lost")
		h.fault(t, emulator.Fault{Route: "sprite.create", Sprite: name, Do: emulator.FaultLost, Times: 1})
		r := h.exec(t, bus.ExecRequest{ConversationID: "lost", Shell: "true"}, grant{"sub": "a"}).result()
		exited(t, r, 0)
		adopted(t, h, r, name)
	})
	t.Run("the name was taken", func(t *testing.T) {
		t.Parallel()
		name := h.name(t, "taken")
		h.provider(t, http.MethodPost, "/v1/sprites", `{"name":"`+name+`"}`)
		r := h.exec(t, bus.ExecRequest{ConversationID: "taken", Shell: "true"}, grant{"sub": "b"}).result()
		exited(t, r, 0)
		adopted(t, h, r, name)
	})
}

func adopted(t *testing.T, h *house, r bus.ResultBody, name string) {
	t.Helper()
	if r.Sandbox != name || r.Plan != plan.ActionCreate || r.Why != plan.WhyAdopted || r.Fresh {
		t.Errorf("plan %s (%s), fresh %v, sandbox %s", r.Plan, r.Why, r.Fresh, r.Sandbox)
	}
	if n := h.inst.Emulator().Count("policy.network.set", name); n != 1 {
		t.Errorf("the lockdown was applied %d times", n)
	}
	if n := h.inst.Emulator().Count("sprite.delete", name); n != 0 {
		t.Errorf("%d deletes", n)
	}
}

// Case 21: a fresh Sprite that cannot be locked down is destroyed; one that had a life before is refused and kept.
func TestCase21OnlyAFreshSpriteIsDeletedWhenItCannotBePrepared(t *testing.T) {
	t.Parallel()
	h := build(t)
	name := h.name(t, "fresh")
	h.fault(t, emulator.Fault{Route: "policy.network.set", Sprite: name, Do: emulator.FaultStatus, Status: 400})
	outcome(t, h.sh(t, "fresh", "true"), plan.OutcomeFailed, plan.ReasonProvisionFailed)
	if h.exists(name) {
		t.Error("an open Sprite was kept")
	}
	exited(t, h.sh(t, "old", "echo kept >f"), 0)
	old := h.name(t, "old")
	if err := h.inst.Emulator().Sleep(old); err != nil {
		t.Fatal(err)
	}
	h.fault(t, emulator.Fault{Route: "exec.ws", Sprite: old, Do: emulator.FaultStatus, Status: 403, Times: 1})
	outcome(t, h.sh(t, "old", "true"), plan.OutcomeFailed, plan.ReasonMisconfigured)
	exited(t, h.sh(t, "old", "cat f"), 0)
	if n := h.inst.Emulator().Count("sprite.delete", old); n != 0 {
		t.Errorf("%d deletes", n)
	}
}

// Case 34: a fresh Sprite that could neither be locked down nor deleted is on record until it is gone.
func TestCase34WhatCouldNotBeDeletedIsReclaimed(t *testing.T) {
	t.Parallel()
	h := build(t)
	name := h.name(t, "c")
	h.fault(t, emulator.Fault{Route: "policy.network.set", Sprite: name, Do: emulator.FaultStatus, Status: 400, Times: 1},
		emulator.Fault{Route: "sprite.delete", Sprite: name, Do: emulator.FaultStatus, Status: 500, Times: 4})
	outcome(t, h.sh(t, "c", "true"), plan.OutcomeFailed, plan.ReasonProvisionFailed)
	if l := h.link(t, "c").Link; l.State != plan.LinkTearingDown || l.Sandbox != name || l.Reclaim == nil {
		t.Fatalf("the link is %+v", l)
	}
	if !h.exists(name) {
		t.Fatal("the fault did not hit")
	}
	if err := h.inst.App(0).Worker().ReclaimOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.exists(name) {
		t.Error("the Sprite is still there")
	}
	if s := h.link(t, "c").State(); s != plan.LinkNone {
		t.Errorf("the link is %s", s)
	}
	exited(t, h.sh(t, "c", "true"), 0)
}

// Case 33: two workers, one new conversation: one Sprite, both on it, and nobody deletes the winner's.
func TestCase33TwoFirstRequestsShareOneSprite(t *testing.T) {
	t.Parallel()
	h := build(t, workers(2))
	const n = 4
	var group sync.WaitGroup
	results := make([]bus.ResultBody, n)
	jobs := make([]*asked, n)
	for i := range jobs {
		jobs[i] = h.exec(t, bus.ExecRequest{ConversationID: "new", Shell: "true"}, grant{"sub": "ann", "tier": "business"})
	}
	for i, a := range jobs {
		group.Go(func() { results[i] = a.result() })
	}
	group.Wait()
	fresh := 0
	for _, r := range results {
		exited(t, r, 0)
		if r.Sandbox != results[0].Sandbox {
			t.Errorf("on %s and %s", r.Sandbox, results[0].Sandbox)
		}
		if r.Fresh {
			fresh++
		}
	}
	if got := len(h.inst.Emulator().Sprites()); got != 1 || fresh != 1 {
		t.Errorf("%d Sprites, %d results say fresh", got, fresh)
	}
	if d := h.inst.Emulator().Count("sprite.delete", ""); d != 0 {
		t.Errorf("%d deletes", d)
	}
}

// The link is the planner's lock: who finds it held waits, and takes it over once the holder's run has ended.
func TestAHeldLinkIsWaitedForAndTakenOver(t *testing.T) {
	t.Parallel()
	h := build(t)
	other := bus.RunKey{Tenant: tenant, Job: "other"}
	chain, err := h.bus.Claim(t.Context(), other, "ghost.e1", bus.Claim{Record: bus.Record{Queued: 1, QueuedAt: time.Now(), Kind: bus.KindExec}})
	if err != nil {
		t.Fatal(err)
	}
	key := session.Key{Kind: plan.KindConversation, Tenant: tenant, ID: "c"}
	if _, err := h.links(t).BeginCreate(t.Context(), session.Snapshot{Key: key}, session.Hold{Run: other.String(), Seq: 1}, h.name(t, "c"), false); err != nil {
		t.Fatal(err)
	}
	a := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "true"}, nil)
	var w bus.WaitingBody
	if err := json.Unmarshal(a.until(bus.EventWaiting).Data, &w); err != nil || w.For != bus.WaitLink || w.Scope != other.String() {
		t.Fatalf("it waits for %s %q (%v)", w.For, w.Scope, err)
	}
	if n := h.inst.Emulator().Count("sprite.create", ""); n != 0 {
		t.Fatalf("%d creates under another's hold", n)
	}
	if err := chain.Result(t.Context(), bus.ResultBody{Outcome: plan.OutcomeCanceled}); err != nil {
		t.Fatal(err)
	}
	exited(t, a.result(), 0)
	if l := h.link(t, "c").Link; l.State != plan.LinkLive {
		t.Errorf("the link is %s", l.State)
	}
}

// A rotated secret renames nobody: neither by the link, nor where only the Sprite is left.
func TestARotatedSecretRenamesNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	older, newer := strings.Repeat("o", 32), strings.Repeat("n", 32)
	passwords := map[string]string{"nats": "p", "redis": "p", "sprites": "p"}
	at := func(p *plot) { p.cfg.Dir, p.cfg.Secrets = dir, passwords }
	names := map[string]string{}
	t.Run("before", func(t *testing.T) {
		h := build(t, at, settings("SANDBOX_SESSION_SECRET", older))
		for _, c := range []string{"linked", "unlinked", "ended"} {
			r := h.sh(t, c, "echo kept >f")
			exited(t, r, 0)
			names[c] = r.Sandbox
		}
	})
	t.Run("after", func(t *testing.T) {
		h := build(t, at, settings("SANDBOX_SESSION_SECRET", newer, "SANDBOX_SESSION_SECRET_PREVIOUS", older))
		for _, c := range []string{"unlinked", "ended"} {
			l := h.link(t, c)
			if err := h.bus.Links().Delete(t.Context(), l.Key.String(), l.Revision); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []string{"linked", "unlinked"} {
			r := h.sh(t, c, "cat f")
			exited(t, r, 0)
			if r.Sandbox != names[c] {
				t.Errorf("%s: on %s, not %s", c, r.Sandbox, names[c])
			}
		}
		if r := h.end(t, "ended"); r.Plan != plan.ActionTeardown || h.exists(names["ended"]) {
			t.Errorf("the end of a session without a link: plan %s, the Sprite still exists: %v", r.Plan, h.exists(names["ended"]))
		}
		if r := h.sh(t, "brand-new", "true"); r.Sandbox != h.name(t, "brand-new") {
			t.Errorf("a new session is on %s, not on the new secret's name", r.Sandbox)
		}
	})
}

// Serial jobs of a conversation run one at a time, in the order they were asked for, and others do not wait for them.
func TestSerialJobsRunOneAtATime(t *testing.T) {
	t.Parallel()
	h := build(t)
	who := grant{"sub": "ann", "tier": "business"}
	soon := time.Now().Add(5 * time.Minute)
	exited(t, h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: ": >log"}, who).result(), 0)
	var jobs []*asked
	for _, n := range []string{"1", "2", "3"} {
		text := "echo begin" + n + " >>log; sleep 0.3; echo end" + n + " >>log"
		jobs = append(jobs, h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: text, Order: "serial", Deadline: &soon}, who))
	}
	for _, a := range jobs {
		exited(t, a.result(), 0)
	}
	read := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "cat log"}, who)
	exited(t, read.result(), 0)
	got := strings.Fields(read.stdout())
	for i := 0; i+1 < len(got); i += 2 {
		if strings.TrimPrefix(got[i], "begin") != strings.TrimPrefix(got[i+1], "end") {
			t.Fatalf("two at once: %v", got)
		}
	}
	if len(got) != 6 {
		t.Fatalf("got %v", got)
	}
	if !slices.ContainsFunc(jobs, func(a *asked) bool { return slices.Contains(a.waits(), bus.WaitSerial) }) {
		t.Error("none of them had to wait: the test shows nothing")
	}
}
