package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/sprites"
)

const (
	// gaugeEvery spaces the cheap looks: queues and the journal's size, some round trips each.
	gaugeEvery = 15 * time.Second
	// fleetEvery is every how many of them the dear ones follow: a walk over the journal and over the leases, and the
	// provider's listing, which is a call per fifty Sprites.
	fleetEvery = 4
	// gaugeLeases bounds how many leases are counted.
	gaugeLeases = 100_000
)

// fleetGauges are what one worker measures for the whole fleet. They are there only while it leads: of an old leader's
// figure and a new one's nobody could tell which is true. That is why those without labels are vectors too.
type fleetGauges struct {
	depth, queueAge, unfinished, jobAge, journal, sprites, used *prometheus.GaugeVec
}

func newFleetGauges(reg prometheus.Registerer) (*fleetGauges, error) {
	vec := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "wakebus", Subsystem: "fleet", Name: name, Help: help}, labels)
	}
	g := &fleetGauges{
		depth:      vec("queue_depth", "Requests in the queues, waiting for a worker or in the hands of one.", "queue", "kind", "state"),
		queueAge:   vec("queue_oldest_seconds", "Age of the oldest request that waits in a queue.", "queue", "kind"),
		unfinished: vec("unfinished_runs", "Runs without a result: running, preparing, or what they wait for.", "state"),
		jobAge:     vec("oldest_job_seconds", "Age of the oldest request that has no result yet."),
		journal:    vec("journal_used_ratio", "Share of the journal's byte limit that is used."),
		sprites:    vec("sprites", "This deployment's Sprites by the provider's status.", "status"),
		used:       vec("sprites_in_use", "Sprites in use by our own count: by a command that runs, or by a terminal that holds a lease."),
	}
	var errs []error
	for _, c := range g.all() {
		errs = append(errs, reg.Register(c))
	}
	return g, errors.Join(errs...)
}

func (g *fleetGauges) all() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{g.depth, g.queueAge, g.unfinished, g.jobAge, g.journal, g.sprites, g.used}
}

// forget takes every figure away.
func (g *fleetGauges) forget() {
	for _, vec := range g.all() {
		vec.Reset()
	}
}

// gaugeFleet is the background role that measures the fleet.
func (w *Worker) gaugeFleet(ctx context.Context) error {
	defer w.fleet.forget()
	for round := 0; ; round++ {
		if w.sleep(ctx, w.jitter(gaugeEvery)) != nil {
			return nil
		}
		if err := w.GaugeFleet(ctx, round%fleetEvery == 0); err != nil && ctx.Err() == nil {
			w.log.Warn().Err(err).Msg("the fleet could not be measured")
		}
	}
}

// GaugeFleet measures the fleet once, with all also what is dear to look at. What cannot be read has no figure until the
// next look: one that stands still would say that nothing is wrong. All failures are returned together.
func (w *Worker) GaugeFleet(ctx context.Context, all bool) error {
	errs := []error{w.gaugeQueues(ctx), w.gaugeJournal(ctx)}
	if all {
		errs = append(errs, w.gaugeRuns(ctx))
	}
	if all && w.sprites != nil {
		errs = append(errs, w.gaugeSprites(ctx))
	}
	return errors.Join(errs...)
}

func (w *Worker) gaugeQueues(ctx context.Context) error {
	queues, err := w.bus.Queues(ctx)
	if err != nil {
		w.fleet.depth.Reset()
		w.fleet.queueAge.Reset()
		return err
	}
	for _, q := range queues {
		queue, kind := string(q.State), string(q.Kind)
		w.fleet.depth.WithLabelValues(queue, kind, "waiting").Set(float64(q.Waiting))
		w.fleet.depth.WithLabelValues(queue, kind, "in_hand").Set(float64(q.InHand))
		w.fleet.queueAge.WithLabelValues(queue, kind).Set(w.age(q.Oldest))
	}
	return nil
}

// age is how long ago something was, in seconds; nothing at all is 0.
func (w *Worker) age(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, w.now().Sub(at).Seconds())
}

func (w *Worker) gaugeJournal(ctx context.Context) error {
	share, err := w.bus.JournalShare(ctx)
	if err != nil {
		w.fleet.journal.Reset()
		return err
	}
	w.fleet.journal.WithLabelValues().Set(share)
	return nil
}

func (w *Worker) gaugeRuns(ctx context.Context) error {
	w.fleet.unfinished.Reset()
	w.fleet.jobAge.Reset()
	w.fleet.used.Reset()
	u, err := w.bus.Unfinished(ctx)
	if err != nil {
		return err
	}
	w.fleet.unfinished.WithLabelValues("running").Set(float64(u.Running))
	w.fleet.unfinished.WithLabelValues("preparing").Set(float64(u.Preparing))
	for _, cause := range bus.WaitCauses() {
		w.fleet.unfinished.WithLabelValues("waiting_" + string(cause)).Set(float64(u.Waiting[cause]))
	}
	w.fleet.jobAge.WithLabelValues().Set(w.age(u.Oldest))
	if u.Partial {
		return errors.New("there are more unfinished runs than are counted")
	}
	return w.gaugeUse(ctx, u.Sandboxes)
}

// gaugeUse counts the Sprites that commands and terminals use. A lease is taken before its Sprite is known, so that
// commands are counted by their journals.
func (w *Worker) gaugeUse(ctx context.Context, names map[string]bool) error {
	held, err := w.leases.List(ctx, lease.Filter{Kind: lease.KindTerminal, Max: gaugeLeases})
	if err != nil {
		return fmt.Errorf("count terminals: %w", err)
	}
	for _, l := range held {
		name := l.Sandbox
		if name == "" {
			name = l.ID // one that is being opened: it has a Sprite soon
		}
		names[name] = true
	}
	w.fleet.used.WithLabelValues().Set(float64(len(names)))
	return nil
}

func (w *Worker) gaugeSprites(ctx context.Context) error {
	w.fleet.sprites.Reset()
	all, complete, err := w.sprites.List(ctx, "")
	if err == nil && !complete {
		err = errors.New("the listing is not complete")
	}
	if err != nil {
		return fmt.Errorf("count sprites: %w", err)
	}
	counts := map[sprites.Status]int{sprites.StatusRunning: 0, sprites.StatusWarm: 0, sprites.StatusCold: 0}
	for _, s := range all {
		if !slices.Contains(s.Labels, DeploymentLabel(w.cfg.DeploymentID)) {
			continue
		}
		status := s.Status
		if _, known := counts[status]; !known {
			status = "other" // the label's values must stay a closed set, whatever the provider comes to say
		}
		counts[status]++
	}
	for status, n := range counts {
		w.fleet.sprites.WithLabelValues(string(status)).Set(float64(n))
	}
	return nil
}
