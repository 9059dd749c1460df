package lease

import (
	"sync"
	"time"
)

// touchesMax bounds the scopes remembered; beyond it the memory starts anew,
// which costs a few calls too many.
const touchesMax = 4096

// touches remembers which scopes' keys this process has lately given their
// time to live. Giving it anew with every grant costs as much as the grant
// itself, and a key outlives the leases in it by more than a minute. A key that
// vanished meanwhile is given it by the script that makes it.
type touches struct {
	every time.Duration

	mu    sync.Mutex // protects all below
	began time.Duration
	names map[string]struct{}
}

func newTouches(every time.Duration) *touches {
	return &touches{every: every, names: map[string]struct{}{}}
}

// due says whether a grant at now must touch the keys.
func (t *touches) due(now time.Duration, names []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now-t.began >= t.every {
		t.began = now
		clear(t.names)
		return true
	}
	for _, n := range names {
		if _, ok := t.names[n]; !ok {
			return true
		}
	}
	return false
}

// done notes that a grant has touched them.
func (t *touches) done(names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.names)+len(names) > touchesMax {
		clear(t.names)
	}
	for _, n := range names {
		t.names[n] = struct{}{}
	}
}
