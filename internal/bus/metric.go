package bus

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are moved by the files of this package that name them.
type metrics struct {
	connected  prometheus.Gauge
	reconnects prometheus.Counter
	events     *prometheus.CounterVec // by event kind
	outBytes   prometheus.Counter
	conflicts  prometheus.Counter
	ambiguous  prometheus.Counter
	pulled     *prometheus.CounterVec // by kind and source
	handedBack *prometheus.CounterVec // by kind
	deferred   *prometheus.CounterVec // by kind
	running    *prometheus.GaugeVec   // by kind
	pullErrors *prometheus.CounterVec // by kind
	readerGaps prometheus.Counter
	letters    *prometheus.CounterVec // by class
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "wakebus", Subsystem: "bus", Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "wakebus", Subsystem: "bus", Name: name, Help: help}, labels)
	}
	m := &metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "wakebus", Subsystem: "bus", Name: "connected",
			Help: "1 while the broker is connected."}),
		reconnects: counter("reconnects_total", "Times the broker came back after an interruption."),
		events:     counters("events_total", "Events that the broker stored for runs owned here.", "event"),
		outBytes:   counter("output_bytes_total", "Bytes of output that the broker stored."),
		conflicts:  counter("conflicts_total", "Compare-and-set publishes that another owner had won."),
		ambiguous:  counter("ambiguous_publishes_total", "Publishes whose answer was lost and which were read back."),
		pulled:     counters("pulled_total", "Requests taken from the queues.", "kind", "source"),
		handedBack: counters("handed_back_total", "Requests given back at once: draining, or no slot for new work.", "kind"),
		deferred:   counters("deferred_total", "Times a request was put off for a moment because its tenant had its share of the slots.", "kind"),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "wakebus", Subsystem: "bus", Name: "handling",
			Help: "Requests that are being handled."}, []string{"kind"}),
		pullErrors: counters("pull_errors_total", "Pulls that failed for another reason than an empty queue.", "kind"),
		readerGaps: counter("reader_gaps_total", "Holes that a reader could not fill from the streams."),
		letters: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "wakebus", Name: "dead_letters_total",
			Help: "Dead letters that were stored."}, []string{"class"}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.connected, m.reconnects, m.events, m.outBytes, m.conflicts, m.ambiguous,
		m.pulled, m.handedBack, m.deferred, m.running, m.pullErrors, m.readerGaps, m.letters} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}
