package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/telemetry"
	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/attach"
)

// locked collects what several goroutines write.
type locked struct {
	mu      sync.Mutex // protects buf
	buf     bytes.Buffer
	changed chan struct{} // a tick per write, never closed; nil when nobody waits
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return l.buf.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// system is everything real, each part under its own user.
type system struct {
	*testing.T
	broker *broker
	inst   *instance.Instance
	log    *locked
	jobs   int
}

func startSystem(t *testing.T, settings map[string]string) *system {
	t.Helper()
	b := startBroker(t, "nats.conf")
	b.setUp()
	return startSystemOn(t, b, settings)
}

// startSystemOn starts it over a broker that is set up. change edits the worker's configuration.
func startSystemOn(t *testing.T, b *broker, settings map[string]string, change ...func(*job.AppConfig)) *system {
	t.Helper()
	s := &system{T: t, broker: b, log: &locked{}}
	all := map[string]string{"WAKEBUS_CREATE_PATIENCE": "3s"}
	for k, v := range settings {
		all[k] = v
	}
	inst, err := instance.Start(within(t), instance.Config{
		NATSURL: s.broker.url("worker"), Settings: all, Log: telemetry.NewLog(telemetry.LogConfig{Output: s.log}),
		Emulator: func(c *emulator.Config) { c.WarmWake, c.ColdWake = 20*time.Millisecond, 50*time.Millisecond },
		App: func(_ int, a *job.AppConfig) {
			for _, f := range change {
				f(a)
			}
		},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
	s.inst = inst
	t.Cleanup(func() {
		if err := inst.Close(); err != nil {
			t.Error(err)
		}
		// A call that the permissions forbid shows nowhere else: its caller only waits.
		if log := s.log.String(); strings.Contains(strings.ToLower(log), "permissions violation") {
			t.Errorf("a part tried what its role may not do:\n%s", log)
		}
	})
	return s
}

// caller reads and publishes as a role that may not read streams: live by the reply subject, the rest by the endpoint.
type caller struct {
	s      *system
	tenant string
	bus    *bus.Bus
}

func (s *system) caller(user, tenant string) *caller {
	return &caller{s: s, tenant: tenant, bus: s.broker.connect(user)}
}

func (c *caller) newID() string {
	c.s.jobs++
	return "job-" + strconv.Itoa(c.s.jobs)
}

// read subscribes to a job's events.
func (c *caller) read(job string, options ...bus.ReadOption) *bus.Reader {
	c.s.Helper()
	reader, err := c.bus.Subscribe(within(c.s), c.tenant, job, append(options, bus.ReadHistory(c.bus.HistoryClient()))...)
	if err != nil {
		c.s.Fatal(err)
	}
	c.s.Cleanup(reader.Close)
	return reader
}

// send publishes a request and returns the reader of its events, of later runs too.
func (c *caller) send(kind bus.Kind, job string, body any) *bus.Reader {
	c.s.Helper()
	reader := c.read(job, bus.ReadFollow())
	data, err := json.Marshal(body)
	if err != nil {
		c.s.Fatal(err)
	}
	if _, err := c.bus.Publish(within(c.s), kind, c.tenant, nil, data); err != nil {
		c.s.Fatal(err)
	}
	return reader
}

func (c *caller) exec(conversation, shell string) (string, *bus.Reader) {
	c.s.Helper()
	job := c.newID()
	return job, c.send(bus.KindExec, job, bus.ExecRequest{V: 1, JobID: job, ConversationID: conversation, Shell: shell})
}

// until reads up to the first event of this kind, and returns it with the output on the way.
func (s *system) until(r *bus.Reader, kind bus.EventKind) (bus.Event, string) {
	s.Helper()
	var out strings.Builder
	ctx := within(s)
	for {
		e, err := r.Next(ctx)
		if err != nil {
			s.Fatalf("waiting for %s: %v\n%s", kind, err, s.log)
		}
		if e.Kind == bus.EventStdout {
			out.Write(e.Data)
		}
		if e.Kind == kind {
			return e, out.String()
		}
	}
}

func (s *system) result(r *bus.Reader) (bus.ResultBody, string) {
	s.Helper()
	e, out := s.until(r, bus.EventResult)
	var body bus.ResultBody
	if err := json.Unmarshal(e.Data, &body); err != nil {
		s.Fatal(err)
	}
	return body, out
}

func (s *system) outcome(r *bus.Reader, want plan.Outcome) (bus.ResultBody, string) {
	s.Helper()
	body, out := s.result(r)
	if body.Outcome != want {
		s.Fatalf("outcome %s (%s, %s) instead of %s", body.Outcome, body.Reason, body.Message, want)
	}
	return body, out
}

// work is a caller's whole day: commands, history, files, jobs, a cancel, a call and the end.
func (c *caller) work() {
	s := c.s
	s.Helper()
	ctx := within(s)
	job, r := c.exec("day", "echo hello; echo kept > /workspace/kept")
	if _, out := s.outcome(r, plan.OutcomeExited); out != "hello\n" {
		s.Errorf("stdout is %q", out)
	}
	events, last, more, err := c.bus.HistoryClient().History(ctx, bus.RunKey{Tenant: c.tenant, Job: job}, 2, 0, 0)
	if err != nil || more || len(events) == 0 || events[0].Seq != 2 || events[len(events)-1].Kind != bus.EventResult || last != events[len(events)-1].Seq {
		s.Errorf("history gave %d events to %d, more %v, %v", len(events), last, more, err)
	}
	if _, err := c.bus.FileWrite(ctx, c.tenant, nil, bus.FileWriteParams{ConversationID: "day", Path: "/workspace/in"}, []byte("written")); err != nil {
		s.Errorf("write: %v", err)
	}
	if got, err := c.bus.FileRead(ctx, c.tenant, nil, bus.FileReadParams{ConversationID: "day", Path: "/workspace/in"}); err != nil || string(got.Data) != "written" {
		s.Errorf("read: %+v, %v", got, err)
	}
	_, long := c.exec("day", "echo up; sleep 600")
	s.until(long, bus.EventStdout)
	if err := c.bus.MarkCancel(ctx, bus.CancelTarget{Tenant: c.tenant, Conversation: "day"}, bus.CancelRequest{By: "ann", Why: "enough"}, nil); err != nil {
		s.Errorf("cancel: %v", err)
	}
	s.outcome(long, plan.OutcomeCanceled)
	jobs, err := c.bus.JobsClient(ctx, c.tenant, bus.JobsRequest{ConversationID: "day"})
	if err != nil || len(jobs.Jobs) != 2 || jobs.Jobs[0].Outcome != plan.OutcomeCanceled {
		s.Errorf("jobs: %+v, %v", jobs, err)
	}
	c.call()
	end := c.newID()
	if body, _ := s.outcome(c.send(bus.KindEnd, end, bus.EndRequest{V: 1, JobID: end, ConversationID: "day"}), plan.OutcomeEnded); body.Plan != plan.ActionTeardown {
		s.Errorf("the end's plan is %s", body.Plan)
	}
}

// call runs a command by request and reply.
func (c *caller) call() {
	s := c.s
	s.Helper()
	job := c.newID()
	data, err := json.Marshal(bus.ExecRequest{V: 1, JobID: job, ConversationID: "day", Argv: []string{"cat", "kept"}})
	if err != nil {
		s.Fatal(err)
	}
	call, err := c.bus.CallExec(within(s), c.tenant, nil, data)
	if err != nil {
		s.Fatal(err)
	}
	defer call.Close()
	var out strings.Builder
	for {
		e, err := call.Next(within(s))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.Fatalf("call: %v", err)
		}
		if e.Kind == bus.EventStdout {
			out.Write(e.Data)
		}
	}
	if out.String() != "kept\n" {
		s.Errorf("the call gave %q", out.String())
	}
}

func TestTheWebAppDoesItsWholeWorkUnderItsRole(t *testing.T) {
	t.Parallel()
	startSystem(t, nil).caller("web", "dev").work()
}

func TestATenantsOwnCredentialDoesItsWholeWork(t *testing.T) {
	t.Parallel()
	startSystem(t, nil).caller("web-acme", "acme").work()
}

func TestTheGatewayOpensAShellUnderItsRole(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	env := s.inst.Env()
	env["NATS_URL"], env["WAKEBUS_INBOX_PREFIX"], env["WAKEBUS_TERMINAL_ADDR"] = s.broker.url("gateway"), "_INBOX_gateway", "127.0.0.1:0"
	settings, _, err := config.Load(config.RoleGateway, func(k string) (string, bool) { v, ok := env[k]; return v, ok }, nil)
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := terminal.NewApp(within(t), settings, terminal.AppConfig{Log: telemetry.NewLog(telemetry.LogConfig{Output: s.log}), Quarantine: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	keys, typed := io.Pipe()
	screen := &locked{changed: make(chan struct{}, 1)}
	shell := make(chan attach.End, 1)
	go func() {
		end, err := attach.Run(within(t), attach.Config{URL: gateway.URL(), Page: "home", Client: "tester", Input: keys, Output: screen})
		if err != nil {
			t.Error(err)
		}
		shell <- end
	}()
	_, _ = io.WriteString(typed, "echo in $((40+2))\r")
	for deadline := within(t); !strings.Contains(screen.String(), "in 42"); {
		select {
		case <-screen.changed:
		case <-deadline.Done():
			t.Fatalf("the screen shows %q\n%s", screen, s.log)
		}
	}
	_, _ = io.WriteString(typed, "exit 7\r")
	if end := <-shell; end.Code() != 7 {
		t.Errorf("ended with %+v", end)
	}
	_ = typed.Close()
}

func TestAnOperatorReplaysADeadLetterAndSwitchesExecutionUnderTheirRole(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	web, ops := s.caller("web", "dev"), s.caller("ops", "dev")
	ctx := within(t)
	limit := emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 429,
		Body: `{"error":"sprite_creation_rate_limited","message":"slow down","limit":10,"window_seconds":60,"retry_after_seconds":1}`}
	if err := s.inst.Emulator().AddFaults(limit); err != nil {
		t.Fatal(err)
	}
	job, r := web.exec("limited", "echo at last")
	body, _ := s.outcome(r, plan.OutcomeFailed)
	if body.DeadLetter != "dev/"+job {
		t.Fatalf("dead letter %q", body.DeadLetter)
	}
	s.inst.Emulator().ClearFaults()
	id := bus.LetterID{Tenant: "dev", Job: job}
	waitFor(t, func() bool { _, err := ops.bus.Letter(ctx, id); return err == nil })
	if list, err := ops.bus.LetterSummaries(ctx, bus.LetterFilter{}); err != nil || len(list) != 1 {
		t.Errorf("listed %d, %v", len(list), err)
	}
	if stats, err := ops.bus.LetterStats(ctx, bus.LetterFilter{}); err != nil {
		t.Errorf("stats %+v, %v", stats, err)
	}
	entry, err := ops.bus.MarkReplaying(ctx, id, bus.ReplayOptions{By: "olga"})
	if err != nil {
		t.Fatal(err)
	}
	grant := `{"iss":"ops","sub":"olga","job":"` + job + `"}`
	if err := ops.bus.ParkReplay(ctx, entry, bus.Replay{At: time.Now(), Deadline: time.Now().Add(time.Minute), Grant: grant}); err != nil {
		t.Fatal(err)
	}
	if _, out := s.outcome(r, plan.OutcomeExited); out != "at last\n" {
		t.Errorf("the replay printed %q", out)
	}
	if depths, err := ops.bus.Backlog(ctx); err != nil {
		t.Errorf("backlog %+v, %v", depths, err)
	}
	if err := errors.Join(ops.bus.Verify(ctx), ops.bus.SetExecution(ctx, false, "olga", "a test")); err != nil {
		t.Fatal(err)
	}
	denied := func() plan.Reason { _, r := web.exec("limited", "true"); b, _ := s.result(r); return b.Reason }
	waitFor(t, func() bool { return denied() == plan.ReasonKillSwitchOff })
	if err := ops.bus.SetExecution(ctx, true, "olga", "a test"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return denied() == "" })
	if err := ops.bus.AuditSink().Write(ctx, "dev", "operate", "a-test", []byte(`{}`), false); err != nil {
		t.Error(err)
	}
}

func TestTheWebAppAnswersWhoMayRunCodeAndNobodyElse(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "nats.conf")
	nc := b.dial("web")
	_, err := nc.Subscribe(bus.SubjectAuthzAnswer, func(m *nats.Msg) { _ = m.Respond([]byte(`{"allow":true,"tier":"pro"}`)) })
	if err = errors.Join(err, nc.FlushTimeout(patience)); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"worker", "gateway"} {
		if answer, err := b.connect(user).CanRunCode(within(t), []byte(`{}`)); err != nil || !strings.Contains(string(answer), "pro") {
			t.Errorf("%s heard %q, %v", user, answer, err)
		}
	}
}

// Case 85: a reply subject that is no inbox of the caller's own gets nothing, whatever it was asked for.
func TestCase85AWorkerIsNotMadeToPublishWhereItsCallerMayNot(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	for _, reply := range []string{"$JS.API.STREAM.DELETE.SANDBOX", "sandbox.reply.acme.j.0.state", "sandbox.end.other", "_INBOX_other.x", "_INBOX.x", "terminal.open.acme"} {
		if !refused(t, s.broker.url("worker"), pub(reply)) {
			t.Errorf("the broker lets a worker publish on %s", reply)
		}
	}
	acme, err := nats.Connect(s.broker.url("web-acme"), nats.CustomInboxPrefix("_INBOX_acme"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer acme.Close()
	// The endpoints are there, so that what follows is refused and not merely unheard.
	waitFor(t, func() bool {
		_, err := acme.Request("sandbox.jobs.acme", []byte(`{"v":1}`), patience)
		return err == nil
	})
	before := contents(t, s.broker)
	for _, reply := range []string{"sandbox.exec.other", "sandbox.dlq.other.j", "sandbox.event.other.j.0.state", "$KV.SANDBOX_LINKS.x", "$JS.ACK.SANDBOX.exec.1.1.1.1.0"} {
		if err := acme.PublishRequest("sandbox.jobs.acme", reply, []byte(`{"v":1}`)); err != nil {
			t.Errorf("%s: %v", reply, err)
		}
	}
	// An answer after all of them: the endpoint has dealt with what came before.
	if _, err := acme.Request("sandbox.jobs.acme", []byte(`{"v":1}`), patience); err != nil {
		t.Fatal(err)
	}
	if after := contents(t, s.broker); after != before {
		t.Errorf("the streams hold\n%s\nand held\n%s", after, before)
	}
}

// waitFor asks until the answer is yes; each question takes a round trip of its own.
func waitFor(t *testing.T, yes func() bool) {
	t.Helper()
	ctx := within(t)
	for !yes() {
		select {
		case <-ctx.Done():
			t.Fatal("it did not become true")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
