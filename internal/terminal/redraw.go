package terminal

import "time"

// nudgeFor is how long a shell is told a size one row less than its own. Told both at once, a program would find nothing
// changed.
const nudgeFor = 100 * time.Millisecond

// nudge makes a full-screen program draw its screen anew, where somebody wants it: a change of size does. The channel
// ticks when the true size is due; it is nil when nothing was done.
func (s *session) nudge(pty PTY) <-chan time.Time {
	s.mu.Lock()
	smaller := s.size
	smaller.Rows--
	if !s.redraw || s.nudging || s.pty != pty || s.holding || !smaller.Valid() {
		s.mu.Unlock()
		return nil
	}
	s.redraw, s.nudging, s.sizeSent = false, true, smaller
	s.mu.Unlock()
	_ = pty.Resize(smaller) // the reader finds out what happened
	return time.After(nudgeFor)
}

// nudged lets feed tell the true size.
func (s *session) nudged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nudging = false
}

// forgetLocked follows the modes in the oldest bytes, which n more will push out of the ring.
func (s *session) forgetLocked(p []byte) {
	over := s.ring.End() - s.ring.Start() + int64(len(p)) - int64(s.gw.cfg.RingBytes)
	if over <= 0 {
		return
	}
	had := s.before.count
	held := min(over, s.ring.End()-s.ring.Start())
	s.scanLocked(&s.before, s.ring.Start(), s.ring.Start()+held)
	s.before.scan(p[:over-held])
	if s.before.count != had {
		s.switched = s.ring.Start() + over
	}
}

// scanLocked follows the modes in the ring's bytes from one number up to another.
func (s *session) scanLocked(m *modes, from, to int64) {
	var buf [4 << 10]byte
	for from < to {
		n := s.ring.CopyAt(buf[:min(int64(len(buf)), to-from)], from)
		m.scan(buf[:n])
		from += int64(n)
	}
}

// prefaceLocked is what a viewer without a past needs before a history that begins at cursor: the modes set by what is
// lost.
func (s *session) prefaceLocked(cursor int64) []byte {
	if s.whole && cursor == s.base {
		return nil
	}
	m := s.before.clone()
	s.scanLocked(m, s.ring.Start(), cursor)
	preface := m.restore()
	s.redrawLocked(m, cursor)
	return preface
}

// mendLocked is what a viewer needs that was shown everything up to from and then misses what follows up to cursor: the
// modes, if the missing part changed any.
func (s *session) mendLocked(from, cursor int64) []byte {
	m := s.before.clone()
	s.scanLocked(m, s.ring.Start(), cursor)
	if s.switched <= from && m.count == s.before.count {
		return nil
	}
	renewal := m.renew()
	s.redrawLocked(m, cursor)
	return renewal
}

// redrawLocked has a full-screen program draw its screen anew, for what is left may be half of it; m is what was set
// before cursor.
func (s *session) redrawLocked(m *modes, cursor int64) {
	s.scanLocked(m, cursor, s.ring.End())
	if m.fullScreen() {
		s.redraw = true
		signal(s.ready)
	}
}
