package terminal

import (
	"time"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// client counts one client's input over its reconnects. The session's lock protects it.
type client struct {
	id      string
	viewer  *viewer // its socket now; nil while it is away
	settled int64   // bytes written to the shell, or refused by an error that said so
	left    time.Time
}

// entry is one input frame on its way to the shell. A refused one keeps its place without data, so that the count stays
// in order.
type entry struct {
	client *client
	data   []byte
	size   int
}

// queue holds input in order, bounded in bytes and entries.
type queue struct {
	entries []entry
	bytes   int
	limit   int
}

// maxEntries bounds the frames that wait: each key is one.
const maxEntries = 4096

func (q *queue) pop() (entry, bool) {
	if len(q.entries) == 0 {
		q.entries = nil // an idle shell keeps no array
		return entry{}, false
	}
	e := q.entries[0]
	q.entries[0] = entry{}
	q.entries = q.entries[1:]
	q.bytes -= len(e.data)
	return e, true
}

// push adds an entry; false when there is no room for its data, true also for one that only counts.
func (q *queue) push(e entry) bool {
	if q.bytes+len(e.data) > q.limit || len(q.entries) >= maxEntries {
		return false
	}
	q.entries = append(q.entries, e)
	q.bytes += len(e.data)
	return true
}

// purge removes a client's entries: it will send them again.
func (q *queue) purge(c *client) {
	kept := q.entries[:0]
	q.bytes = 0
	for _, e := range q.entries {
		if e.client != c {
			kept = append(kept, e)
			q.bytes += len(e.data)
		}
	}
	clear(q.entries[len(kept):])
	q.entries = kept
}

// input takes one frame of a viewer's keys. It copies data. A frame that may not be is refused whole by an error that is
// not fatal, and counts as settled, so that the client does not send it again.
func (s *session) input(v *viewer, data []byte, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.client == nil || v.client.viewer != v || s.end != nil {
		return
	}
	code, message := s.judgeLocked(v, data, size)
	if code == "" && !s.queue.push(entry{client: v.client, data: append([]byte(nil), data...), size: size}) {
		code, message = frame.CodeInputOverflow, "Too much input waits for the shell; the last of it was dropped."
	}
	if code != "" {
		s.gw.met.inputRefused.WithLabelValues(string(code)).Inc()
		v.sendLocked(frame.NewError(code, message, s.page.ID, false))
		if !s.queue.push(entry{client: v.client, size: size}) {
			v.closeLocked(frame.ReasonTooMany, 0) // its count cannot be kept any more
		}
	} else {
		s.last, v.active = s.gw.cfg.Now(), s.gw.cfg.Now()
		s.resizeLocked()
	}
	signal(s.ready)
	s.wakeLocked()
}

// judgeLocked says why a frame is refused; an empty code when it is not.
func (s *session) judgeLocked(v *viewer, data []byte, size int) (frame.Code, string) {
	switch {
	case v.visitor.Role != RoleOwner:
		return frame.CodeReadOnly, "You may look at this terminal, not type into it."
	case size > frame.MaxInput || size > len(data):
		return frame.CodeInputTooLarge, "One input frame holds at most 4096 bytes; this one was dropped."
	}
	return "", ""
}

// acked tells a client how much of its input is settled, together with the next output or soon.
func (s *session) acked(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.viewer != nil {
		c.viewer.ack = c.settled
		c.viewer.signal()
	}
}

// resized takes a viewer's size; it counts once the viewer is the last active one, which a new size makes it.
func (s *session) resized(v *viewer, size frame.Size) {
	if !size.Valid() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.size == size {
		return
	}
	v.size = size
	if v.visitor.Role == RoleOwner {
		v.active = s.gw.cfg.Now()
	}
	s.resizeLocked()
	signal(s.ready)
}

// resizeLocked lets the owner who was active last decide the shell's size.
func (s *session) resizeLocked() {
	var best *viewer
	for v := range s.viewers {
		if v.visitor.Role == RoleOwner && v.size.Valid() && (best == nil || v.active.After(best.active)) {
			best = v
		}
	}
	if best != nil {
		s.size = best.size
	}
}
