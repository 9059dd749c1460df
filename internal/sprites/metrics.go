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
	var err error
	m.tries, err = register(reg, m.tries)
	if err != nil {
		return nil, err
	}
	m.sockets, err = register(reg, m.sockets)
	return m, err
}

// register adds a collector, or returns the one that another client in this process has added: they count together.
func register[T prometheus.Collector](reg prometheus.Registerer, c T) (T, error) {
	err := reg.Register(c)
	var taken prometheus.AlreadyRegisteredError
	if errors.As(err, &taken) {
		if existing, ok := taken.ExistingCollector.(T); ok {
			return existing, nil
		}
	}
	return c, err
}

func (m *metrics) tried(op Operation, class Class) {
	label := string(class)
	if label == "" {
		label = "ok"
	}
	m.tries.WithLabelValues(string(op), label).Inc()
}
