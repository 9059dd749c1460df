package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
)

// hurried is a clock by which a real second is two minutes.
type hurried struct{ start time.Time }

const hurry = 120

var _ job.Clock = hurried{}

func (c hurried) Now() time.Time { return c.start.Add(time.Since(c.start) * hurry) }

func (c hurried) Timer(d time.Duration) job.Timer { return ticking{time.NewTimer(max(d, 0) / hurry)} }

func inAHurry() change {
	return eachWorker(func(_ int, c *job.Config) {
		c.Clock, c.OrphanAge = hurried{time.Now()}, 500*time.Millisecond
	})
}

// A command that says nothing for ten minutes keeps its owner's heartbeat and its slot; when its Sprite dies, and the
// connection with it, both end.
func TestASilentCommandKeepsItsHeartbeatAndItsSlotWhileItsConnectionStands(t *testing.T) {
	t.Parallel()
	h := build(t, inAHurry())
	slots := h.leases(t)
	a := h.exec(t, bus.ExecRequest{ConversationID: "silent", Shell: "sleep 600", TimeoutMs: time.Hour.Milliseconds()}, nil)
	began := a.until(bus.EventStarted)
	record, err := began.Record()
	if err != nil {
		t.Fatal(err)
	}
	for beats := 1; ; beats++ {
		beat := a.until(bus.EventHeartbeat)
		if beats < 20 { // ten minutes of one in thirty seconds
			continue
		}
		if held := h.held(t, slots); len(held) != 1 || !strings.HasPrefix(held[0], record.Lease+" ") {
			t.Errorf("after %d heartbeats the leases are %v", beats, held)
		}
		if beat.Owner != began.Owner {
			t.Errorf("the owner is %s and was %s", beat.Owner, began.Owner)
		}
		break
	}
	if err := h.inst.Emulator().Cold(h.name(t, "silent")); err != nil {
		t.Fatal(err)
	}
	if r := a.result(); r.Outcome != plan.OutcomeLost || r.ExitCode != nil {
		t.Errorf("got %s", says(r))
	}
	h.free(t, slots)
}

// A run whose journal has begun and that no message carries is queued again by the fleet's leader, and ends.
func TestARunThatNoMessageCarriesIsBroughtToItsEnd(t *testing.T) {
	t.Parallel()
	h := build(t, inAHurry())
	key := bus.RunKey{Tenant: tenant, Job: h.id("orphan")}
	reader, err := h.bus.Subscribe(t.Context(), tenant, key.Job)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	chain, err := h.bus.Claim(t.Context(), key, "ghost.1", bus.Claim{Request: "00", Record: bus.Record{Queued: 1 << 40, QueuedAt: time.Now(), Kind: bus.KindExec,
		Actor: &bus.Actor{Tenant: tenant, User: "ann", Tier: plan.TierFree}}})
	if err != nil {
		t.Fatal(err)
	}
	chain.Close()
	a := &asked{t: t, job: key.Job, reader: reader}
	if r := a.result(); r.Outcome != plan.OutcomeFailed || r.DeadLetter == "" {
		t.Errorf("got %s, dead letter %q", says(r), r.DeadLetter)
	}
	if n := h.counted(t, "wakebus_requeued_total", ""); n == 0 {
		t.Error("no run was counted as queued again")
	}
}
