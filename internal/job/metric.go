package job

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/wakebus/wakebus/internal/bus"
)

// metrics are what a worker counts. Label values come from closed sets.
type metrics struct {
	jobs       *prometheus.CounterVec
	stages     *prometheus.HistogramVec
	wakes      *prometheus.CounterVec
	bytes      prometheus.Counter
	running    prometheus.Gauge
	parked     prometheus.Counter
	takeovers  prometheus.Counter
	handedOver prometheus.Counter
	fenced     prometheus.Counter
	duplicates prometheus.Counter
	unleased   prometheus.Counter
	panics     prometheus.Counter
	requeued   prometheus.Counter
	replays    *prometheus.CounterVec
	swept      *prometheus.CounterVec
	sweepStops prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "wakebus", Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "wakebus", Name: name, Help: help}, labels)
	}
	m := &metrics{
		jobs: vec("jobs_total", "Runs that ended, by kind, outcome and reason.", "kind", "outcome", "reason"),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "wakebus", Name: "stage_seconds",
			Help: "How long each stage of a run took.", Buckets: prometheus.ExponentialBuckets(0.001, 3, 12)}, []string{"stage"}),
		wakes:      vec("wakes_total", "Sandboxes woken for a run, by how asleep they were.", "from"),
		bytes:      counter("output_bytes_total", "Output delivered to callers, in bytes."),
		running:    prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "wakebus", Name: "running", Help: "Runs that this worker owns now."}),
		parked:     counter("parked_total", "Runs parked to be tried again later."),
		takeovers:  counter("takeovers_total", "Runs taken over from an owner that died."),
		handedOver: counter("handovers_total", "Runs handed to a peer at a shutdown."),
		fenced:     counter("fenced_total", "Runs that turned out to belong to another worker."),
		duplicates: counter("duplicates_total", "Requests whose job id was published before."),
		unleased:   counter("unleased_total", "Running commands that no lease counts because Redis was away."),
		panics:     counter("panics_total", "Runs that panicked; each is a defect."),
		requeued:   counter("requeued_total", "Runs that no message carried and that were queued again."),
		sweepStops: counter("sweep_stops_total", "Sweeps that stopped or failed; look at what they found before anything is deleted."),
		replays:    vec("replays_total", "Replays of dead letters that ended, by outcome.", "outcome"),
		swept:      vec("swept_total", "Sandboxes that the sweep judged, by what it did.", "verdict"),
	}
	for _, c := range []prometheus.Collector{m.jobs, m.stages, m.wakes, m.bytes, m.running, m.parked, m.takeovers,
		m.handedOver, m.fenced, m.duplicates, m.unleased, m.panics, m.requeued, m.replays, m.swept, m.sweepStops} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// result counts a run that ended.
func (m *metrics) result(kind bus.Kind, body *bus.ResultBody) {
	m.jobs.WithLabelValues(string(kind), string(body.Outcome), string(body.Reason)).Inc()
	m.bytes.Add(float64(body.StdoutBytes + body.StderrBytes))
	if body.Woke == "warm" || body.Woke == "cold" {
		m.wakes.WithLabelValues(body.Woke).Inc()
	}
	t := body.Timing
	for stage, ms := range map[string]int64{"queued": t.Queued, "authorize": t.Authorize, "lease": t.Lease, "plan": t.Plan,
		"provision": t.Provision, "wake": t.Wake, "run": t.Run, "total": t.Total} {
		m.stages.WithLabelValues(stage).Observe(float64(ms) / 1000)
	}
}
