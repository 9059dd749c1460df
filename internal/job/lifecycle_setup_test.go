package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// house is a whole instance and one caller: what a web app sees, and what an operator can look into.
type house struct {
	t    testing.TB
	inst *instance.Instance
	bus  *bus.Bus
	logs *lines
	reg  []*prometheus.Registry
	ids  atomic.Int64
}

// lines keeps what was logged.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// plot is what a test changes about its house.
type plot struct {
	cfg     instance.Config
	workers []func(n int, c *job.Config)
	apps    []func(n int, a *job.AppConfig)
}

type change func(*plot)

func settings(kv ...string) change {
	return func(p *plot) {
		for i := 0; i+1 < len(kv); i += 2 {
			p.cfg.Settings[kv[i]] = kv[i+1]
		}
	}
}

func workers(n int) change { return func(p *plot) { p.cfg.Workers = n } }

func emulated(f func(*emulator.Config)) change {
	return func(p *plot) {
		before := p.cfg.Emulator
		p.cfg.Emulator = func(c *emulator.Config) { before(c); f(c) }
	}
}

func eachWorker(f func(n int, c *job.Config)) change {
	return func(p *plot) { p.workers = append(p.workers, f) }
}

func eachApp(f func(n int, a *job.AppConfig)) change {
	return func(p *plot) { p.apps = append(p.apps, f) }
}

// build starts a house with wakes that cost no time and a log at debug level.
func build(t testing.TB, changes ...change) *house {
	t.Helper()
	h := &house{t: t, logs: &lines{}}
	p := &plot{cfg: instance.Config{Settings: map[string]string{}, Emulator: func(c *emulator.Config) {
		c.WarmWake, c.ColdWake, c.Idle = -1, -1, time.Hour
	}}}
	for _, c := range changes {
		c(p)
	}
	p.cfg.Log = telemetry.NewLog(telemetry.LogConfig{Output: h.logs, Level: config.Level("debug"), Format: telemetry.LogJSON})
	var mu sync.Mutex
	p.cfg.App = func(n int, a *job.AppConfig) {
		mu.Lock()
		defer mu.Unlock()
		a.Registry = prometheus.NewRegistry()
		h.reg = append(h.reg[:min(n, len(h.reg))], a.Registry) // a start that is tried again begins anew
		// On a machine that is short of time a Redis that is slow to answer would read as away, and holds up nobody.
		a.Leases = func(c *lease.Config) { c.CallTimeout = min(6*time.Second, c.TTL/6) }
		a.Worker = func(c *job.Config) {
			for _, f := range p.workers {
				f(n, c)
			}
		}
		for _, f := range p.apps {
			f(n, a)
		}
	}
	inst, err := start(p.cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.inst = inst
	t.Cleanup(func() {
		if err := inst.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() && testing.Verbose() {
			t.Log(h.logs.String())
		}
	})
	if h.bus, err = inst.Connect(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.bus.Close)
	if err := h.bus.Setup(context.Background()); err != nil {
		t.Fatal(err)
	}
	return h
}

// starting lets one house start at a time: the limits of a start are for a machine that does one thing.
var starting sync.Mutex

func start(cfg instance.Config) (inst *instance.Instance, err error) {
	starting.Lock()
	defer starting.Unlock()
	for range 3 {
		if inst, err = instance.Start(context.Background(), cfg); err == nil {
			return inst, nil
		}
	}
	return nil, err
}

func (h *house) id(prefix string) string { return prefix + "-" + strconv.FormatInt(h.ids.Add(1), 10) }

// asked is a published request whose events are still to be read.
type asked struct {
	t      testing.TB
	job    string
	reader *bus.Reader
	events []bus.Event
}

type grant map[string]any

func (g grant) header(t testing.TB) bus.Header {
	h := bus.Header{}
	if g == nil {
		return h
	}
	b, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	h.Set(bus.HeaderGrant, string(b))
	return h
}

const tenant = "acme"

// publish sends any body and reads what comes back under its job id.
func (h *house) publish(t testing.TB, kind bus.Kind, tenant, id string, body any, header bus.Header) *asked {
	t.Helper()
	data, ok := body.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	reader, err := h.bus.Subscribe(t.Context(), tenant, id, bus.ReadFollow())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	if _, err := h.bus.Publish(t.Context(), kind, tenant, header, data); err != nil {
		t.Fatal(err)
	}
	return &asked{t: t, job: id, reader: reader}
}

// exec publishes one command of tenant acme.
func (h *house) exec(t testing.TB, req bus.ExecRequest, g grant) *asked {
	t.Helper()
	return h.execFor(t, tenant, req, g)
}

func (h *house) execFor(t testing.TB, tenant string, req bus.ExecRequest, g grant) *asked {
	t.Helper()
	req.V = 1
	if req.JobID == "" {
		req.JobID = h.id("job")
	}
	return h.publish(t, bus.KindExec, tenant, req.JobID, req, g.header(t))
}

// sh publishes one command line and waits for its result.
func (h *house) sh(t testing.TB, conversation, text string) bus.ResultBody {
	t.Helper()
	return h.exec(t, bus.ExecRequest{ConversationID: conversation, Shell: text}, nil).result()
}

// end publishes the end of a conversation and waits for its result.
func (h *house) end(t testing.TB, conversation string) bus.ResultBody {
	t.Helper()
	return h.ending(t, conversation).result()
}

func (h *house) ending(t testing.TB, conversation string) *asked {
	t.Helper()
	id := h.id("end")
	return h.publish(t, bus.KindEnd, tenant, id, bus.EndRequest{V: 1, JobID: id, ConversationID: conversation}, bus.Header{})
}

// until reads up to the first event of a kind.
func (a *asked) until(kind bus.EventKind) bus.Event {
	a.t.Helper()
	return a.first(kind)
}

// first reads up to the first event of one of the kinds.
func (a *asked) first(kinds ...bus.EventKind) bus.Event {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 150*time.Second)
	defer cancel()
	for {
		e, err := a.reader.Next(ctx)
		if err != nil {
			had := make([]string, 0, len(a.events))
			for _, e := range a.events {
				had = append(had, string(e.Kind))
			}
			a.t.Fatalf("job %s: no %v after %s: %v", a.job, kinds, strings.Join(had, " "), err)
		}
		a.events = append(a.events, e)
		if slices.Contains(kinds, e.Kind) {
			return e
		}
	}
}

func (a *asked) result() bus.ResultBody {
	a.t.Helper()
	var body bus.ResultBody
	if err := json.Unmarshal(a.until(bus.EventResult).Data, &body); err != nil {
		a.t.Fatal(err)
	}
	return body
}

func (a *asked) stdout() string {
	var b strings.Builder
	for _, e := range a.events {
		if e.Kind == bus.EventStdout {
			b.Write(e.Data)
		}
	}
	return b.String()
}

// waits lists for what the job has waited.
func (a *asked) waits() []bus.WaitFor {
	var out []bus.WaitFor
	for _, e := range a.events {
		if e.Kind == bus.EventWaiting {
			var w bus.WaitingBody
			if err := json.Unmarshal(e.Data, &w); err != nil {
				a.t.Fatal(err)
			}
			out = append(out, w.For)
		}
	}
	return out
}

func exited(t testing.TB, r bus.ResultBody, code int) {
	t.Helper()
	if r.Outcome != plan.OutcomeExited || r.ExitCode == nil || *r.ExitCode != code {
		t.Fatalf("got %s, want exited %d", says(r), code)
	}
}

func outcome(t testing.TB, r bus.ResultBody, want plan.Outcome, reason plan.Reason) {
	t.Helper()
	if r.Outcome != want || r.Reason != reason {
		t.Fatalf("got %s, want %s %s", says(r), want, reason)
	}
}

func says(r bus.ResultBody) string {
	code := ""
	if r.ExitCode != nil {
		code = " " + strconv.Itoa(*r.ExitCode)
	}
	return string(r.Outcome) + code + " " + string(r.Reason) + " (" + r.Message + ")"
}

// name is the Sprite of a conversation of tenant acme, whether it exists or not.
func (h *house) name(t testing.TB, conversation string) string {
	t.Helper()
	return h.nameFor(t, h.inst.Env()["SANDBOX_SESSION_SECRET"], session.Key{Kind: plan.KindConversation, Tenant: tenant, ID: conversation})
}

func (h *house) nameFor(t testing.TB, secret string, key session.Key) string {
	t.Helper()
	namer, err := session.NewNamer(session.NamerConfig{Secret: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	name, err := namer.Name(key)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func (h *house) exists(name string) bool {
	for _, s := range h.inst.Emulator().Sprites() {
		if s.Name == name {
			return true
		}
	}
	return false
}

// fault adds rules to the emulator.
func (h *house) fault(t testing.TB, f ...emulator.Fault) {
	t.Helper()
	if err := h.inst.Emulator().AddFaults(f...); err != nil {
		t.Fatal(err)
	}
}

// links opens the session links as a worker does.
func (h *house) links(t testing.TB) *session.Store {
	t.Helper()
	store, err := session.New(h.bus.Links(), session.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func (h *house) link(t testing.TB, conversation string) session.Snapshot {
	t.Helper()
	snap, err := h.links(t).Load(t.Context(), session.Key{Kind: plan.KindConversation, Tenant: tenant, ID: conversation})
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// leases opens the lease store for looking into it.
func (h *house) leases(t testing.TB) *lease.Manager {
	t.Helper()
	nop := zerolog.Nop()
	m, err := lease.Open(t.Context(), lease.Config{URL: h.inst.Env()["REDIS_URL"], Quarantine: -1, Logger: &nop})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// held lists the jobs of the leases that exist.
func (h *house) held(t testing.TB, m *lease.Manager) []string {
	t.Helper()
	all, err := m.List(t.Context(), lease.Filter{Tenant: tenant})
	if errors.Is(err, lease.ErrUnavailable) {
		return []string{"unknown: " + err.Error()}
	}
	if err != nil {
		t.Fatal(err)
	}
	var jobs []string
	for _, r := range all {
		jobs = append(jobs, fmt.Sprintf("%s (%s, expires %s, scopes %v)", r.ID, r.Kind, r.Expires, r.Scopes))
	}
	return jobs
}

// free waits until no lease is left.
func (h *house) free(t testing.TB, m *lease.Manager) {
	t.Helper()
	var left []string
	defer func() {
		if len(left) > 0 {
			t.Logf("left: %v", left)
		}
	}()
	eventually(t, "no lease is left", func() bool {
		left = h.held(t, m)
		return len(left) == 0
	})
}

// eventually waits for something that no event announces, such as a record in another store.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.NewTimer(90*time.Second), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// clock is the real time moved forward by hand; timers run by the real one.
type clock struct{ ahead atomic.Int64 }

var _ job.Clock = (*clock)(nil)

func (c *clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) Timer(d time.Duration) job.Timer { return ticking{time.NewTimer(max(d, 0))} }

func (c *clock) forward(d time.Duration) { c.ahead.Add(int64(d)) }

type ticking struct{ t *time.Timer }

func (t ticking) C() <-chan time.Time { return t.t.C }
func (t ticking) Stop() bool          { return t.t.Stop() }

// deadLetter waits for a job's chain to be in a state.
func (h *house) deadLetter(t testing.TB, job string, state bus.LetterState) *bus.Letter {
	t.Helper()
	var found *bus.Letter
	eventually(t, "the dead letter of "+job+" is "+string(state), func() bool {
		l, err := h.bus.Letter(t.Context(), bus.LetterID{Tenant: tenant, Job: job})
		found = l
		return err == nil && l.State == state
	})
	return found
}

// counted sums a counter over all workers, where it has this label's value; an empty one is any.
func (h *house) counted(t testing.TB, name, label string) float64 {
	t.Helper()
	total := 0.0
	for _, r := range h.reg {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				has := label == ""
				for _, l := range m.GetLabel() {
					has = has || l.GetValue() == label
				}
				if f.GetName() == name && has {
					total += m.GetCounter().GetValue()
				}
			}
		}
	}
	return total
}
