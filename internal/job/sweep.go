package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

const (
	sweepEvery = time.Hour
	// labelPrefix is reserved: labels are permissions at the provider, so ours never come from a request.
	labelPrefix = "wakebus-"
)

// ErrSweepStopped: the sweep found more to delete than it may, or could not see everything, and deleted nothing.
var ErrSweepStopped = errors.New("the sweep stopped")

// labels mark a Sprite as this deployment's.
func (w *Worker) labels() []string { return []string{DeploymentLabel(w.cfg.DeploymentID)} }

// DeploymentLabel is the label which marks a deployment's Sprites.
func DeploymentLabel(id string) string { return labelPrefix + "deployment-" + id }

// Swept is what a sweep says of one Sprite.
type Swept struct {
	Sandbox string            `json:"sandbox"`
	Verdict plan.SweepVerdict `json:"verdict"`
	Why     string            `json:"why"`
	Deleted bool              `json:"deleted"`
	Error   string            `json:"error,omitempty"` // the class of a failed deletion

	instance string
}

// SweepReport is one look at every Sprite.
type SweepReport struct {
	Rows []Swept
	// Doomed are the rows to delete, Budget how many one sweep may.
	Doomed, Budget int
	// Complete is false when the provider's listing was cut short.
	Complete bool

	next sightings
}

// Stopped is nil, or wraps ErrSweepStopped and says why nothing may be deleted by this report.
func (r *SweepReport) Stopped() error {
	switch {
	case !r.Complete:
		return fmt.Errorf("%w: the provider's listing is not complete", ErrSweepStopped)
	case r.Doomed > r.Budget:
		return fmt.Errorf("%w: %d of %d sandboxes look unused, one sweep may delete %d; look at them first", ErrSweepStopped, r.Doomed, len(r.Rows), r.Budget)
	}
	return nil
}

// SweepDeps are the parts that a Sweeper works with.
type SweepDeps struct {
	Bus     *bus.Bus
	Leases  *lease.Manager
	Links   *session.Store
	Sprites *sprites.Client
	// Audit records each deletion.
	Audit func(context.Context, audit.Record) bool
}

// SweepConfig configures a Sweeper.
type SweepConfig struct {
	// DeploymentID marks the Sprites that may be deleted at all. Defaults to "default".
	DeploymentID string
	// HardExpiry is the deployment's; 0 = never, and then nothing is deleted. Defaults to 0.
	HardExpiry time.Duration
	// Clock is its time. Defaults to the real one.
	Clock Clock
	// Log gets a line per deletion. Defaults to none.
	Log zerolog.Logger
}

// Sweeper finds Sprites that nobody has any more. What it saw is kept beside the links, so that sweeps of different
// workers and operators add up. Its methods may be called concurrently; they block for one call per page of Sprites and
// some per link.
type Sweeper struct {
	deps SweepDeps
	cfg  SweepConfig
	mu   sync.Mutex // one sweep at a time in this process
}

// NewSweeper makes a sweeper.
func NewSweeper(deps SweepDeps, cfg SweepConfig) (*Sweeper, error) {
	if deps.Bus == nil || deps.Leases == nil || deps.Links == nil || deps.Sprites == nil || deps.Audit == nil {
		return nil, errors.New("sweeper: bus, leases, links, sprites and audit must be given")
	}
	if cfg.DeploymentID == "" {
		cfg.DeploymentID = "default"
	}
	if cfg.Clock == nil {
		cfg.Clock = realClock{}
	}
	return &Sweeper{deps: deps, cfg: cfg}, nil
}

// NewSweeper makes a sweeper over a worker's connections.
func (w *Worker) NewSweeper() (*Sweeper, error) {
	deps := SweepDeps{Bus: w.bus, Leases: w.leases, Links: w.links, Sprites: w.sprites, Audit: w.audit.Record}
	return NewSweeper(deps, SweepConfig{DeploymentID: w.cfg.DeploymentID, HardExpiry: w.cfg.HardExpiry, Clock: w.clock, Log: w.log})
}

// sweepSprites is the background role.
func (w *Worker) sweepSprites(ctx context.Context) error {
	s, err := w.NewSweeper()
	if err != nil {
		return err
	}
	for {
		if err := w.sleep(ctx, w.jitter(sweepEvery)); err != nil {
			return nil
		}
		w.sweepOnce(ctx, s)
	}
}

// sweepOnce sweeps, counts, and alarms when it stopped.
func (w *Worker) sweepOnce(ctx context.Context, s *Sweeper) {
	report, err := s.Sweep(ctx)
	if report != nil {
		for _, one := range report.Rows {
			w.met.swept.WithLabelValues(string(one.Verdict)).Inc()
		}
	}
	if err != nil {
		w.met.sweepStops.Inc()
		w.log.Error().Err(err).Msg("sweep")
	}
}

// Look judges every Sprite and changes nothing. No missing link alone ever dooms one, see plan.Sweep.
func (s *Sweeper) Look(ctx context.Context) (*SweepReport, error) {
	all, complete, err := s.deps.Sprites.List(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("%w: list sprites: %w", ErrSweepStopped, err)
	}
	earlier, err := s.readSightings(ctx)
	if err != nil {
		return nil, err
	}
	use, err := s.use(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSweepStopped, err)
	}
	report := &SweepReport{Complete: complete, Budget: plan.SweepBudget(len(all), complete), next: sightings{revision: earlier.revision, seen: map[string]time.Time{}}}
	for _, sp := range all {
		if err := s.judge(ctx, sp, use, earlier, report); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSweepStopped, err)
		}
	}
	return report, nil
}

func (s *Sweeper) judge(ctx context.Context, sp sprites.Sprite, use *usage, earlier sightings, report *SweepReport) error {
	now := s.cfg.Clock.Now()
	facts := plan.SweepFacts{Ours: slices.Contains(sp.Labels, DeploymentLabel(s.cfg.DeploymentID)), HardExpiry: s.cfg.HardExpiry}
	active := sp.LastActive
	if active.IsZero() {
		active = sp.CreatedAt // one that never was active counts from its creation
	}
	if !active.IsZero() {
		facts.ActivityKnown, facts.Idle = true, now.Sub(active)
	}
	id := sp.Name + "/" + sp.Instance
	first, before := earlier.seen[id]
	if before {
		facts.FirstSeen = now.Sub(first)
	} else {
		first = now
	}
	// Whether it is in use costs questions, so it is asked only for one that would go otherwise.
	verdict, why := plan.Sweep(facts)
	if verdict != plan.SweepKeep {
		var err error
		if facts.InUse, err = s.inUse(ctx, sp, use); err != nil {
			return err
		}
		verdict, why = plan.Sweep(facts)
	}
	if verdict != plan.SweepKeep {
		report.next.seen[id] = first
	}
	if verdict == plan.SweepDelete {
		report.Doomed++
	}
	report.Rows = append(report.Rows, Swept{Sandbox: sp.Name, Verdict: verdict, Why: why, instance: sp.Instance})
	return nil
}

// Sweep looks, remembers what it saw, and deletes what is doomed. With an error the report may be nil or show how far
// it came.
func (s *Sweeper) Sweep(ctx context.Context) (*SweepReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	report, err := s.Look(ctx)
	if err != nil {
		return nil, err
	}
	return report, s.Delete(ctx, report)
}

// Delete remembers what a look saw and deletes what it doomed, unless Stopped. One that fails does not stop the rest.
func (s *Sweeper) Delete(ctx context.Context, report *SweepReport) error {
	if err := report.Stopped(); err != nil {
		return err
	}
	if err := s.saveSightings(ctx, report.next); err != nil {
		return err
	}
	var errs []error
	for i := range report.Rows {
		row := &report.Rows[i]
		if row.Verdict != plan.SweepDelete {
			continue
		}
		if err := s.remove(ctx, row); err != nil {
			row.Error = string(sprites.ClassOf(err))
			errs = append(errs, fmt.Errorf("sweep %s: %w", row.Sandbox, err))
		}
	}
	return errors.Join(errs...)
}
