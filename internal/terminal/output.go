package terminal

import (
	"bytes"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// windowLocked is how many bytes may be sent now.
func (v *viewer) windowLocked() int64 {
	n := int64(v.sess.gw.cfg.ChunkBytes)
	if v.controlledLocked() {
		n = min(n, int64(v.sess.gw.cfg.WindowBytes)-v.flow.ahead(v.cursor))
	}
	return n
}

// controlledLocked is true while the viewer's acks open its window. The last of an ended shell's output needs none.
func (v *viewer) controlledLocked() bool { return v.hello.Flow && v.sess.state != stateEnded }

// outputLocked adds the next piece of output, after what must be said before it.
func (v *viewer) outputLocked(p *parcel, buf *[]byte, due bool) {
	s := v.sess
	if s.ring.Start() > v.cursor && v.preface == nil && !v.jumpLocked(p) {
		return
	}
	if v.preface != nil {
		p.data, v.preface = v.preface, nil
		return
	}
	stop := v.sayMarksLocked(p)
	n := min(v.windowLocked(), stop-v.cursor)
	if n <= 0 {
		return
	}
	if n < int64(s.gw.cfg.ChunkBytes) && !due && !v.urgent && !v.bracket {
		p.wait = true
		return
	}
	v.urgent = false
	if int64(cap(*buf)) < n {
		*buf = make([]byte, n)
	}
	p.data = (*buf)[:s.ring.CopyAt((*buf)[:n], v.cursor)]
	v.cursor += int64(len(p.data))
}

// jumpLocked skips what the ring has lost, and more, so that the viewer is near the end again: who is shown a flood is
// to see soon what an interrupt did. It waits for room to send what follows, so that gaps do not pile up in front of a
// viewer that shows nothing; false then.
func (v *viewer) jumpLocked(p *parcel) bool {
	s := v.sess
	to := s.lineLocked(max(s.ring.Start(), s.ring.End()-int64(s.gw.cfg.RingBytes)/4))
	mend := s.mendLocked(v.cursor, to)
	missed := to - v.cursor - int64(len(mend)) // the mend stands in the place of as many bytes
	if v.controlledLocked() {
		room := int64(min(s.gw.cfg.ChunkBytes, s.gw.cfg.WindowBytes/4))
		if v.windowLocked() < room || !v.flow.skip(v.cursor, missed) {
			return false
		}
	}
	s.gw.met.gaps.Inc()
	s.gw.met.gapBytes.Add(float64(missed))
	p.control = append(p.control, frame.NewGap(missed))
	v.cursor, v.preface = to, mend
	return true
}

// sayMarksLocked says what stands at the cursor and returns where the next thing to say stands.
func (v *viewer) sayMarksLocked(p *parcel) int64 {
	s := v.sess
	for _, m := range s.marks {
		inside := m.at < v.cursor && v.cursor < m.end && !v.bracket
		if m.at >= v.marked && m.at == v.cursor || inside {
			v.marked = m.at + 1
			v.bracket, v.liveAt = true, max(v.liveAt, m.end)
			p.control = append(p.control, frame.NewPhase(frame.PhaseReplaying, s.id, v.cursor))
			if !inside {
				p.control = append(p.control, frame.NewGap(-1))
			}
		}
	}
	if v.bracket && v.cursor >= v.liveAt && s.state != stateReattaching {
		v.bracket = false
		p.control = append(p.control, frame.NewPhase(frame.PhaseLive, s.id, v.cursor))
	}
	stop := s.ring.End()
	if v.bracket && v.liveAt > v.cursor {
		stop = min(stop, v.liveAt)
	}
	for _, m := range s.marks {
		if m.at > v.cursor {
			stop = min(stop, m.at)
		}
	}
	return stop
}

// placeLocked decides where a viewer begins: exactly behind what it has, where that can be proven.
func (s *session) placeLocked(v *viewer) {
	if !s.met {
		return
	}
	h, start, end := v.hello, s.ring.Start(), s.ring.End()
	v.placed, v.bracket, v.liveAt = true, true, end
	gap := int64(0)
	switch {
	case h.Session == s.id && h.Offset <= end && h.Offset >= s.base:
		v.cursor = h.Offset
		if h.Offset < start {
			v.preface = s.mendLocked(h.Offset, start)
			mend := int64(len(v.preface))
			v.cursor = max(start, min(h.Offset+mend+1, end)) // room to say the gap
			gap = v.cursor - h.Offset - mend
		}
	case h.Session == "" || h.Offset == 0:
		v.cursor = s.historyLocked()
		v.preface = s.prefaceLocked(v.cursor)
	default:
		held := s.ring.Tail(int(end - start))
		next, ok := align(h.Tail, h.Offset == int64(len(h.Tail)) && s.whole && start == s.base, held)
		v.cursor = start + int64(next)
		if !ok {
			v.cursor, gap = s.historyLocked(), -1
			v.preface = s.prefaceLocked(v.cursor)
		}
	}
	v.marked = v.cursor
	first := v.cursor - int64(len(v.preface)) // the preface stands in the place of as many bytes that are lost
	v.flow.begin(first)
	v.sendLocked(frame.NewPhase(frame.PhaseReplaying, s.id, first-max(gap, 0)))
	if gap != 0 {
		s.gw.met.gaps.Inc()
		v.sendLocked(frame.NewGap(gap))
	}
}

// historyLocked is where a new viewer's history begins: all of it where the ring has lost nothing.
func (s *session) historyLocked() int64 {
	if start := s.ring.Start(); start == s.base {
		return start
	}
	return s.lineLocked(s.ring.Start())
}

// lineLocked is the beginning of the first line after at, so that what is shown does not begin within an escape
// sequence; at itself where no line ends nearby.
func (s *session) lineLocked(at int64) int64 {
	head := make([]byte, min(4<<10, s.ring.End()-at))
	s.ring.CopyAt(head, at)
	return at + int64(bytes.IndexByte(head, '\n')+1)
}
