package bus_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/bus"
)

// still is a clock that stands.
func still() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func TestATenantThatIsAloneHasEverySlot(t *testing.T) {
	t.Parallel()
	f := bus.NewFairness(16, still)
	for i := range 16 {
		if !f.Admit("noisy") {
			t.Fatalf("slot %d was refused", i)
		}
	}
}

func TestBesideAnotherTenantAnEighthOfTheSlotsStaysFree(t *testing.T) {
	t.Parallel()
	f := bus.NewFairness(16, still)
	f.Admit("quiet")
	f.Leave("quiet")
	n := 0
	for f.Admit("noisy") {
		n++
	}
	if n != 14 {
		t.Fatalf("it has %d of 16 slots", n)
	}
	if !f.Admit("quiet") || !f.Admit("third") {
		t.Fatal("the slots that were kept are not given to tenants below their share")
	}
}

func TestATenantIsAloneAgainWhenNoOtherWasHeardForLong(t *testing.T) {
	t.Parallel()
	now := still()
	f := crowded(func() time.Time { return now })
	if f.Admit("noisy") {
		t.Fatal("the last slot was given away at once")
	}
	now = now.Add(11 * time.Minute)
	if !f.Admit("noisy") {
		t.Fatal("the last slot is kept for nobody")
	}
}

func TestWhoIsBelowItsShareIsNeverRefusedAndSlotsAreNeverCountedTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 64).Draw(t, "slots")
		f := bus.NewFairness(slots, still)
		running, total := map[string]int{}, 0
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			tenant := "t" + strconv.Itoa(rapid.IntRange(0, 5).Draw(t, "tenant"))
			if rapid.Bool().Draw(t, "leaves") {
				if running[tenant] > 0 {
					f.Leave(tenant)
					running[tenant]--
					total--
				}
				continue
			}
			if total == slots {
				continue // nothing is pulled without a slot
			}
			others := 0
			for name, n := range running {
				if n > 0 && name != tenant {
					others++
				}
			}
			below := running[tenant] < max(1, slots/max(2, others+1))
			got := f.Admit(tenant)
			if !got && (below || total < slots-slots/8) {
				t.Fatalf("%s with %d of %d slots, %d in use, beside %d others, was refused", tenant, running[tenant], slots, total, others)
			}
			if got {
				running[tenant]++
				total++
			}
		}
	})
}

func TestWhatIsPutOffComesBackAtABoundedRateAndPullingRestsAtTheBound(t *testing.T) {
	t.Parallel()
	now := still()
	f := crowded(func() time.Time { return now })
	if f.Rest() != 0 {
		t.Fatal("it rests with nothing put off")
	}
	var last time.Duration
	for i := range uint64(256) {
		if rest := f.Rest(); rest != 0 {
			t.Fatalf("it rests after %d", i)
		}
		d := f.Postpone(i, 1)
		if d < 50*time.Millisecond || d < last {
			t.Fatalf("request %d comes back after %s, the one before after %s", i, d, last)
		}
		last = d
	}
	if last > 2*time.Second {
		t.Fatalf("the last one comes back after %s", last)
	}
	rest := f.Rest()
	if rest <= 0 || rest > last {
		t.Fatalf("with 256 away it rests %s", rest)
	}
	now = now.Add(rest)
	if f.Rest() != 0 {
		t.Fatal("it rests on when one has come back")
	}
	now = now.Add(-rest)
	f.Leave("noisy")
	if f.Rest() != 0 {
		t.Fatal("it rests though a slot came free for all")
	}
}

func TestWhatIsPutOffComesBackSlowerWherePullsAreSlow(t *testing.T) {
	t.Parallel()
	now := still()
	f := bus.NewFairness(8, func() time.Time { return now })
	near := f.Postpone(1, 1)
	now = now.Add(near + time.Millisecond)
	asked := now
	now = now.Add(50 * time.Millisecond) // how long the pull took that brought it
	if !f.Untouched(1, 2, asked) {
		t.Fatal("it came back to whom it was put off by")
	}
	if far := f.Postpone(1, 2); far < 200*time.Millisecond || far > 5*time.Second {
		t.Fatalf("it comes back after %s, and after pulls of 50 ms after %s", near, far)
	}
}

func TestOnlyWhatNobodyElseWasGivenIsUntouched(t *testing.T) {
	t.Parallel()
	f := bus.NewFairness(8, still)
	f.Postpone(1, 1)
	if f.Untouched(1, 3, still()) {
		t.Error("another had it meanwhile, and may have begun it")
	}
	if f.Untouched(2, 2, still()) {
		t.Error("another put it off")
	}
	f.Postpone(1, 3)
	if !f.Untouched(1, 4, still()) {
		t.Error("nobody had it meanwhile")
	}
	for seq := range uint64(600) {
		f.Postpone(10+seq, 1)
	}
	if f.Untouched(10, 2, still()) {
		t.Error("it keeps more than it may")
	}
}

// holdingPool handles requests until each is let go, and tells who began.
type holdingPool struct {
	begun chan string // tenant
	mu    sync.Mutex
	seen  map[string]int // times each job was handled
	go_   chan struct{}
}

func (h *holdingPool) handle(t *testing.T) bus.Handler {
	return func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		h.mu.Lock()
		h.seen[key.String()]++
		h.mu.Unlock()
		h.begun <- d.Tenant
		select {
		case <-h.go_:
		case <-ctx.Done():
			return
		}
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
}

func TestAQuietTenantsRequestPassesANoisyOnesBacklogAndNoneIsLost(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	r := setup(t, func(c *bus.Config) { c.Registerer = reg })
	h := &holdingPool{begun: make(chan string, 64), seen: map[string]int{}, go_: make(chan struct{})}
	send := func(tenant, job string) {
		t.Helper()
		if _, err := r.bus.Publish(within(t), bus.KindExec, tenant, nil, execBody(job)); err != nil {
			t.Fatal(err)
		}
	}
	startPool(t, r.bus, bus.PoolConfig{Slots: 8}, h.handle(t))
	send("quiet", "q0")
	if got := receive(t, h.begun); got != "quiet" {
		t.Fatalf("%s began first", got)
	}
	h.go_ <- struct{}{}
	const backlog = 30
	for i := range backlog {
		send("noisy", "n"+strconv.Itoa(i))
	}
	for range 7 {
		if got := receive(t, h.begun); got != "noisy" {
			t.Fatalf("%s began", got)
		}
	}
	// Every slot that a noisy tenant may have is taken, and none of its commands ends.
	send("quiet", "q1")
	if got := receive(t, h.begun); got != "quiet" {
		t.Fatalf("%s began in the slot that is kept", got)
	}
	close(h.go_)
	for range backlog - 7 {
		receive(t, h.begun)
	}
	eventually(t, "the queue is empty", func() bool { return queued(t, r, bus.StreamSandbox) == 0 })
	h.mu.Lock()
	defer h.mu.Unlock()
	for job, n := range h.seen {
		if n != 1 {
			t.Errorf("%s was handled %d times", job, n)
		}
	}
	if len(h.seen) != backlog+2 {
		t.Errorf("%d of %d requests were handled", len(h.seen), backlog+2)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "wakebus_bus_deferred_total" {
			return
		}
	}
	t.Error("nothing counts what was put off")
}

func TestARunThatItsOwnerLeftIsNotPutOff(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *bus.Config) { c.AckWait = 600 * time.Millisecond })
	send := func(tenant, job string) uint64 {
		t.Helper()
		seq, err := r.bus.Publish(within(t), bus.KindExec, tenant, nil, execBody(job))
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	// A worker claims a run of the noisy tenant and dies.
	left := make(chan struct{})
	_, stop := startPool(t, connect(t, r.server, func(c *bus.Config) { c.AckWait = 600 * time.Millisecond }), bus.PoolConfig{Slots: 1, PullWait: 50 * time.Millisecond}, func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		chain, err := r.bus.Claim(ctx, key, "dead.1", bus.Claim{Request: "sum", Record: bus.Record{Queued: d.Queued}})
		if err != nil {
			t.Error(err)
		} else {
			chain.Close()
		}
		d.Forget()
		close(left)
	})
	send("noisy", "left")
	receive(t, left)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	begun := make(chan string, 64)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	startPool(t, r.bus, bus.PoolConfig{Slots: 8}, func(ctx context.Context, d *bus.Delivery) {
		key, _ := d.Key()
		begun <- key.Job
		if key.Job == "q0" {
			_ = d.Ack(ctx)
			return
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
	})
	send("quiet", "q0")
	for i := range 20 {
		send("noisy", "n"+strconv.Itoa(i))
	}
	// Its tenant has every slot but the last, so that it gets that one or one of those.
	var began []string
	for range 9 {
		if began = append(began, receive(t, begun)); began[len(began)-1] == "left" {
			return
		}
	}
	t.Fatalf("the run that was left is not among %v", began)
}

// crowded is a lane of eight slots, of which a noisy tenant has all but the last, after a quiet one was heard.
func crowded(now func() time.Time) bus.Fairness {
	f := bus.NewFairness(8, now)
	f.Admit("quiet")
	f.Leave("quiet")
	for range 7 {
		f.Admit("noisy")
	}
	return f
}
