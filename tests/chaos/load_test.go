package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/tests/rig"
)

// task is one job and what may come of it.
type task struct {
	req    bus.ExecRequest
	code   int
	lines  int
	cancel bool
	job    *rig.Job
	err    error
}

const conversations = 4

// newTask draws a command that counts its run, prints numbered lines on both streams, and ends with its own code.
func newTask(r *rand.Rand, id string) *task {
	t := &task{code: r.IntN(200), lines: 1 + r.IntN(60), cancel: r.IntN(12) == 0}
	t.req = bus.ExecRequest{JobID: id, ConversationID: fmt.Sprintf("room-%d", r.IntN(conversations)), TimeoutMs: 60_000}
	pause := ""
	if r.IntN(3) == 0 {
		pause = "sleep 0.05; "
		t.lines = min(t.lines, 25)
	}
	t.req.Shell = fmt.Sprintf("echo %s >> /workspace/runs; i=0; while [ $i -lt %d ]; do echo out $i; echo err $i >&2; i=$((i+1)); %sdone; exit %d",
		id, t.lines, pause, t.code)
	switch r.IntN(10) {
	case 0:
		t.req.TimeoutMs = 300
	case 1:
		t.req.StreamBytes = 100
	case 2:
		t.req.Order = "serial"
		deadline := time.Now().Add(time.Hour)
		t.req.Deadline = &deadline
	}
	return t
}

// run publishes the task until the broker has it, cancels it if it is to be, and reads it to its end.
func (t *task) run(ctx context.Context, c *rig.Caller) error {
	if err := insist(ctx, func() (err error) { t.job, err = c.Follow(ctx, t.req.JobID); return err }); err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	defer t.job.Close()
	if err := insist(ctx, func() error { return c.Publish(ctx, t.req, "user-"+t.req.JobID, "business") }); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if t.cancel {
		if err := insist(ctx, func() error { return c.Cancel(ctx, t.req.JobID) }); err != nil {
			return fmt.Errorf("cancel: %w", err)
		}
	}
	return t.job.Wait(ctx)
}

// insist repeats what an absent broker refuses. A job's id makes its publish repeatable.
func insist(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// load keeps width tasks on their way until ctx ends, waits for all of them, and returns them.
func load(ctx, life context.Context, seed uint64, width int, c *rig.Caller) []*task {
	var wg sync.WaitGroup
	var mu sync.Mutex // protects tasks
	var tasks []*task
	for lane := range width {
		r := rand.New(rand.NewPCG(seed, uint64(lane+1)))
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				t := newTask(r, fmt.Sprintf("j-%d-%d", lane, n))
				t.err = t.run(life, c)
				mu.Lock()
				tasks = append(tasks, t)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return tasks
}

// check holds a task's end against what may come of it; ran is how often the sandbox says it ran.
func (t *task) check(ran int) error {
	if t.err != nil {
		return fmt.Errorf("no result: %w, after %v", t.err, t.job.Kinds())
	}
	r := t.job.Result
	if ran > 1 {
		return fmt.Errorf("ran %d times", ran)
	}
	switch r.Outcome {
	case plan.OutcomeExited:
		if *r.ExitCode != t.code || ran != 1 {
			return fmt.Errorf("exited %d, want %d; ran %d times", *r.ExitCode, t.code, ran)
		}
		return t.checkOutput()
	case plan.OutcomeCanceled:
		if !t.cancel {
			return fmt.Errorf("canceled by %s (%s), and nobody asked", r.By, r.Message)
		}
	case plan.OutcomeTimedOut:
		if t.req.TimeoutMs > 300 {
			return fmt.Errorf("timed out: %s", r.Message)
		}
	case plan.OutcomeFailed, plan.OutcomeDenied, plan.OutcomeExpired:
		if ran != 0 {
			return fmt.Errorf("%s, but it ran", rig.Says(r))
		}
		if r.Outcome == plan.OutcomeFailed && r.DeadLetter == "" {
			return fmt.Errorf("%s without a dead letter", rig.Says(r))
		}
	case plan.OutcomeLost:
		if r.DeadLetter == "" {
			return fmt.Errorf("lost without a dead letter: %s", r.Message)
		}
	case plan.OutcomeOutputLimit, plan.OutcomeOpened, plan.OutcomeEnded:
		return fmt.Errorf("ended as %s", rig.Says(r))
	}
	return nil
}

// checkOutput: each stream's lines, each once and in order; all of them unless a gap was said.
func (t *task) checkOutput() error {
	whole := len(t.job.Gaps) == 0 && !t.job.Result.Truncated
	for prefix, data := range map[string][]byte{"out": t.job.Stdout, "err": t.job.Stderr} {
		last := -1
		for line := range strings.Lines(string(data)) {
			var n int
			if _, err := fmt.Sscanf(line, prefix+" %d\n", &n); err != nil {
				if whole {
					return fmt.Errorf("line %q on %s", line, prefix)
				}
				continue // a gap may cut a line
			}
			if n <= last || whole && n != last+1 {
				return fmt.Errorf("%s %d follows %d", prefix, n, last)
			}
			last = n
		}
		if whole && last != t.lines-1 {
			return fmt.Errorf("%s ends at %d of %d without a gap", prefix, last, t.lines)
		}
	}
	return nil
}
