package survival_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/tests/rig"
)

const (
	// ackWait is how long a dead worker's jobs stay with it in these tests.
	ackWait = 2 * time.Second
	// patience bounds every wait; a test that needs it all has failed.
	patience = 3 * time.Minute
)

// worlds bounds how many worlds stand at a time: each is a broker, a Redis, an emulator and workers, and what starves them
// looks like the deaths that these tests are about.
var worlds = make(chan struct{}, 3)

// world is an instance and a caller outside of it.
type world struct {
	rig.Caller
	t     *testing.T
	ctx   context.Context
	inst  *instance.Instance
	redis *rig.Redis
	log   string

	mu    sync.Mutex // protects steps
	steps func(context.Context, job.Step, bus.RunKey) error
}

func newWorld(t *testing.T, changes ...func(*instance.Config)) *world {
	t.Helper()
	worlds <- struct{}{}
	t.Cleanup(func() { <-worlds })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w := &world{t: t, ctx: ctx, log: filepath.Join(t.TempDir(), "worker.log")}
	redis, err := rig.StartRedis(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	w.redis = redis
	t.Cleanup(func() {
		if err := redis.Stop(); err != nil {
			t.Error(err)
		}
	})
	cfg := instance.Config{
		RedisURL: redis.URL,
		Settings: map[string]string{"WAKEBUS_LIMIT_TENANT": "500", "WAKEBUS_TENANT_BACKLOG": "1000", "WAKEBUS_SLOTS": "64"},
		Emulator: func(c *emulator.Config) { c.WarmWake, c.ColdWake, c.Idle = -1, -1, time.Hour },
		App: func(n int, a *job.AppConfig) {
			a.AckWait = ackWait
			a.Worker = func(c *job.Config) {
				c.WorkerID = fmt.Sprintf("w%d", n)
				c.Step = w.step
			}
		},
	}
	for _, change := range changes {
		change(&cfg)
	}
	inst, err := instance.Start(ctx, cfg)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := inst.Close(); err != nil {
			t.Error(err)
		}
		if data, err := os.ReadFile(w.log); err == nil && t.Failed() && os.Getenv("WAKEBUS_RIG_LOG") != "" {
			t.Log(string(data))
		}
	})
	b, err := inst.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	w.inst, w.Caller = inst, rig.Caller{Bus: b}
	return w
}

func workers(n int) func(*instance.Config) { return func(c *instance.Config) { c.Workers = n } }

func setting(name, value string) func(*instance.Config) {
	return func(c *instance.Config) { c.Settings[name] = value }
}

func emulated(f func(*emulator.Config)) func(*instance.Config) {
	return func(c *instance.Config) {
		before := c.Emulator
		c.Emulator = func(ec *emulator.Config) { before(ec); f(ec) }
	}
}

// step is what the in-process workers do at each step; onStep sets it.
func (w *world) step(ctx context.Context, s job.Step, k bus.RunKey) error {
	w.mu.Lock()
	f := w.steps
	w.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, s, k)
}

func (w *world) onStep(f func(context.Context, job.Step, bus.RunKey) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps = f
}

// process starts a worker process at this world.
func (w *world) process(spec rig.Spec) *rig.Worker {
	w.t.Helper()
	env := w.inst.Env()
	maps.Copy(env, spec.Env)
	spec.Env = env
	if spec.AckWait == 0 {
		spec.AckWait = ackWait
	}
	spec.LogFile = w.log
	p, err := rig.Start(w.ctx, w.t.TempDir(), spec)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Kill)
	return p
}

// proxy stands before the server that a setting names; it returns the setting with the proxy's address.
func (w *world) proxy(name string, cfg rig.ProxyConfig) (*rig.Proxy, map[string]string) {
	w.t.Helper()
	to, err := url.Parse(w.inst.Env()[name])
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := rig.StartProxy(to.Host, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			w.t.Error(err)
		}
	})
	to.Host = p.Addr
	return p, map[string]string{name: to.String()}
}

// exec publishes a command as a user of its own.
func (w *world) exec(req bus.ExecRequest) *rig.Job {
	w.t.Helper()
	return w.execAs(req, "user-"+req.JobID, "business")
}

func (w *world) execAs(req bus.ExecRequest, user, tier string) *rig.Job {
	w.t.Helper()
	if req.ConversationID == "" {
		req.ConversationID = "home"
	}
	j, err := w.Exec(w.ctx, req, user, tier)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(j.Close)
	return j
}

func (w *world) until(j *rig.Job, kind bus.EventKind) {
	w.t.Helper()
	if err := j.Until(w.ctx, kind); err != nil {
		w.t.Fatal(err)
	}
}

// wait waits for a job's end, checks its journal, and returns its result.
func (w *world) wait(j *rig.Job) *bus.ResultBody {
	w.t.Helper()
	if err := j.Wait(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	events, err := w.Journal(w.ctx, j.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := rig.CheckJournal(events); err != nil {
		w.t.Errorf("journal of %s: %v\n%s", j.ID, err, rig.Text(events))
	}
	return j.Result
}

// run runs a shell text to its end in a conversation.
func (w *world) run(id, conversation, shell string) *rig.Job {
	w.t.Helper()
	j := w.exec(bus.ExecRequest{JobID: id, ConversationID: conversation, Shell: shell})
	w.wait(j)
	return j
}

// exited fails the test unless the job ended by itself with this code.
func (w *world) exited(j *rig.Job, code int) {
	w.t.Helper()
	r := w.wait(j)
	if r.Outcome != plan.OutcomeExited || r.ExitCode == nil || *r.ExitCode != code {
		w.t.Errorf("%s ended as %s (%s), want exited %d: %v", j.ID, rig.Says(r), r.Message, code, j.Kinds())
	}
}

// leases are the ids of the leases that are held now.
func (w *world) leases() []string {
	w.t.Helper()
	ids, err := w.redis.Leases(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return ids
}
