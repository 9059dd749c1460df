package lease

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one Manager. No label names a user or a tenant.
type metrics struct {
	granted, denied, unavailable, lost, reattached *prometheus.CounterVec
	stuck, releasedLate, dropped, revoked          prometheus.Counter
	signalsDropped                                 prometheus.Counter
	held, unconfirmed                              prometheus.Gauge
	gate                                           *prometheus.GaugeVec
	gateRefused                                    *prometheus.CounterVec
	calls                                          *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	r := &registrar{reg: reg}
	m := &metrics{
		granted:        r.counters("granted_total", "Leases granted, by how: granted, granted_over, transferred, held.", "kind", "how"),
		denied:         r.counters("denied_total", "Acquires denied by a full scope.", "kind", "scope"),
		unavailable:    r.counters("unavailable_total", "Calls without a usable word of Redis.", "op", "class"),
		lost:           r.counters("lost_total", "Leases whose holder had to stop or be silent.", "reason"),
		reattached:     r.counters("reattached_total", "Vanished leases put back; over is 1 when that exceeded a limit.", "over"),
		stuck:          r.counter("stuck_total", "Leases held for their longest time without a release."),
		releasedLate:   r.counter("released_late_total", "Slots given back in the background."),
		dropped:        r.counter("release_dropped_total", "Give-backs left to expiry because too many waited."),
		revoked:        r.counter("revoked_total", "Leases revoked through this process."),
		signalsDropped: r.counter("signals_dropped_total", "Wake-up signals nobody took in time."),
		held:           r.gauge("held", "Leases this process holds."),
		unconfirmed:    r.gauge("unconfirmed", "Held leases that Redis has not confirmed in time."),
		gate:           r.gauges("gate_state", "Provider gate: 0 open, 1 probing, 2 closed.", "op"),
		gateRefused:    r.counters("gate_refused_total", "Calls the provider gate held back.", "op", "why"),
		calls:          r.histogram("call_seconds", "Time of one exchange with Redis.", "op"),
	}
	return m, r.err
}

// registrar registers each collector once; a second Manager of the process
// shares the first one's.
type registrar struct {
	reg prometheus.Registerer
	err error
}

func register[C prometheus.Collector](r *registrar, c C) C {
	if r.reg == nil || r.err != nil {
		return c
	}
	err := r.reg.Register(c)
	var again prometheus.AlreadyRegisteredError
	if errors.As(err, &again) {
		if existing, ok := again.ExistingCollector.(C); ok {
			return existing
		}
	}
	if err != nil {
		r.err = fmt.Errorf("register lease metrics: %w", err)
	}
	return c
}

func (r *registrar) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "wakebus", Subsystem: "lease", Name: name, Help: help}, labels))
}

func (r *registrar) counter(name, help string) prometheus.Counter {
	return register(r, prometheus.NewCounter(prometheus.CounterOpts{Namespace: "wakebus", Subsystem: "lease", Name: name, Help: help}))
}

func (r *registrar) gauge(name, help string) prometheus.Gauge {
	return register(r, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "wakebus", Subsystem: "lease", Name: name, Help: help}))
}

func (r *registrar) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "wakebus", Subsystem: "lease", Name: name, Help: help}, labels))
}

func (r *registrar) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "wakebus", Subsystem: "lease", Name: name, Help: help,
		Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .025, .1, .5, 1.5},
	}, labels))
}
