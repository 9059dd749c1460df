package emulator

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// maxRules bounds the rules of one server; more are refused.
const maxRules = 10_000

// rule is a fault and what it has seen.
type rule struct {
	Fault
	place      int // in the server's list
	seen, hits int
	calls      map[callKey]int // of those seen, where a chance decides
}

type faultSet struct {
	seed  uint64
	mu    sync.Mutex // protects rules
	rules []*rule
}

func (s *faultSet) add(faults []Fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rules)+len(faults) > maxRules {
		return fmt.Errorf("more than %d rules: %w", maxRules, ErrFault)
	}
	for _, f := range faults {
		if err := f.validate(); err != nil {
			return err
		}
	}
	for _, f := range faults {
		s.rules = append(s.rules, &rule{Fault: f, place: len(s.rules), calls: map[callKey]int{}})
	}
	return nil
}

func (s *faultSet) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// pick gives what happens to one call: the sum of the delays, and the first
// other action. Every rule that matches counts the call, whichever acts.
func (s *faultSet) pick(route, sprite string, asleep bool) (time.Duration, *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var delay time.Duration
	var act *Fault
	for _, r := range s.rules {
		if !r.matches(route, sprite, asleep) || !r.due(s.seed, callKey{route, sprite}) {
			continue
		}
		switch {
		case r.Do == FaultDelay:
			r.hits++
			delay += r.Delay
		case act == nil:
			r.hits++
			f := r.Fault
			act = &f
		}
	}
	return delay, act
}

func (r *rule) matches(route, sprite string, asleep bool) bool {
	if (r.Asleep || r.Do == FaultDropWake) && !asleep {
		return false
	}
	return globs(r.Route, route) && globs(r.Sprite, sprite)
}

// due counts a call and says whether the rule would act on it.
func (r *rule) due(seed uint64, key callKey) bool {
	r.seen++
	lucky := true
	if r.Probability != 0 {
		r.calls[key]++
		lucky = chance(seed, r.place, key, r.calls[key]) < r.Probability
	}
	return lucky && (r.Nth == 0 || r.seen == r.Nth) && (r.Times == 0 || r.hits < r.Times)
}

// chance is a number of [0,1) for the nth call of a kind. It does not depend on
// the order in which calls of different kinds come.
func chance(seed uint64, place int, key callKey, n int) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %q", key.route, key.sprite) // never fails (hash.Hash)
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(place)))
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	return rand.New(rand.NewPCG(seed, h.Sum64())).Float64()
}
