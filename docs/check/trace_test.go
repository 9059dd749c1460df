package check_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func TestMain(m *testing.M) {
	emulator.MaybeInit() // must come first: the emulator starts this binary again as the init of each sandbox
	os.Exit(m.Run())
}

// line tells an event as docs/errors.md shows it: what differs from run to run is left out.
func line(e bus.Event) string {
	if e.Kind == bus.EventStdout || e.Kind == bus.EventStderr {
		return fmt.Sprintf("%d %s %d bytes", e.Seq, e.Kind, len(e.Data))
	}
	var body map[string]any
	_ = json.Unmarshal(e.Data, &body) // a body that is no JSON shows as nothing, and the comparison fails
	out := fmt.Sprintf("%d %s", e.Seq, e.Kind)
	for _, key := range []string{"for", "plan", "why", "reason", "outcome", "exit_code", "class", "retryable", "stopped", "truncated", "fresh", "pending"} {
		if v, ok := body[key]; ok && (e.Kind != bus.EventDialing || key != "fresh") {
			out += fmt.Sprintf(" %s=%v", key, v)
		}
	}
	if body["dead_letter"] != nil {
		out += " dead_letter"
	}
	return out
}

// scenario is one way to end, with what happens on the way to it.
type scenario struct {
	outcome plan.Outcome
	request bus.ExecRequest
	// other is a request of another kind, in place of request; it is given the job's id.
	other  func(job string) (bus.Kind, any)
	before func(*instance.Instance) error
	// when is the event at which during is called.
	when   bus.EventKind
	during func(ctx context.Context, b *bus.Bus, inst *instance.Instance, job string) error
}

func scenarios() []scenario {
	past := time.Now().Add(-time.Minute)
	return []scenario{
		{outcome: plan.OutcomeExited, request: bus.ExecRequest{Shell: "echo hello; exit 3"}},
		{outcome: plan.OutcomeTimedOut, request: bus.ExecRequest{Shell: "sleep 60", TimeoutMs: 300}},
		{outcome: plan.OutcomeOutputLimit, request: bus.ExecRequest{Shell: "sleep 0.2; head -c 9000 /dev/zero; sleep 60", StreamBytes: 4096, OnOutputLimit: bus.OnOutputLimitKill}},
		{outcome: plan.OutcomeCanceled, request: bus.ExecRequest{Shell: "echo up; sleep 60"}, when: bus.EventStdout,
			during: func(ctx context.Context, b *bus.Bus, _ *instance.Instance, job string) error {
				return b.MarkCancel(ctx, bus.CancelTarget{Tenant: "dev", Job: job}, bus.CancelRequest{By: "ann"}, nil)
			}},
		{outcome: plan.OutcomeDenied, request: bus.ExecRequest{Shell: "cat", Cwd: "/etc"}},
		{outcome: plan.OutcomeExpired, request: bus.ExecRequest{Shell: "true", Deadline: &past}},
		{outcome: plan.OutcomeFailed, request: bus.ExecRequest{Shell: "true", ConversationID: "fails"}, before: func(i *instance.Instance) error {
			return i.Emulator().AddFaults(emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 400, Body: `{"error":"invalid"}`})
		}},
		{outcome: plan.OutcomeOpened, other: func(job string) (bus.Kind, any) {
			return bus.KindTerminal, bus.TerminalRequest{V: 1, OpenID: job, PageID: "page", Cols: 80, Rows: 24}
		}},
		// The last command, because its slot stays taken until it expires.
		{outcome: plan.OutcomeLost, request: bus.ExecRequest{Shell: "echo up; sleep 60"}, when: bus.EventStdout,
			during: func(_ context.Context, _ *bus.Bus, inst *instance.Instance, _ string) error {
				var errs []error
				for _, s := range inst.Emulator().Sprites() {
					errs = append(errs, inst.Emulator().Kill(s.Name))
				}
				return errors.Join(errs...)
			}},
		{outcome: plan.OutcomeEnded, other: func(job string) (bus.Kind, any) {
			return bus.KindEnd, bus.EndRequest{V: 1, JobID: job, ConversationID: "trace"}
		}},
	}
}

// TestErrorsShowsWhatARunReallySays runs each outcome and holds the recorded trace in docs/errors.md to it.
func TestErrorsShowsWhatARunReallySays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../errors.md")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	inst, err := instance.Start(ctx, instance.Config{Settings: map[string]string{"WAKEBUS_CREATE_PATIENCE": "2s"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inst.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := inst.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for _, s := range append([]scenario{{outcome: "warm-up", request: bus.ExecRequest{Shell: "true"}}}, scenarios()...) {
		trace := record(ctx, t, client, inst, s)
		if s.outcome == "warm-up" {
			continue // so that each trace begins with a sandbox that is there
		}
		if !shown(string(page), trace) {
			t.Errorf("docs/errors.md does not show this trace of %s:\n%s", s.outcome, trace)
		}
	}
}

// shown reports whether the page has a block with these events. Output and state are written side by side, so that the
// same run may store two neighbours of them in either order: numbers and order are left out of the comparison.
func shown(page, trace string) bool {
	want := eventsOf(trace)
	for i, block := range strings.Split(page, "```\n") {
		if i%2 == 1 && slices.Equal(eventsOf(block), want) {
			return true
		}
	}
	return false
}

func eventsOf(trace string) []string {
	var events []string
	for line := range strings.Lines(trace) {
		_, event, _ := strings.Cut(strings.TrimSpace(line), " ")
		events = append(events, event)
	}
	slices.Sort(events)
	return events
}

func record(ctx context.Context, t *testing.T, b *bus.Bus, inst *instance.Instance, s scenario) string {
	t.Helper()
	if s.before != nil {
		if err := s.before(inst); err != nil {
			t.Fatal(err)
		}
	}
	s.request.V, s.request.JobID = 1, "trace-"+strings.ReplaceAll(string(s.outcome), "_", "-")
	if s.request.ConversationID == "" {
		s.request.ConversationID = "trace"
	}
	reader, err := b.Subscribe(ctx, "dev", s.request.JobID)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	kind, request := bus.KindExec, any(s.request)
	if s.other != nil {
		kind, request = s.other(s.request.JobID)
	}
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Publish(ctx, kind, "dev", nil, body); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for last := bus.EventKind(""); ; {
		e, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			t.Fatalf("%s: %v after\n%s", s.outcome, err, out.String())
		}
		if e.Kind == bus.EventDialing && last == e.Kind {
			continue // another try to connect: how many there are is a matter of timing
		}
		last = e.Kind
		out.WriteString(line(e) + "\n")
		if e.Kind == s.when && s.during != nil {
			if err := s.during(ctx, b, inst, s.request.JobID); err != nil {
				t.Fatal(err)
			}
		}
	}
}
