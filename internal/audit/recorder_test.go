package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/plan"
)

type written struct {
	tenant, kind, id string
	body             []byte
	once             bool
}

type sink struct {
	mu   sync.Mutex
	fail error
	got  []written
	hang bool
}

var _ audit.Sink = (*sink)(nil)

func (s *sink) Write(ctx context.Context, tenant, kind, id string, record []byte, once bool) error {
	if s.hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.got = append(s.got, written{tenant, kind, id, record, once})
	return nil
}

func (s *sink) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

type bundle struct {
	sink     *sink
	log      *bytes.Buffer
	metrics  *prometheus.Registry
	recorder *audit.Recorder
}

func setup(t *testing.T, timeout time.Duration) bundle {
	t.Helper()
	b := bundle{sink: &sink{}, log: &bytes.Buffer{}, metrics: prometheus.NewRegistry()}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, err := audit.New(b.sink, audit.Config{Timeout: timeout, Now: func() time.Time { return now },
		Log: zerolog.New(b.log), Registerer: b.metrics})
	if err != nil {
		t.Fatal(err)
	}
	b.recorder = r
	return b
}

// count is the counter's value for runs with this result.
func (b bundle) count(t *testing.T, result string) float64 {
	t.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "wakebus_audit_records_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["kind"] == "run" && labels["result"] == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func run() audit.Record {
	return audit.Record{Kind: audit.KindRun, Tenant: "acme", ID: audit.RunID("job-1", 2), Job: "job-1", Run: 2,
		Actor: audit.Actor{User: "ann", Tier: plan.TierPro}, Command: "deploy --token hunter2", Outcome: plan.OutcomeExited,
		DurationMs: 1500, Fence: 7, Usage: &audit.Usage{ActiveS: 1.5, Wakes: 1, Bytes: 12, Tier: plan.TierPro}}
}

func TestARunIsRecordedOnceUnderItsOwnId(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	if !b.recorder.Record(t.Context(), run()) {
		t.Fatal("not stored")
	}
	got := b.sink.got[0]
	if got.tenant != "acme" || got.kind != "run" || got.id != "job-1.2" || !got.once {
		t.Fatalf("stored as %+v", got)
	}
	var rec audit.Record
	if err := json.Unmarshal(got.body, &rec); err != nil {
		t.Fatal(err)
	}
	if rec.V != 1 || rec.Time.IsZero() || rec.Usage == nil || rec.Usage.ActiveS != 1.5 || rec.Fence != 7 {
		t.Fatalf("record %+v", rec)
	}
	if !bytes.Contains(got.body, []byte(`"usage":{"active_s":1.5,"wakes":1,"bytes":12,"tier":"pro"}`)) {
		t.Fatalf("usage is spelled otherwise: %s", got.body)
	}
}

func TestOnlyARunIsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	for _, kind := range audit.Kinds() {
		rec := run()
		rec.Kind = kind
		if !b.recorder.Record(t.Context(), rec) {
			t.Fatalf("%s not stored", kind)
		}
		last := b.sink.got[len(b.sink.got)-1]
		if last.once != (kind == audit.KindRun) {
			t.Errorf("%s: once is %v", kind, last.once)
		}
	}
}

// case 87
func TestCase87ASecretInACommandDoesNotReachTheSink(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	rec := run()
	rec.Detail, rec.Path = "Authorization: Bearer hunter2", "/workspace/token=hunter2"
	b.recorder.Record(t.Context(), rec)
	if body := b.sink.got[0].body; bytes.Contains(body, []byte("hunter2")) {
		t.Fatalf("stored %s", body)
	}
}

func TestAFailingSinkIsCountedAndLoggedOncePerOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.sink.set(errors.New("no broker"))
	for range 3 {
		if b.recorder.Record(t.Context(), run()) {
			t.Fatal("says stored")
		}
	}
	b.sink.set(nil)
	if !b.recorder.Record(t.Context(), run()) {
		t.Fatal("not stored after the outage")
	}
	if failed, stored := b.count(t, "failed"), b.count(t, "stored"); failed != 3 || stored != 1 {
		t.Fatalf("counted %v failed, %v stored", failed, stored)
	}
	if n := strings.Count(b.log.String(), "cannot be stored"); n != 1 {
		t.Fatalf("logged %d times: %s", n, b.log)
	}
	if n := strings.Count(b.log.String(), "stored again"); n != 1 {
		t.Fatalf("the end of the outage was logged %d times: %s", n, b.log)
	}
}

func TestASinkThatHangsIsLeftAfterItsTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Millisecond)
	b.sink.hang = true
	if b.recorder.Record(t.Context(), run()) {
		t.Fatal("says stored")
	}
}

func TestARecordIsStoredThoughTheCallerIsLeaving(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if !b.recorder.Record(ctx, run()) {
		t.Fatal("not stored")
	}
}

// case 84
func TestCase84AnIdThatIsNoTokenReachesNoSubject(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*audit.Record){
		"tenant":      func(r *audit.Record) { r.Tenant = "a.b" },
		"wildcard":    func(r *audit.Record) { r.ID = "job.*" },
		"empty token": func(r *audit.Record) { r.ID = "job..1" },
		"line end":    func(r *audit.Record) { r.ID = "job\r\n" },
		"kind":        func(r *audit.Record) { r.Kind = "run.>" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 0)
			rec := run()
			change(&rec)
			if b.recorder.Record(t.Context(), rec) || len(b.sink.got) != 0 {
				t.Fatalf("stored %+v", b.sink.got)
			}
		})
	}
}

func TestARecordThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	rec := run()
	rec.Sandbox = strings.Repeat("x", audit.MaxRecord)
	if b.recorder.Record(t.Context(), rec) || len(b.sink.got) != 0 {
		t.Fatal("stored")
	}
}

func TestNewReportsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := audit.New(nil, audit.Config{Timeout: -1, Tries: 11})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"sink", "timeout", "tries"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestTwoRecordersShareOneRegistry(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for range 2 {
		if _, err := audit.New(&sink{}, audit.Config{Registerer: reg}); err != nil {
			t.Fatal(err)
		}
	}
}
