package emulator

import (
	"slices"
	"sync"
	"time"
)

// Call is one request that reached the emulator, admin calls apart.
type Call struct {
	// ID is what the answer carries as X-Request-Id.
	ID     string    `json:"id"`
	Time   time.Time `json:"time"`
	Method string    `json:"method"`
	// Route is the call's name, such as "sprite.create" or "exec.ws".
	Route  string `json:"route"`
	Sprite string `json:"sprite,omitempty"`
	// Status is 0 until the call is answered, 101 for a WebSocket, and stays 0
	// when the connection was dropped instead.
	Status int `json:"status"`
	// Argv is the command of an exec; Session the session it made or joined.
	Argv    []string `json:"argv,omitempty"`
	Session string   `json:"session,omitempty"`
	// Fault is the action that was applied, or "".
	Fault Action `json:"fault,omitempty"`
}

// maxCalls bounds the log; the oldest calls are forgotten, counts are not.
const maxCalls = 65_536

type callKey struct{ route, sprite string }

type callLog struct {
	mu     sync.Mutex // protects the rest
	calls  []*Call
	counts map[callKey]int
}

func (l *callLog) add(c *Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) == maxCalls {
		l.calls = slices.Delete(l.calls, 0, maxCalls/4)
	}
	l.calls = append(l.calls, c)
	l.counts[callKey{c.Route, c.Sprite}]++
}

// update changes a logged call under the log's lock.
func (l *callLog) update(c *Call, f func(*Call)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(c)
}

// list gives copies.
func (l *callLog) list() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Call, len(l.calls))
	for i, c := range l.calls {
		out[i] = *c
		out[i].Argv = slices.Clone(c.Argv)
	}
	return out
}

func (l *callLog) count(route, sprite string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for k, v := range l.counts {
		if globs(route, k.route) && globs(sprite, k.sprite) {
			n += v
		}
	}
	return n
}
