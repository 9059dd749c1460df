package emulator

import (
	"context"
	"sync"
)

// Streams of an exec frame (Sprites API reference, exec).
const (
	streamStdin  byte = 0
	streamStdout byte = 1
	streamStderr byte = 2
	streamExit   byte = 3
	streamEOF    byte = 4
)

// window is how far output may run ahead of the slowest attached client before
// the command has to wait.
const window = 256 << 10

// chunk is output as it came: its first byte is the stream, so that a frame needs
// no copy. Chunks are never changed after append.
type chunk struct {
	frame []byte
	off   int64 // of frame[1:], counted over both streams
}

func (c chunk) end() int64 { return c.off + int64(len(c.frame)-1) }

// outputLog holds what a session printed: the last limit bytes for attaches to
// come, and whatever an attached client has not read yet.
type outputLog struct {
	limit int64

	mu      sync.Mutex // protects the rest
	chunks  []chunk
	end     int64
	closed  bool
	readers map[*reader]struct{}
	changed chan struct{} // closed and replaced by every change
}

// reader is one client's place in the log; it belongs to the client's goroutine.
type reader struct {
	log   *outputLog
	at    int64
	merge int64 // chunks that end at or before it are told as standard output
}

func newOutputLog(limit int) *outputLog {
	return &outputLog{limit: int64(limit), readers: map[*reader]struct{}{}, changed: make(chan struct{})}
}

func (l *outputLog) broadcast() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// append takes ownership of frame. It blocks while an attached client is a
// window behind, until the client reads, leaves, or stop is closed.
func (l *outputLog) append(frame []byte, stop <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.lag() > window {
		ch := l.changed
		l.mu.Unlock()
		select {
		case <-ch:
			l.mu.Lock()
		case <-stop:
			l.mu.Lock()
			return
		}
	}
	l.chunks = append(l.chunks, chunk{frame: frame, off: l.end})
	l.end += int64(len(frame) - 1)
	l.trim()
	l.broadcast()
}

// lag needs the lock.
func (l *outputLog) lag() int64 {
	var most int64
	for r := range l.readers {
		most = max(most, l.end-r.at)
	}
	return most
}

// trim needs the lock. It never takes what a client has yet to read.
func (l *outputLog) trim() {
	floor := l.end - l.limit
	for r := range l.readers {
		floor = min(floor, r.at)
	}
	n := 0
	for n < len(l.chunks) && l.chunks[n].end() <= floor {
		l.chunks[n] = chunk{} // let go of the bytes before the slice moves on
		n++
	}
	l.chunks = l.chunks[n:]
}

func (l *outputLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.broadcast()
	}
}

// open adds a reader at offset from, or as near behind it as the log still has;
// merged tells what is already there as standard output.
func (l *outputLog) open(from int64, merged bool) *reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &reader{log: l, at: min(max(from, 0), l.end)}
	if len(l.chunks) > 0 {
		r.at = max(r.at, l.chunks[0].off)
	} else {
		r.at = l.end
	}
	if merged {
		r.at = max(r.at, l.end-l.limit)
		r.merge = l.end
	}
	l.readers[r] = struct{}{}
	return r
}

func (r *reader) close() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	delete(r.log.readers, r)
	r.log.trim()
	r.log.broadcast()
}

// next blocks for the next frame. It is nil at the end of the log, and when ctx
// ends. The frame may be read until the next call, not changed.
func (r *reader) next(ctx context.Context) []byte {
	l := r.log
	l.mu.Lock()
	for {
		if frame := r.take(); frame != nil {
			l.mu.Unlock()
			return frame
		}
		if l.closed {
			l.mu.Unlock()
			return nil
		}
		ch := l.changed
		l.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return nil
		}
		l.mu.Lock()
	}
}

// take needs the lock.
func (r *reader) take() []byte {
	l := r.log
	i := 0
	if n := len(l.chunks); n > 0 && r.at >= l.chunks[n-1].off {
		i = n - 1 // almost always the newest
	}
	for ; i < len(l.chunks); i++ {
		c := l.chunks[i]
		if c.end() <= r.at {
			continue
		}
		behind := l.lag() > window
		frame := c.frame
		if skip := r.at - c.off; skip > 0 {
			frame = append([]byte{c.frame[0]}, c.frame[1+skip:]...)
		}
		if r.merge >= c.end() && frame[0] != streamStdout {
			frame = append([]byte{streamStdout}, frame[1:]...)
		}
		r.at = c.end()
		if behind {
			l.broadcast() // the command may go on
		}
		return frame
	}
	return nil
}
