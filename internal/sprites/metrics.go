package sprites

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the package's own; label values come from closed sets.
type metrics struct {
	tries   *prometheus.CounterVec
	sockets prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wakebus_sprites_tries_total",
			Help: "Tries of Sprites API calls by operation and class of failure (ok when none).",
		}, []string{"op", "class"}),
		sockets: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "wakebus_sprites_sockets",
			Help: "Sockets to Sprites that are open.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.tries), reg.Register(m.sockets))
}

func (m *metrics) tried(op Operation, class Class) {
	label := string(class)
	if label == "" {
		label = "ok"
	}
	m.tries.WithLabelValues(string(op), label).Inc()
}
