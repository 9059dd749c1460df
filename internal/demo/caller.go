package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
)

// tenant is whom the demo acts for.
const tenant = "dev"

// caller is the web app of the demo: it publishes requests and reads what the streams republish, nothing else.
type caller struct {
	bus  *bus.Bus
	jobs int
	name string // begins each job id
}

// seen is what a caller got of one run.
type seen struct {
	job      string
	events   []bus.EventKind
	stdout   strings.Builder
	stderr   strings.Builder
	result   bus.ResultBody
	started  time.Duration // from publish to started
	firstOut time.Duration // from publish to the first output
	total    time.Duration
	lastSeq  uint64
	holes    bool
}

func (c *caller) id() string {
	c.jobs++
	return c.name + "-" + strconv.Itoa(c.jobs)
}

// exec publishes one command and waits for its result.
func (c *caller) exec(ctx context.Context, req bus.ExecRequest, grant string) (*seen, error) {
	p, err := c.publish(ctx, &req, grant)
	if err != nil {
		return nil, err
	}
	defer p.reader.Close()
	return p.wait(ctx)
}

// pending is a published job whose events are still to be read.
type pending struct {
	reader *bus.Reader
	seen   *seen
	sent   time.Time
}

func (c *caller) publish(ctx context.Context, req *bus.ExecRequest, grant string) (*pending, error) {
	req.V = 1
	if req.JobID == "" {
		req.JobID = c.id()
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	return c.send(ctx, bus.KindExec, req.JobID, body, grant)
}

func (c *caller) send(ctx context.Context, kind bus.Kind, job string, body []byte, grant string) (*pending, error) {
	reader, err := c.bus.Subscribe(ctx, tenant, job, bus.ReadFollow())
	if err != nil {
		return nil, err
	}
	header := bus.Header{}
	if grant != "" {
		header.Set(bus.HeaderGrant, grant)
	}
	p := &pending{reader: reader, seen: &seen{job: job}, sent: time.Now()}
	if _, err := c.bus.Publish(ctx, kind, tenant, header, body); err != nil {
		reader.Close()
		return nil, err
	}
	return p, nil
}

// until reads events up to the first of this kind.
func (p *pending) until(ctx context.Context, kind bus.EventKind) error {
	for {
		e, err := p.next(ctx)
		if err != nil {
			return err
		}
		if e.Kind == kind {
			return nil
		}
		if e.Kind == bus.EventResult {
			return fmt.Errorf("job %s ended before %s: %s", p.seen.job, kind, p.seen.says())
		}
	}
}

func (p *pending) wait(ctx context.Context) (*seen, error) {
	return p.seen, p.until(ctx, bus.EventResult)
}

func (p *pending) next(ctx context.Context) (bus.Event, error) {
	e, err := p.reader.Next(ctx)
	if errors.Is(err, io.EOF) {
		return e, fmt.Errorf("job %s ended without a result", p.seen.job)
	}
	if err != nil {
		return e, fmt.Errorf("read job %s: %w", p.seen.job, err)
	}
	return e, p.seen.take(e, time.Since(p.sent))
}

func (s *seen) take(e bus.Event, at time.Duration) error {
	s.events = append(s.events, e.Kind)
	s.holes = s.holes || e.Seq != s.lastSeq+1
	s.lastSeq = e.Seq
	switch e.Kind {
	case bus.EventStdout, bus.EventStderr:
		if s.firstOut == 0 {
			s.firstOut = at
		}
		if e.Kind == bus.EventStdout {
			s.stdout.Write(e.Data)
		} else {
			s.stderr.Write(e.Data)
		}
	case bus.EventStarted:
		s.started = at
	case bus.EventResult:
		s.total = at
		if err := json.Unmarshal(e.Data, &s.result); err != nil {
			return fmt.Errorf("read result of %s: %w", s.job, err)
		}
	case bus.EventAccepted, bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStopping, bus.EventTakenOver,
		bus.EventHeartbeat, bus.EventGap:
	}
	return nil
}

func (s *seen) says() string {
	r := s.result
	text := string(r.Outcome)
	if r.ExitCode != nil {
		text += " " + strconv.Itoa(*r.ExitCode)
	}
	if r.Reason != "" {
		text += " " + string(r.Reason)
	}
	return text
}
