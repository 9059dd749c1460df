package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/wakebus/wakebus/internal/bus"
)

// Tenant is whom the rig acts for.
const Tenant = "dev"

// Caller is a web app: it publishes requests and follows their events. Its methods may be called concurrently.
type Caller struct {
	// Bus is the connection that it uses.
	Bus *bus.Bus
}

// Job is one job as its caller sees it. It is not safe for concurrent use.
type Job struct {
	// ID is the job's id.
	ID string
	// Events are the events so far, in order.
	Events []bus.Event
	// Stdout and Stderr are the output so far.
	Stdout, Stderr []byte
	// Gaps are the gaps that were said.
	Gaps []bus.GapBody
	// Result is set once the run has ended.
	Result *bus.ResultBody

	reader *bus.Reader
}

// Exec publishes a command for a user of a tier and returns it with its events still to be read. The caller closes it.
func (c *Caller) Exec(ctx context.Context, req bus.ExecRequest, user, tier string) (*Job, error) {
	j, err := c.Follow(ctx, req.JobID)
	if err != nil {
		return nil, err
	}
	if err := c.Publish(ctx, req, user, tier); err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// Publish publishes a command and follows nothing.
func (c *Caller) Publish(ctx context.Context, req bus.ExecRequest, user, tier string) error {
	req.V = 1
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	grant, err := json.Marshal(map[string]string{"sub": user, "tier": tier})
	if err != nil {
		return fmt.Errorf("write grant: %w", err)
	}
	header := bus.Header{}
	header.Set(bus.HeaderGrant, string(grant))
	_, err = c.Bus.Publish(ctx, bus.KindExec, Tenant, header, body)
	return err
}

// Follow reads a job from its first event on.
func (c *Caller) Follow(ctx context.Context, job string, options ...bus.ReadOption) (*Job, error) {
	reader, err := c.Bus.Subscribe(ctx, Tenant, job, options...)
	if err != nil {
		return nil, err
	}
	return &Job{ID: job, reader: reader}, nil
}

// Cancel marks a job as canceled.
func (c *Caller) Cancel(ctx context.Context, job string) error {
	return c.Bus.MarkCancel(ctx, bus.CancelTarget{Tenant: Tenant, Job: job}, bus.CancelRequest{By: "rig", Why: "test"}, nil)
}

// Close stops following.
func (j *Job) Close() { j.reader.Close() }

// Next reads one event.
func (j *Job) Next(ctx context.Context) (bus.Event, error) {
	e, err := j.reader.Next(ctx)
	if err != nil {
		return e, fmt.Errorf("read job %s after %d events: %w", j.ID, len(j.Events), err)
	}
	j.Events = append(j.Events, e)
	switch e.Kind {
	case bus.EventStdout:
		j.Stdout = append(j.Stdout, e.Data...)
	case bus.EventStderr:
		j.Stderr = append(j.Stderr, e.Data...)
	case bus.EventGap:
		var gap bus.GapBody
		if err := json.Unmarshal(e.Data, &gap); err != nil {
			return e, fmt.Errorf("read gap of %s: %w", j.ID, err)
		}
		j.Gaps = append(j.Gaps, gap)
	case bus.EventResult:
		j.Result = &bus.ResultBody{}
		if err := json.Unmarshal(e.Data, j.Result); err != nil {
			return e, fmt.Errorf("read result of %s: %w", j.ID, err)
		}
	case bus.EventAccepted, bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStarted, bus.EventStopping,
		bus.EventTakenOver, bus.EventHeartbeat:
	}
	return e, nil
}

// Until reads up to the first event of a kind. It fails when the result comes before.
func (j *Job) Until(ctx context.Context, kind bus.EventKind) error {
	for {
		e, err := j.Next(ctx)
		if err != nil {
			return err
		}
		if e.Kind == kind {
			return nil
		}
		if e.Kind == bus.EventResult {
			return fmt.Errorf("job %s ended as %s before %s", j.ID, Says(j.Result), kind)
		}
	}
}

// Wait reads up to the end.
func (j *Job) Wait(ctx context.Context) error {
	for {
		if _, err := j.Next(ctx); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Kinds are the kinds of the events so far.
func (j *Job) Kinds() []bus.EventKind {
	kinds := make([]bus.EventKind, 0, len(j.Events))
	for _, e := range j.Events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// Says is a result in a few words.
func Says(r *bus.ResultBody) string {
	if r == nil {
		return "nothing"
	}
	text := string(r.Outcome)
	if r.ExitCode != nil {
		text += fmt.Sprintf(" %d", *r.ExitCode)
	}
	if r.Reason != "" {
		text += " " + string(r.Reason)
	}
	return text
}
