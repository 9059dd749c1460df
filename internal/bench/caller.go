package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// resultWithin is how long a job's result may take before a measurement is given up.
const resultWithin = 2 * time.Minute

// Sample is how one job went, as its caller saw it.
type Sample struct {
	// Started and Result are from just before the publish to the event's arrival.
	Started, Result time.Duration
	// Bytes is how much output came.
	Bytes int64
	// First is when the first of it came, and Text its beginning, at most 64 bytes.
	First time.Time
	Text  []byte
}

// textMost bounds Sample.Text.
const textMost = 64

// Caller sends one tenant's jobs and hears their events over one subscription, as a web app's process would. Its methods
// may be called concurrently.
type Caller struct {
	bus    *bus.Bus
	tenant string
	prefix string
	tap    *bus.Tap
	sent   atomic.Int64

	mu   sync.Mutex // protects open
	open map[string]*pending
}

// pending is a job that was sent. Its fields but done are protected by the Caller's lock until done is closed.
type pending struct {
	job    string
	sent   time.Time
	sample Sample
	err    error
	done   chan struct{} // closed by the result's arrival
}

// NewCaller subscribes for a tenant. prefix begins its job ids, which must be new to the target. Close it.
func NewCaller(ctx context.Context, b *bus.Bus, tenant, prefix string) (*Caller, error) {
	c := &Caller{bus: b, tenant: tenant, prefix: prefix, open: map[string]*pending{}}
	tap, err := b.Tap(ctx, tenant, c.hear)
	if err != nil {
		return nil, err
	}
	c.tap = tap
	return c, nil
}

// Close ends the subscription.
func (c *Caller) Close() { c.tap.Close() }

// hear notes an event's arrival.
func (c *Caller) hear(e bus.Event) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.open[e.Key.Job]
	if p == nil {
		return
	}
	switch e.Kind {
	case bus.EventStarted:
		p.sample.Started = now.Sub(p.sent)
	case bus.EventStdout, bus.EventStderr:
		if p.sample.Bytes == 0 {
			p.sample.First, p.sample.Text = now, append([]byte(nil), e.Data[:min(len(e.Data), textMost)]...)
		}
		p.sample.Bytes += int64(len(e.Data))
	case bus.EventResult:
		p.sample.Result, p.err = now.Sub(p.sent), judge(p.job, e.Data)
		delete(c.open, p.job)
		close(p.done)
	case bus.EventAccepted, bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStopping, bus.EventTakenOver,
		bus.EventHeartbeat, bus.EventGap:
	}
}

// judge reads only what tells whether the job was what it should have been.
func judge(job string, data []byte) error {
	var r struct {
		Outcome  plan.Outcome `json:"outcome"`
		Reason   string       `json:"reason"`
		Message  string       `json:"message"`
		ExitCode int          `json:"exit_code"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("read result of %s: %w", job, err)
	}
	if r.Outcome != plan.OutcomeExited || r.ExitCode != 0 {
		return &NotExitedError{Job: job, Outcome: string(r.Outcome), Reason: r.Reason, Message: r.Message, ExitCode: r.ExitCode}
	}
	return nil
}

// Job is one command to send.
type Job struct {
	Argv         []string
	Conversation string
	User         string
	// StreamBytes is the live output. Defaults to the worker's own.
	StreamBytes int64
}

// Exec sends one job and waits for its result, two minutes at most. *NotExitedError when it was denied or failed.
func (c *Caller) Exec(ctx context.Context, j Job) (Sample, error) {
	p, err := c.send(ctx, j)
	if err != nil {
		return Sample{}, err
	}
	timer := time.NewTimer(resultWithin)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.sample, p.err
	case <-timer.C:
		err = &SilentError{Job: p.job, Wait: resultWithin}
	case <-ctx.Done():
		err = fmt.Errorf("wait for job %s: %w", p.job, context.Cause(ctx))
	}
	c.forget(p)
	return Sample{}, err
}

func (c *Caller) forget(p *pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, p.job)
}

func (c *Caller) send(ctx context.Context, j Job) (*pending, error) {
	p := &pending{job: c.prefix + "-" + strconv.FormatInt(c.sent.Add(1), 10), done: make(chan struct{})}
	body, hdr, err := request(p.job, j)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.open[p.job], p.sent = p, time.Now()
	c.mu.Unlock()
	if err := c.publish(ctx, hdr, body); err != nil {
		c.forget(p)
		return nil, err
	}
	return p, nil
}

// publishTries is how often a publish that was not answered in time is made.
const publishTries = 3

// publish queues a request. The same job id may be published again when the broker's answer did not come.
func (c *Caller) publish(ctx context.Context, hdr bus.Header, body []byte) (err error) {
	for range publishTries {
		if _, err = c.bus.Publish(ctx, bus.KindExec, c.tenant, hdr, body); !errors.Is(err, bus.ErrUnreachable) {
			break
		}
	}
	return err
}

// request is a job's body and grant, as AUTHZ_MODE=dev takes it.
func request(id string, j Job) ([]byte, bus.Header, error) {
	body, err := json.Marshal(bus.ExecRequest{V: 1, JobID: id, ConversationID: j.Conversation, Argv: j.Argv, StreamBytes: j.StreamBytes})
	if err != nil {
		return nil, nil, fmt.Errorf("write request: %w", err)
	}
	grant, err := json.Marshal(map[string]string{"sub": j.User, "tier": string(plan.TierBusiness)})
	if err != nil {
		return nil, nil, fmt.Errorf("write grant: %w", err)
	}
	hdr := bus.Header{}
	hdr.Set(bus.HeaderGrant, string(grant))
	return body, hdr, nil
}

// Load is many jobs of one kind.
type Load struct {
	// Jobs is how many in all.
	Jobs int
	// InFlight is how many are sent and not ended at a time; each has a user of its own.
	InFlight int
	// Conversations are used in turn. Defaults to InFlight.
	Conversations int
	// Argv is the command. Defaults to true.
	Argv []string
}

// Samples is what a Load gave.
type Samples struct {
	Started, Result []time.Duration
	Took            time.Duration
	CPU             time.Duration // this process's
}

// PerSecond is the throughput.
func (s Samples) PerSecond() float64 { return float64(len(s.Result)) / s.Took.Seconds() }

// Run sends a Load, closed loop: the next job goes out when one has ended. The first failure ends it.
func (c *Caller) Run(ctx context.Context, l Load) (Samples, error) {
	if l.Conversations == 0 {
		l.Conversations = l.InFlight
	}
	if len(l.Argv) == 0 {
		l.Argv = []string{"true"}
	}
	all := make([]Sample, l.Jobs)
	var next atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	began, cpu := time.Now(), CPU()
	for n := range min(l.InFlight, l.Jobs) {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < int64(l.Jobs); i = next.Add(1) - 1 {
				s, err := c.Exec(gctx, Job{Argv: l.Argv, Conversation: "c" + strconv.FormatInt(i%int64(l.Conversations), 10), User: "u" + strconv.Itoa(n)})
				if err != nil {
					return err
				}
				all[i] = s
			}
			return nil
		})
	}
	err := g.Wait()
	out := Samples{Took: time.Since(began), CPU: CPU() - cpu}
	for _, s := range all {
		out.Started, out.Result = append(out.Started, s.Started), append(out.Result, s.Result)
	}
	if n := c.tap.Dropped(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d events came faster than they were heard", n))
	}
	return out, err
}
