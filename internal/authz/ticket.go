package authz

import (
	"container/heap"
	"errors"
	"sync"
	"time"
)

// TicketsConfig configures Tickets.
type TicketsConfig struct {
	// Max is how many used tickets are remembered at once; one more is refused. Defaults to 100000.
	Max int
	// Skew is how long after its exp a used ticket is still remembered; at least the verifier's. Defaults to 30 seconds.
	Skew time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Tickets remembers which tickets were used in this process, each until it has expired anyway, so that none is used
// twice. It may be used concurrently and never blocks. Two gateways are kept apart by what the ticket opens: an open
// is journalled under one id.
type Tickets struct {
	cfg TicketsConfig

	mu   sync.Mutex // protects what follows
	used map[string]struct{}
	due  ticketHeap
}

// NewTickets makes an empty store.
func NewTickets(cfg TicketsConfig) (*Tickets, error) {
	if cfg.Max < 0 || cfg.Skew < 0 {
		return nil, errors.New("tickets: a bound is below zero")
	}
	if cfg.Max == 0 {
		cfg.Max = 100_000
	}
	if cfg.Skew == 0 {
		cfg.Skew = 30 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Tickets{cfg: cfg, used: map[string]struct{}{}}, nil
}

// Use marks the ticket as used: ErrTicketUsed, ErrTicketExpired, or ErrTicketsFull.
func (t *Tickets) Use(jti string, exp time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	for len(t.due) > 0 && !t.due[0].until.After(now) {
		old, _ := heap.Pop(&t.due).(ticket)
		delete(t.used, old.jti)
	}
	until := exp.Add(t.cfg.Skew)
	if !until.After(now) {
		return ErrTicketExpired
	}
	if _, again := t.used[jti]; again || jti == "" {
		return ErrTicketUsed
	}
	if len(t.used) >= t.cfg.Max {
		return ErrTicketsFull
	}
	t.used[jti] = struct{}{}
	heap.Push(&t.due, ticket{jti: jti, until: until})
	return nil
}

// Len is how many used tickets are remembered.
func (t *Tickets) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.used)
}

type ticket struct {
	jti   string
	until time.Time
}

type ticketHeap []ticket

func (h ticketHeap) Len() int           { return len(h) }
func (h ticketHeap) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h ticketHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *ticketHeap) Push(x any) { v, _ := x.(ticket); *h = append(*h, v) }

// Pop is for container/heap.
func (h *ticketHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
