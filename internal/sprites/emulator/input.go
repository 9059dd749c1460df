package emulator

import (
	"context"
	"io"
	"sync"
	"time"
)

const (
	// inputMax bounds what a session's clients may send ahead of its command; one message may exceed it.
	inputMax = 4 << 20
	// inputPatience is how long more than that waits for the command to read.
	inputPatience = 30 * time.Second
)

// inputQueue stands between the clients and a command's standard input, so that
// a command which does not read keeps nobody from signalling it or leaving it.
// What finds the queue full waits for inputPatience and is refused then: its
// sender is dropped, the command goes on.
type inputQueue struct {
	srv *Server
	to  func() io.WriteCloser // set once the session has started

	mu      sync.Mutex // protects the rest
	parts   [][]byte
	size    int
	ended   bool          // no more comes
	broken  bool          // nobody reads any more: everything is dropped
	writing bool          // the writer runs; it ends when the queue is empty
	changed chan struct{} // closed and replaced whenever there is room
}

func newInputQueue(srv *Server, to func() io.WriteCloser) *inputQueue {
	return &inputQueue{srv: srv, to: to, changed: make(chan struct{})}
}

// add takes a copy of data. It is false when the queue stayed full, or ctx ended.
func (q *inputQueue) add(ctx context.Context, data []byte) bool {
	var late chan struct{}
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.size >= inputMax && !q.broken {
		if late == nil {
			late = make(chan struct{})
			timer := q.srv.cfg.Clock.AfterFunc(inputPatience, func() { close(late) })
			defer timer.Stop()
		}
		ch := q.changed
		q.mu.Unlock()
		over := false
		select {
		case <-ch:
		case <-late:
			over = true
		case <-ctx.Done():
			over = true
		}
		q.mu.Lock()
		if over {
			return false
		}
	}
	if q.ended || q.broken || len(data) == 0 {
		return true // a closed input takes nothing, which is harmless
	}
	q.parts = append(q.parts, append([]byte(nil), data...))
	q.size += len(data)
	q.start()
	return true
}

// end closes the input behind what was added.
func (q *inputQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.ended = true
		q.start()
	}
}

// start needs the lock.
func (q *inputQueue) start() {
	if !q.writing {
		q.writing = true
		q.srv.goOwned(q.write)
	}
}

// write ends with the queue; a blocked write ends with the process, whose end
// closes its input.
func (q *inputQueue) write() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.parts) > 0 {
		part := q.parts[0]
		q.mu.Unlock()
		_, err := q.to().Write(part)
		q.mu.Lock()
		q.parts = q.parts[1:]
		q.size -= len(part)
		if err != nil {
			q.broken, q.parts, q.size = true, nil, 0
		}
		close(q.changed)
		q.changed = make(chan struct{})
	}
	if q.ended {
		_ = q.to().Close()
	}
	q.writing = false
}

// inputWriter is a queue as a writer, for one sender.
type inputWriter struct {
	ctx   context.Context
	queue *inputQueue
}

// Write blocks while the queue is full.
func (w inputWriter) Write(p []byte) (int, error) {
	if !w.queue.add(w.ctx, p) {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}
