package emulator

import (
	"context"
	"sync"
)

// serviceEvent is one line of a service's stream (Sprites API reference, services).
type serviceEvent struct {
	Type      string            `json:"type"`
	Data      string            `json:"data,omitempty"`
	Exit      *int              `json:"exit_code,omitempty"`
	Timestamp int64             `json:"timestamp"` // Unix milliseconds
	LogFiles  map[string]string `json:"log_files,omitempty"`
}

func (v *service) event(kind, data string) serviceEvent {
	return serviceEvent{Type: kind, Data: data, Timestamp: v.sp.srv.cfg.Clock.Now().UnixMilli()}
}

// maxServiceEvents bounds what one service remembers; the oldest go first.
const maxServiceEvents = 10_000

// eventLog is what happened to a service, for those who follow it.
type eventLog struct {
	mu      sync.Mutex // protects the rest
	events  []serviceEvent
	base    int // number of the first kept event
	closed  bool
	changed chan struct{} // closed and replaced by every change
}

func newEventLog() *eventLog { return &eventLog{changed: make(chan struct{})} }

func (l *eventLog) add(e serviceEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.events) == maxServiceEvents {
		l.events, l.base = l.events[1:], l.base+1
	}
	l.events = append(l.events, e)
	l.broadcast()
}

func (l *eventLog) broadcast() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *eventLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.broadcast()
	}
}

// end is the number that the next event will have.
func (l *eventLog) end() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.base + len(l.events)
}

// from gives the events from number n on, and what to wait for next.
func (l *eventLog) from(n int) (events []serviceEvent, next int, closed bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := min(max(n-l.base, 0), len(l.events))
	return append([]serviceEvent{}, l.events[i:]...), l.base + len(l.events), l.closed, l.changed
}

// follow sends events from n on until ctx ends or until says that one was the last.
func (l *eventLog) follow(ctx context.Context, n int, send func(serviceEvent) error, last func(serviceEvent) bool) {
	for {
		events, next, closed, changed := l.from(n)
		for _, e := range events {
			if send(e) != nil || last(e) {
				return
			}
		}
		n = next
		if closed {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
