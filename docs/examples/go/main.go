// Command go is the web example in Go: it publishes, streams, comes back at a sequence, shows a gap, cancels a
// conversation and ends it, and fails when anything is not as it should be. NATS_URL says where.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// patience bounds the whole walk.
const patience = 2 * time.Minute

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx, os.Getenv("NATS_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "go example:", err)
		cancel()
		os.Exit(1)
	}
}

// app is a publisher: it may publish requests, listen to its tenant's replies and ask the endpoints, nothing else.
type app struct {
	bus          *bus.Bus
	tenant       string
	conversation string
	jobs         int
}

func run(ctx context.Context, url string, out io.Writer) error {
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: "go example"})
	if err != nil {
		return err
	}
	defer b.Close()
	a := &app{bus: b, tenant: "dev", conversation: "go-" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"publishes a command and streams it", a.streams}, {"resumes at a sequence", a.resumes}, {"shows a gap", a.gap},
		{"cancels a conversation", a.cancels}, {"ends it", a.ends},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Fprintln(out, "ok   ", step.name)
	}
	return nil
}

// publish stores a command. A full queue is a *bus.Refused, which an HTTP handler answers with 429; a time-out may have
// been stored, and is repeated with the same id.
func (a *app) publish(ctx context.Context, req bus.ExecRequest) (*bus.Reader, string, error) {
	a.jobs++
	req.V, req.ConversationID, req.JobID = 1, a.conversation, a.conversation+"-"+strconv.Itoa(a.jobs)
	body, err := json.Marshal(req)
	if err != nil {
		return nil, "", fmt.Errorf("write the request: %w", err)
	}
	reader, err := a.read(ctx, req.JobID) // before the publish, so that nothing is missed
	if err != nil {
		return nil, "", err
	}
	for range 3 {
		_, err = a.bus.Publish(ctx, bus.KindExec, a.tenant, nil, body)
		if !errors.Is(err, bus.ErrUnreachable) {
			break
		}
	}
	if err != nil {
		reader.Close()
		return nil, "", err
	}
	return reader, req.JobID, nil
}

func (a *app) read(ctx context.Context, job string, more ...bus.ReadOption) (*bus.Reader, error) {
	return a.bus.Subscribe(ctx, a.tenant, job, append(more, bus.ReadHistory(a.bus.HistoryClient()))...)
}

// seen is what was read of a run.
type seen struct {
	stdout strings.Builder
	first  uint64
	last   uint64
	gap    *bus.GapBody
	result *bus.ResultBody
}

// until reads up to the first event that stop likes, or to the end.
func until(ctx context.Context, r *bus.Reader, stop func(bus.Event) bool) (*seen, error) {
	s := &seen{}
	for {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		if s.first == 0 {
			s.first = e.Seq
		}
		s.last = e.Seq
		switch e.Kind {
		case bus.EventStdout:
			s.stdout.Write(e.Data)
		case bus.EventGap:
			s.gap = new(bus.GapBody)
			err = json.Unmarshal(e.Data, s.gap)
		case bus.EventResult:
			s.result = new(bus.ResultBody)
			err = json.Unmarshal(e.Data, s.result)
		case bus.EventStderr, bus.EventAccepted, bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStarted, bus.EventStopping,
			bus.EventTakenOver, bus.EventHeartbeat:
		}
		if err != nil {
			return s, fmt.Errorf("read %s: %w", e.Kind, err)
		}
		if stop != nil && stop(e) {
			return s, nil
		}
	}
}

func (a *app) streams(ctx context.Context) error {
	r, _, err := a.publish(ctx, bus.ExecRequest{Shell: "echo one; echo two >&2; echo three"})
	if err != nil {
		return err
	}
	defer r.Close()
	s, err := until(ctx, r, nil)
	if err != nil {
		return err
	}
	if s.stdout.String() != "one\nthree\n" || s.result.Outcome != plan.OutcomeExited || *s.result.ExitCode != 0 {
		return fmt.Errorf("got %q, %s", &s.stdout, s.result.Outcome)
	}
	return nil
}

func (a *app) resumes(ctx context.Context) error {
	r, job, err := a.publish(ctx, bus.ExecRequest{Shell: "for i in 1 2 3; do echo $i; sleep 0.1; done"})
	if err != nil {
		return err
	}
	begin, err := until(ctx, r, func(e bus.Event) bool { return e.Kind == bus.EventStdout })
	r.Close()
	if err != nil {
		return err
	}
	if r, err = a.read(ctx, job, bus.ReadFrom(begin.last+1)); err != nil {
		return err
	}
	defer r.Close()
	rest, err := until(ctx, r, nil)
	if err != nil {
		return err
	}
	if whole := begin.stdout.String() + rest.stdout.String(); whole != "1\n2\n3\n" || rest.first != begin.last+1 {
		return fmt.Errorf("got %q, from %d after %d", whole, rest.first, begin.last)
	}
	return nil
}

func (a *app) gap(ctx context.Context) error {
	r, _, err := a.publish(ctx, bus.ExecRequest{Shell: `head -c 300000 /dev/zero | tr '\0' x; echo end`, StreamBytes: 1000})
	if err != nil {
		return err
	}
	defer r.Close()
	s, err := until(ctx, r, nil)
	if err != nil {
		return err
	}
	if s.gap == nil || s.gap.Why != bus.GapWhyCap || !strings.HasSuffix(s.stdout.String(), "end\n") {
		return fmt.Errorf("the gap is %+v", s.gap)
	}
	return nil
}

func (a *app) cancels(ctx context.Context) error {
	r, _, err := a.publish(ctx, bus.ExecRequest{Shell: "echo up; sleep 600"})
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := until(ctx, r, func(e bus.Event) bool { return e.Kind == bus.EventStdout }); err != nil {
		return err
	}
	target := bus.CancelTarget{Tenant: a.tenant, Conversation: a.conversation}
	if err := a.bus.MarkCancel(ctx, target, bus.CancelRequest{Why: "enough"}, nil); err != nil {
		return err
	}
	s, err := until(ctx, r, nil)
	if err != nil {
		return err
	}
	if s.result.Outcome != plan.OutcomeCanceled {
		return fmt.Errorf("outcome %s", s.result.Outcome)
	}
	return nil
}

func (a *app) ends(ctx context.Context) error {
	job := a.conversation + "-end"
	r, err := a.read(ctx, job)
	if err != nil {
		return err
	}
	defer r.Close()
	body, err := json.Marshal(bus.EndRequest{V: 1, JobID: job, ConversationID: a.conversation})
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	if _, err := a.bus.Publish(ctx, bus.KindEnd, a.tenant, nil, body); err != nil {
		return err
	}
	s, err := until(ctx, r, nil)
	if err != nil {
		return err
	}
	if s.result.Outcome != plan.OutcomeEnded || s.result.Plan != plan.ActionTeardown {
		return fmt.Errorf("outcome %s, plan %s", s.result.Outcome, s.result.Plan)
	}
	return nil
}
