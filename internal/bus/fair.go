package bus

import (
	"sync"
	"time"
)

// The measures of fairness between tenants.
const (
	// spareShare is which part of a lane's slots is kept for tenants below their share: one of so many.
	spareShare = 8
	// aloneAfter is how long no other tenant must have been heard of for one to have every slot.
	aloneAfter = 10 * time.Minute
	// maxDeferred is how many requests a lane looks past in search of other tenants'.
	maxDeferred = 256
	// deferRate is about how many deferred requests come back to a lane in a second, and deferLeast how long one is away at
	// least. A slot that comes free so finds a request within milliseconds, however many are away.
	deferRate  = 200
	deferLeast = 50 * time.Millisecond
	deferMost  = 30 * time.Second
	// deferTrips is how many pulls' time lies between two that come back, at least: those that come back are handed out
	// before what is new, and must not take all pulls.
	deferTrips = 4
)

// fairness keeps the last slots of a lane for tenants that have less than their share of it. All tenants stand in one
// queue; a request whose tenant has enough is given back for a moment, so that those behind it come forward. A tenant
// that nobody else was heard beside gets every slot. Its memory is this worker's own: workers need not agree, since each
// keeps slots of its own free.
type fairness struct {
	slots, spare int
	now          func() time.Time

	mu      sync.Mutex     // protects what follows
	running map[string]int // by tenant, never 0
	total   int
	heard   [2]heard          // the two tenants that were heard of last, the latest first
	away    []time.Time       // when each deferred request comes back
	passed  map[uint64]passed // what was put off, by stream sequence
	trip    time.Duration     // a pull of what is there, of late; 0 while not known
}

// heard is when a tenant's last request came.
type heard struct {
	tenant string
	at     time.Time
}

// passed is a request that was put off: its delivery's number then, and when it was to come back.
type passed struct {
	delivered int
	due       time.Time
}

func newFairness(slots int, now func() time.Time) *fairness {
	return &fairness{slots: slots, spare: slots / spareShare, now: now, running: map[string]int{}, passed: map[uint64]passed{}}
}

// admit counts a request in if its tenant may have a slot now.
func (f *fairness) admit(tenant string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hear(tenant)
	if f.crowded() && !f.alone(tenant) && !f.below(tenant) {
		return false
	}
	f.enter(tenant)
	return true
}

// force counts a request in that must not wait.
func (f *fairness) force(tenant string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.enter(tenant)
}

func (f *fairness) leave(tenant string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total--
	if f.running[tenant]--; f.running[tenant] <= 0 {
		delete(f.running, tenant)
	}
}

// postpone notes a request that is given back, by its stream sequence and delivery, and says for how long.
func (f *fairness) postpone(seq uint64, delivered int) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrive()
	between := max(time.Second/deferRate, deferTrips*f.trip)
	delay := min(max(deferLeast, time.Duration(len(f.away)+1)*between), deferMost)
	due := f.now().Add(delay)
	f.away = append(f.away, due)
	if len(f.passed) >= 2*maxDeferred {
		clear(f.passed) // others took them; forgetting costs a look into the journal
	}
	f.passed[seq] = passed{delivered, due}
	return delay
}

// untouched reports whether a request comes back from here and was given to nobody meanwhile, so that it is as new as it
// was. asked is when the pull that brought it began.
func (f *fairness) untouched(seq uint64, delivered int, asked time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.passed[seq]
	delete(f.passed, seq)
	if !ok || p.delivered+1 != delivered {
		return false
	}
	if asked.After(p.due) { // it was there, and the pull had only its own way to go
		trip := f.now().Sub(asked)
		if f.trip == 0 {
			f.trip = trip
		}
		f.trip += (trip - f.trip) / 8
	}
	return true
}

// rest is how long nothing should be pulled: nobody with enough may have a slot, and as many requests are away as may be.
func (f *fairness) rest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrive()
	if !f.crowded() || len(f.away) < maxDeferred {
		return 0
	}
	return max(time.Millisecond, f.away[0].Sub(f.now()))
}

// The rest expects mu to be held.

// crowded: only the spare slots are left.
func (f *fairness) crowded() bool { return f.total >= f.slots-f.spare }

func (f *fairness) alone(tenant string) bool {
	other := f.heard[0]
	if other.tenant == tenant {
		other = f.heard[1]
	}
	return other.at.IsZero() || f.now().Sub(other.at) > aloneAfter
}

// below: the tenant has less than an equal part of the slots, among those that run something. One other is always
// reckoned with, since it was heard of.
func (f *fairness) below(tenant string) bool {
	tenants := len(f.running)
	if f.running[tenant] == 0 {
		tenants++
	}
	return f.running[tenant] < max(1, f.slots/max(2, tenants))
}

func (f *fairness) hear(tenant string) {
	if f.heard[0].tenant != tenant {
		f.heard[1] = f.heard[0]
	}
	f.heard[0] = heard{tenant, f.now()}
}

func (f *fairness) enter(tenant string) {
	f.running[tenant]++
	f.total++
}

// arrive forgets those whose time has come. They are nearly in order; one behind a later one is only forgotten later.
func (f *fairness) arrive() {
	now, n := f.now(), 0
	for n < len(f.away) && !f.away[n].After(now) {
		n++
	}
	f.away = f.away[n:]
}
