package emulator

import (
	"sync"
	"time"
)

// changeFeed wakes everybody who waits for any Sprite to change.
type changeFeed struct {
	mu sync.Mutex // protects ch
	ch chan struct{}
}

func (f *changeFeed) wait() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ch == nil {
		f.ch = make(chan struct{})
	}
	return f.ch
}

func (f *changeFeed) notify() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ch != nil {
		close(f.ch)
		f.ch = nil
	}
}

const heartbeat = 15 * time.Second

type watchEvent struct {
	Type           string   `json:"type,omitempty"`
	Name           string   `json:"name,omitempty"`
	Status         Status   `json:"status,omitempty"`
	RunningVersion *string  `json:"running_version,omitempty"`
	LastRunningAt  *string  `json:"last_running_at,omitempty"`
	LastWarmingAt  *string  `json:"last_warming_at,omitempty"`
	Timestamp      string   `json:"timestamp"`
	Org            counters `json:"org"`
}

// watchSprites tells of every Sprite once and then of each change of a status,
// until the client leaves.
func (x *exchange) watchSprites() {
	out := x.ndjson()
	prefix := x.r.URL.Query().Get("prefix")
	seen := map[string]Status{}
	for {
		changed := x.srv.changes.wait()
		for _, ev := range x.news(prefix, seen) {
			if out.send(ev) != nil {
				return
			}
		}
		if !x.awaitChange(changed, out) {
			return
		}
	}
}

func (x *exchange) news(prefix string, seen map[string]Status) []watchEvent {
	var events []watchEvent
	for _, sp := range x.srv.all() {
		o := sp.object()
		if len(o.Name) < len(prefix) || o.Name[:len(prefix)] != prefix || seen[o.Name] == o.Status {
			continue
		}
		seen[o.Name] = o.Status
		events = append(events, watchEvent{
			Name: o.Name, Status: o.Status, RunningVersion: o.Version, LastRunningAt: o.LastRunningAt,
			LastWarmingAt: o.LastWarmingAt, Timestamp: stamp(x.srv.cfg.Clock.Now()), Org: x.srv.counters(),
		})
	}
	return events
}

// awaitChange is false when the client has left.
func (x *exchange) awaitChange(changed <-chan struct{}, out *stream) bool {
	beat := make(chan struct{})
	t := x.srv.cfg.Clock.AfterFunc(heartbeat, func() { close(beat) })
	defer t.Stop()
	select {
	case <-changed:
		return true
	case <-beat:
		return out.send(watchEvent{
			Type: "heartbeat", Timestamp: stamp(x.srv.cfg.Clock.Now()), Org: x.srv.counters(),
		}) == nil
	case <-x.r.Context().Done():
		return false
	}
}
