package bus

import (
	"context"
	"sync"
)

// slots counts what may still be taken on. Nothing is pulled without one, so that no request waits behind a busy worker
// while another is free.
type slots struct {
	mu      sync.Mutex // protects free and changed
	free    int
	changed chan struct{} // closed and replaced whenever free changes
}

func newSlots(n int) *slots { return &slots{free: n, changed: make(chan struct{})} }

// acquire takes a slot once more than spare are free. It fails only when ctx ends.
func (s *slots) acquire(ctx context.Context, spare int) bool {
	for {
		s.mu.Lock()
		if ctx.Err() == nil && s.free > spare {
			s.move(-1)
			s.mu.Unlock()
			return true
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.move(1)
}

// move changes free and wakes the waiters. The caller holds mu.
func (s *slots) move(n int) {
	s.free += n
	close(s.changed)
	s.changed = make(chan struct{})
}

// full reports whether no slot is free, and gives the channel that closes when that may have changed.
func (s *slots) full() (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free == 0, s.changed
}
