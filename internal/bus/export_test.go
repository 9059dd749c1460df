package bus

import "time"

// Fairness shows the rule by which a lane keeps slots for tenants below their share.
type Fairness struct{ f *fairness }

// NewFairness makes one of its own.
func NewFairness(slots int, now func() time.Time) Fairness {
	return Fairness{newFairness(slots, now)}
}

// Admit, Leave, Postpone and Rest are what a puller calls.
func (f Fairness) Admit(tenant string) bool { return f.f.admit(tenant) }

// Leave is the end of what Admit let in.
func (f Fairness) Leave(tenant string) { f.f.leave(tenant) }

// Postpone notes a request that is given back.
func (f Fairness) Postpone(seq uint64, delivered int) time.Duration {
	return f.f.postpone(seq, delivered)
}

// Untouched tells whether it comes back as new as it was.
func (f Fairness) Untouched(seq uint64, delivered int, asked time.Time) bool {
	return f.f.untouched(seq, delivered, asked)
}

// Rest is how long nothing should be pulled.
func (f Fairness) Rest() time.Duration { return f.f.rest() }
