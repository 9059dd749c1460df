package chaos_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/tests/rig"
)

var (
	seed  = flag.Uint64("chaos.seed", 0, "seed of the script and the load; 0 draws one")
	span  = flag.Duration("chaos.time", 8*time.Second, "how long the storm lasts")
	width = flag.Int("chaos.width", 10, "how many jobs are on their way at once")
)

func TestMain(m *testing.M) {
	emulator.MaybeInit()
	rig.MaybeWorker()
	goleak.VerifyTestMain(m)
}

// calm is how long everything may take to settle once the storm is over.
const calm = 3 * time.Minute

func TestEveryJobHasOneTrueEndWhateverHappensToTheParts(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d: go test ./tests/chaos -chaos.seed %d -chaos.time %s -chaos.width %d", *seed, *seed, *span, *width)
	life, cancel := context.WithTimeout(context.Background(), *span+calm)
	defer cancel()
	s := calmBefore(t, life)
	b, err := s.inst.Connect(life)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	caller := &rig.Caller{Bus: b}

	ctx, stop := context.WithTimeout(life, *span)
	defer stop()
	blown := make(chan error, 1) // gets the storm's end, once
	go func() { blown <- s.blow(ctx, life); s.inst.Emulator().ClearFaults() }()
	tasks := load(ctx, life, *seed, *width, caller)
	if err := <-blown; err != nil {
		t.Errorf("the storm ended early: %v", err)
	}
	judge(t, life, s, caller, tasks)
	t.Logf("%d jobs; the storm did %v", len(tasks), s.did)
}

// keepLog keeps the workers' log of a test that failed where WAKEBUS_RIG_LOG says.
func keepLog(t *testing.T, s *storm) {
	t.Helper()
	path := os.Getenv("WAKEBUS_RIG_LOG")
	if path == "" || !t.Failed() {
		return
	}
	data, err := os.ReadFile(s.dir + "/worker.log")
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	must(t, err)
}

// calmBefore starts all parts.
func calmBefore(t *testing.T, ctx context.Context) *storm {
	t.Helper()
	s := &storm{rand: rand.New(rand.NewPCG(*seed, 0)), dir: t.TempDir(), did: map[string]int{}}
	t.Cleanup(func() { keepLog(t, s) })
	var err error
	if s.broker, err = rig.StartBroker(ctx, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.broker.Stop()) })
	if s.redis, err = rig.StartRedis(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.redis.Stop()) })
	s.inst, err = instance.Start(ctx, instance.Config{
		Workers: -1, NATSURL: s.broker.URL, RedisURL: s.redis.URL,
		Settings: map[string]string{"WAKEBUS_LEASE_TTL": "8s", "WAKEBUS_LIMIT_TENANT": "1000", "WAKEBUS_TENANT_BACKLOG": "1000",
			"WAKEBUS_DRAIN_GRACE": "1s", "WAKEBUS_DIAL_TIMEOUT": "10s"},
		Emulator: func(c *emulator.Config) { c.WarmWake, c.ColdWake, c.Idle = -1, -1, time.Hour },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.inst.Close()) })
	for range fleet {
		if err := s.add(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, w := range s.workers {
			w.Kill()
		}
	})
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// judge checks from the outside what no storm may change.
func judge(t *testing.T, ctx context.Context, s *storm, c *rig.Caller, tasks []*task) {
	t.Helper()
	ran := countRuns(t, ctx, c)
	outcomes := map[string]int{}
	for _, task := range tasks {
		if err := task.check(ran[task.req.JobID]); err != nil {
			t.Errorf("%s: %v: %v", task.req.JobID, err, task.job.Kinds())
		}
		events, err := c.Journal(ctx, task.req.JobID)
		if err == nil {
			err = rig.CheckJournal(events)
		}
		if err != nil {
			t.Errorf("journal of %s: %v\n%s", task.req.JobID, err, rig.Text(events))
		}
		says := "nothing"
		if task.job.Result != nil {
			says = string(task.job.Result.Outcome)
			if len(task.job.Gaps) > 0 {
				says += " with a gap"
			}
		}
		outcomes[says]++
	}
	nothingLeft(t, ctx, s, c)
	noStrays(t, ctx, s, c)
	t.Logf("outcomes %v", outcomes)
}

// countRuns asks each conversation's sandbox which commands ran.
func countRuns(t *testing.T, ctx context.Context, c *rig.Caller) map[string]int {
	t.Helper()
	ran := map[string]int{}
	for n := range conversations {
		task := &task{}
		task.req.JobID, task.req.ConversationID = fmt.Sprintf("count-%d", n), fmt.Sprintf("room-%d", n)
		task.req.Shell = "cat /workspace/runs 2>/dev/null || true"
		if err := task.run(ctx, c); err != nil {
			t.Fatalf("count runs: %v", err)
		}
		for _, id := range strings.Fields(string(task.job.Stdout)) {
			ran[id]++
		}
	}
	return ran
}

// nothingLeft waits until no request stands in a queue and no lease is held; leases of commands that nobody could stop
// expire.
func nothingLeft(t *testing.T, ctx context.Context, s *storm, c *rig.Caller) {
	t.Helper()
	for {
		depths, err := c.Bus.Backlog(ctx)
		if err != nil {
			t.Fatal(err)
		}
		held, err := s.redis.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(depths) == 0 && len(held) == 0 {
			return
		}
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("left over: requests %+v, leases %v", depths, held)
		}
	}
}

// noStrays: every Sprite is named by a link.
func noStrays(t *testing.T, ctx context.Context, s *storm, c *rig.Caller) {
	t.Helper()
	store, err := session.New(c.Bus.Links(), session.Config{})
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{}
	err = store.Walk(ctx, c.Bus.Links(), "", func(snap session.Snapshot, err error) error {
		linked[snap.Link.Sandbox] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, sprite := range s.inst.Emulator().Sprites() {
		if !linked[sprite.Name] {
			t.Errorf("Sprite %s has no link", sprite.Name)
		}
	}
}
