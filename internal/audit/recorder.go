package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Sink stores records.
type Sink interface {
	// Write stores a record on the subject of tenant, kind and id. With once only the first record of that subject is
	// stored; a later one is no error. It blocks until the record is stored or the context ends.
	Write(ctx context.Context, tenant, kind, id string, record []byte, once bool) error
}

// MaxRecord is the largest record, in bytes. What its caps let through fits; anything larger is refused.
const MaxRecord = 32 << 10

// Config configures a Recorder.
type Config struct {
	// Timeout bounds one try to store a record. Defaults to 1 second.
	Timeout time.Duration
	// Tries is how often one record is tried. Defaults to 2.
	Tries int
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Log gets one line when storing begins to fail and one when it works again. Defaults to nothing.
	Log zerolog.Logger
	// Registerer gets the metrics. Defaults to none.
	Registerer prometheus.Registerer
}

// Recorder writes audit records. It may be used concurrently and has no goroutines.
type Recorder struct {
	sink    Sink
	cfg     Config
	failing atomic.Bool
	records *prometheus.CounterVec
}

// The values of the label result.
const (
	resultStored  = "stored"
	resultFailed  = "failed"
	resultInvalid = "invalid"
)

// New makes a Recorder over sink.
func New(sink Sink, cfg Config) (*Recorder, error) {
	var errs []error
	if sink == nil {
		errs = append(errs, errors.New("no sink given"))
	}
	if cfg.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout %s is below zero", cfg.Timeout))
	}
	if cfg.Tries < 0 || cfg.Tries > 10 {
		errs = append(errs, fmt.Errorf("%d tries are not between 0 and 10", cfg.Tries))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("audit recorder: %w", err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	if cfg.Tries == 0 {
		cfg.Tries = 2
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	records, err := registered(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("audit recorder: register metrics: %w", err)
	}
	return &Recorder{sink: sink, cfg: cfg, records: records}, nil
}

// registered is the counter of records, shared by the recorders of one registry.
func registered(reg prometheus.Registerer) (*prometheus.CounterVec, error) {
	records := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "wakebus", Subsystem: "audit",
		Name: "records_total", Help: "Audit records by kind and by what became of them: stored, failed, invalid."},
		[]string{"kind", "result"})
	if reg == nil {
		return records, nil
	}
	err := reg.Register(records)
	var again prometheus.AlreadyRegisteredError
	if errors.As(err, &again) {
		if existing, ok := again.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing, nil
		}
	}
	return records, err
}

// Record stores a record and reports whether it is stored. The caller goes on either way. It blocks for at most
// Config.Tries times Config.Timeout, also when ctx has ended: what was done is recorded although the doer is leaving.
// A run's record is stored once, whoever repeats it.
func (r *Recorder) Record(ctx context.Context, rec Record) bool {
	rec.V = 1
	if rec.Time.IsZero() {
		rec.Time = r.cfg.Now()
	}
	rec = rec.cleaned()
	body, err := r.encode(rec)
	if err != nil {
		r.count(rec.Kind, resultInvalid)
		r.cfg.Log.Error().Err(err).Str("kind", string(rec.Kind)).Msg("audit record is not valid")
		return false
	}
	ctx = context.WithoutCancel(ctx)
	for range r.cfg.Tries {
		if err = r.write(ctx, rec, body); err == nil {
			break
		}
	}
	if err != nil {
		r.count(rec.Kind, resultFailed)
		if !r.failing.Swap(true) {
			r.cfg.Log.Error().Err(err).Msg("audit records cannot be stored")
		}
		return false
	}
	r.count(rec.Kind, resultStored)
	if r.failing.Swap(false) {
		r.cfg.Log.Info().Msg("audit records are stored again")
	}
	return true
}

func (r *Recorder) encode(rec Record) ([]byte, error) {
	if err := rec.Validate(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("write audit record: %w", err)
	}
	if len(body) > MaxRecord {
		return nil, fmt.Errorf("audit record has %d bytes, %d are allowed", len(body), MaxRecord)
	}
	return body, nil
}

func (r *Recorder) write(ctx context.Context, rec Record, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	return r.sink.Write(ctx, rec.Tenant, string(rec.Kind), rec.ID, body, rec.Kind == KindRun)
}

func (r *Recorder) count(kind Kind, result string) {
	label := string(kind)
	if !kind.Valid() {
		label = "unknown"
	}
	r.records.WithLabelValues(label, result).Inc()
}
