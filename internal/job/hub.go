package job

import (
	"sync"

	"github.com/wakebus/wakebus/internal/bus"
)

// hub knows the runs that this worker runs now, so that a cancel reaches them and a redelivery finds them.
type hub struct {
	mu   sync.Mutex
	runs map[bus.RunKey]*run // mu
}

func newHub() *hub { return &hub{runs: map[bus.RunKey]*run{}} }

func (h *hub) find(k bus.RunKey) *run {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[k]
}

// add reports whether the run is the only one of its key here.
func (h *hub) add(r *run) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, taken := h.runs[r.key]; taken {
		return false
	}
	h.runs[r.key] = r
	return true
}

func (h *hub) remove(r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[r.key] == r {
		delete(h.runs, r.key)
	}
}

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.runs)
}

// each calls f for every run of a tenant, without holding the lock.
func (h *hub) each(tenant string, f func(*run)) {
	h.mu.Lock()
	var runs []*run
	for k, r := range h.runs {
		if k.Tenant == tenant {
			runs = append(runs, r)
		}
	}
	h.mu.Unlock()
	for _, r := range runs {
		f(r)
	}
}
