package terminal

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the gateway's figures. Label values come from closed enums.
type metrics struct {
	sockets, sessions                 prometheus.Gauge
	opens                             *prometheus.CounterVec // by outcome: opened, attached, or a reason code
	closes                            *prometheus.CounterVec // by close reason
	reattaches                        *prometheus.CounterVec // by result
	gaps, gapBytes, unprovenReplays   prometheus.Counter
	inputRefused, rechecks, adoptions *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "wakebus", Subsystem: "terminal", Name: name, Help: help})
	}
	count := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "wakebus", Subsystem: "terminal", Name: name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "wakebus", Subsystem: "terminal", Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		sockets:         gauge("sockets", "Browser sockets open now."),
		sessions:        gauge("sessions", "Shells that this gateway knows."),
		opens:           vec("opens_total", "Shells asked for, by outcome.", "outcome"),
		closes:          vec("closes_total", "Sockets closed, by reason.", "reason"),
		reattaches:      vec("reattaches_total", "Attachments dialled again, by result.", "result"),
		gaps:            count("gaps_total", "Gaps said to viewers."),
		gapBytes:        count("gap_bytes_total", "Bytes that viewers missed."),
		unprovenReplays: count("unproven_replays_total", "Replays that could not be aligned with what was known."),
		inputRefused:    vec("input_refused_total", "Input frames refused, by error code.", "code"),
		rechecks:        vec("rechecks_total", "Re-authorisations, by result.", "result"),
		adoptions:       vec("adoptions_total", "Shells taken over from another gateway, by result.", "result"),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.sockets, m.sessions, m.opens, m.closes, m.reattaches, m.gaps, m.gapBytes,
		m.unprovenReplays, m.inputRefused, m.rechecks, m.adoptions} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}
