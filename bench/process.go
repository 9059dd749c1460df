package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wakebus/wakebus/internal/bench"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// processFigures are those that the aims and the capacity need.
type processFigures struct {
	Ready       time.Duration
	IdleMiB     float64
	Takeover    time.Duration
	WorkerCPUMs float64 // per job, in the worker alone
	JobsPerS    float64 // two processes, no fsync
}

// workerBinary is the one given, else one that is built now.
func workerBinary(ctx context.Context, o options, dir string) (string, error) {
	if o.worker != "" {
		return filepath.Abs(o.worker)
	}
	path := filepath.Join(dir, "worker")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/worker")
	cmd.Dir, cmd.Stderr = o.root, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the worker: %w", err)
	}
	return path, nil
}

// workerProcess is a `worker run`.
type workerProcess struct {
	cmd   *exec.Cmd
	id    string
	ready time.Duration
	done  chan struct{} // closed when its output has ended
}

// ageRedis makes the Redis count as one that has been up for long, as a deployment's has: for 30 s after an empty start
// workers admit nothing new, so that holders of before can come back (lease.Config, Quarantine).
func ageRedis(ctx context.Context, rig *bench.Rig) error {
	opt, err := redis.ParseURL(rig.Target().RedisURL)
	if err != nil {
		return err
	}
	client := redis.NewClient(opt)
	defer func() { _ = client.Close() }()
	const key = "{wakebus}:sys" // "<last fence> <start> <line>" (internal/lease/script/prelude.lua)
	was, err := client.Get(ctx, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("age the redis: %w", err)
	}
	fields := strings.Fields(was)
	if len(fields) != 3 {
		fields = []string{"0", "1", "0"}
	}
	fields[1] = "1"
	if err := client.Set(ctx, key, strings.Join(fields, " "), 0).Err(); err != nil {
		return fmt.Errorf("age the redis: %w", err)
	}
	return nil
}

// startWorker starts a process and waits for its ready line.
func startWorker(ctx context.Context, path string, rig *bench.Rig, slots int) (*workerProcess, error) {
	if err := ageRedis(ctx, rig); err != nil {
		return nil, err
	}
	w := &workerProcess{cmd: exec.CommandContext(ctx, path, "run"), done: make(chan struct{})}
	w.cmd.Env = append(rig.Env(), fmt.Sprintf("WAKEBUS_SLOTS=%d", slots))
	w.cmd.Cancel = func() error { return w.cmd.Process.Signal(syscall.SIGTERM) }
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(w.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "wakebus worker: ready, "); ok {
				id, _, _ := strings.Cut(rest, ",")
				ready <- id
			}
		}
	}()
	select {
	case w.id = <-ready:
		w.ready = time.Since(began)
		return w, nil
	case <-w.done:
		return nil, errors.Join(errors.New("the worker ended before it was ready"), w.cmd.Wait())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), w.stop())
	}
}

// stop drains the worker and waits for it.
func (w *workerProcess) stop() error {
	if w.cmd.ProcessState != nil {
		return nil
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	<-w.done
	return w.cmd.Wait()
}

// kill is what the machine's death does to it.
func (w *workerProcess) kill() {
	_ = w.cmd.Process.Kill()
	<-w.done
	_ = w.cmd.Wait() // it was killed, and says so
}

func measureProcess(ctx context.Context, b *book) error {
	return withCaller(ctx, bench.RigConfig{Workers: -1, Slots: 16}, func(rig *bench.Rig, c *bench.Caller) (err error) {
		// The first start sets the streams up and warms the machine's caches; the second is what a deployment sees.
		first, err := startWorker(ctx, b.worker, rig, 16)
		if err != nil {
			return err
		}
		if err := first.stop(); err != nil {
			return err
		}
		var procs []*workerProcess
		defer func() {
			for _, p := range procs {
				err = errors.Join(err, p.stop())
			}
		}()
		for range 2 {
			p, err := startWorker(ctx, b.worker, rig, 16)
			if err != nil {
				return err
			}
			procs = append(procs, p)
		}
		b.Process.Ready = procs[0].ready
		b.row("process", "start to ready, ms", f0(float64(procs[0].ready.Milliseconds())))
		if err := idle(ctx, b, procs[0]); err != nil {
			return err
		}
		if err := twoProcesses(ctx, b, c, procs); err != nil {
			return err
		}
		victim, err := takeOver(ctx, b, rig, procs)
		procs = without(procs, victim)
		return err
	})
}

func without(procs []*workerProcess, gone *workerProcess) []*workerProcess {
	var out []*workerProcess
	for _, p := range procs {
		if p != gone {
			out = append(out, p)
		}
	}
	return out
}

// idle looks at a worker that has nothing to do.
func idle(ctx context.Context, b *book, p *workerProcess) error {
	span := time.Duration(3 * b.opt.scale * float64(time.Second))
	before, err := bench.ProcessCPU(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	select {
	case <-time.After(max(span, 500*time.Millisecond)): // idleness is a span, not an event
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := bench.ProcessCPU(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	now, _, err := bench.Memory(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	b.Process.IdleMiB = float64(now) / (1 << 20)
	b.row("process", "memory when idle, MiB", f1(b.Process.IdleMiB))
	b.row("process", "processor when idle, % of a core", f1(100*(after-before).Seconds()/max(span, 500*time.Millisecond).Seconds()))
	return nil
}

// twoProcesses keeps both busy and takes their processor time.
func twoProcesses(ctx context.Context, b *book, c *bench.Caller, procs []*workerProcess) error {
	if _, err := c.Run(ctx, bench.Load{Jobs: 64, InFlight: 16, Conversations: 64}); err != nil {
		return err
	}
	total := func() (sum time.Duration, err error) {
		for _, p := range procs {
			cpu, err := bench.ProcessCPU(p.cmd.Process.Pid)
			if err != nil {
				return 0, err
			}
			sum += cpu
		}
		return sum, nil
	}
	before, err := total()
	if err != nil {
		return err
	}
	jobs := b.n(3000, 64)
	s, err := c.Run(ctx, bench.Load{Jobs: jobs, InFlight: 64})
	if err != nil {
		return err
	}
	after, err := total()
	if err != nil {
		return err
	}
	now, _, err := bench.Memory(procs[0].cmd.Process.Pid)
	if err != nil {
		return err
	}
	b.Process.JobsPerS, b.Process.WorkerCPUMs = s.PerSecond(), (after-before).Seconds()*1000/float64(jobs)
	b.row("process", "memory after the load, MiB", f1(float64(now)/(1<<20)))
	b.row("process", "processor per job in the worker, ms", f2(b.Process.WorkerCPUMs))
	return nil
}

// takeOver kills the owner of a running command and waits for its peer.
func takeOver(ctx context.Context, b *book, rig *bench.Rig, procs []*workerProcess) (*workerProcess, error) {
	client := rig.Target().Bus
	const job = "takeover-1"
	events := make(chan bus.Event, 64)
	tap, err := client.Tap(ctx, "bench", func(e bus.Event) {
		if e.Key.Job == job {
			events <- e
		}
	})
	if err != nil {
		return nil, err
	}
	defer tap.Close()
	hdr := bus.Header{}
	hdr.Set(bus.HeaderGrant, `{"sub":"u0","tier":"business"}`)
	body := `{"v":1,"job_id":"` + job + `","conversation_id":"c0","argv":["sleep","600"],"timeout_ms":600000}`
	if _, err := client.Publish(ctx, bus.KindExec, "bench", hdr, []byte(body)); err != nil {
		return nil, err
	}
	started, err := awaitEvent(ctx, events, bus.EventStarted)
	if err != nil {
		return nil, err
	}
	owner, _, _ := strings.Cut(started.Owner, ".")
	var victim *workerProcess
	for _, p := range procs {
		if p.id == owner {
			victim = p
		}
	}
	if victim == nil {
		return nil, fmt.Errorf("the job's owner %q is neither process", started.Owner)
	}
	killed := time.Now()
	victim.kill()
	if _, err := awaitEvent(ctx, events, bus.EventTakenOver); err != nil {
		return victim, err
	}
	b.Process.Takeover = time.Since(killed)
	b.row("process", "take-over after a kill, s", f1(b.Process.Takeover.Seconds()))
	if err := client.MarkCancel(ctx, bus.CancelTarget{Tenant: "bench", Job: job}, bus.CancelRequest{}, nil); err != nil {
		return victim, err
	}
	result, err := awaitEvent(ctx, events, bus.EventResult)
	if err == nil && !strings.Contains(string(result.Data), string(plan.OutcomeCanceled)) {
		err = fmt.Errorf("the canceled job ended otherwise: %.200s", result.Data)
	}
	return victim, err
}

func awaitEvent(ctx context.Context, events <-chan bus.Event, kind bus.EventKind) (bus.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		select {
		case e := <-events:
			if e.Kind == kind {
				return e, nil
			}
			if e.Kind == bus.EventResult {
				return e, fmt.Errorf("a result came in place of %s: %.200s", kind, e.Data)
			}
		case <-ctx.Done():
			return bus.Event{}, fmt.Errorf("wait for %s: %w", kind, context.Cause(ctx))
		}
	}
}
