package terminal

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// served is why serving an attachment ended.
type served int

const (
	servedExited  served = iota // the shell ended
	servedDropped               // only the attachment did
	servedDormant               // we let go of it: nobody needs it
	servedStopped               // the session is to end
)

// readBytes is the buffer that each attachment reads into. It is small because thousands of idle ones wait with it.
const readBytes = 8 << 10

// serve moves bytes between the shell and the session until the attachment ends. It closes pty.
func (s *session) serve(ctx context.Context, pty PTY) served {
	read := make(chan error, 1)
	go func() { read <- s.drain(ctx, pty) }() // ends with pty, and is waited for below
	s.settle(ctx)
	var nudged <-chan time.Time
	for {
		if due := s.nudge(pty); due != nil {
			nudged = due
		}
		s.feed(pty)
		select {
		case <-s.ready:
		case <-nudged:
			s.nudged()
		case err := <-read:
			return s.detached(pty, err)
		case <-ctx.Done():
			pty.Close()
			<-read //nolint:errcheck // it ends because the terminal was closed
			s.detached(pty, ctx.Err())
			return servedStopped
		}
	}
}

// detached forgets an attachment that has ended and says why it did.
func (s *session) detached(pty PTY, err error) served {
	pty.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	dormant := s.state == stateDormant
	s.pty, s.sizeSent, s.nudging = nil, frame.Size{}, false
	s.holding, s.replay = false, nil
	switch {
	case s.end != nil:
		return servedStopped
	case errors.Is(err, io.EOF):
		return servedExited
	case dormant:
		return servedDormant
	}
	s.state = stateReattaching
	s.doubtLocked()
	return servedDropped
}

// doubtLocked says that keys written just before the drop may not have arrived: no output has followed them, and
// writing them again could run a command twice.
func (s *session) doubtLocked() {
	if s.typed.IsZero() {
		return
	}
	s.typed = time.Time{}
	for v := range s.viewers {
		if v.visitor.Role == RoleOwner {
			v.sendLocked(frame.NewError(frame.CodeInputUncertain,
				"The connection to the shell was lost; the last keys may not have arrived.", s.page.ID, false))
		}
	}
}

// drain reads the shell's output to the end of the attachment.
func (s *session) drain(ctx context.Context, pty PTY) error {
	buf := make([]byte, readBytes)
	pace := pacer{rate: s.gw.cfg.OutputRate, now: s.gw.cfg.Now}
	for {
		n, err := pty.Read(buf)
		if n > 0 {
			s.received(buf[:n])
		}
		if err != nil {
			return err
		}
		if s.hurried() && pace.lend(n) {
			continue // what was printed before an interrupt is drained at once: the answer is behind it
		}
		if !s.waitForViewers(ctx) || !pace.wait(ctx, n) {
			return ctx.Err()
		}
	}
}

// waitForViewers slows a flood down to its viewers, so that an ordinary one misses nothing. Who is still behind after
// PaceHold is waited for no more until it has caught up: it gets gaps, and stalls nobody.
func (s *session) waitForViewers(ctx context.Context) bool {
	if !s.behind() {
		return true
	}
	limit := time.NewTimer(s.gw.cfg.PaceHold)
	defer limit.Stop()
	for s.behind() {
		select {
		case <-s.drained:
		case <-limit.C:
			s.giveUpOnSlow()
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// behind is true while a viewer who is waited for has half a ring to read.
func (s *session) behind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.viewers {
		if s.waitedForLocked(v) {
			return s.end == nil
		}
	}
	return false
}

func (s *session) waitedForLocked(v *viewer) bool {
	return v.placed && !v.stalled && s.ring.End()-v.cursor > int64(s.gw.cfg.RingBytes)/2
}

func (s *session) giveUpOnSlow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.viewers {
		v.stalled = v.stalled || s.waitedForLocked(v)
	}
}

// feed writes what waits for the shell: its size, then input in order. It blocks as long as the shell does not read;
// closing pty unblocks it.
func (s *session) feed(pty PTY) {
	for {
		s.mu.Lock()
		if s.pty != pty || s.holding {
			s.mu.Unlock()
			return
		}
		if s.size != s.sizeSent && s.size.Valid() && !s.nudging {
			size := s.size
			s.sizeSent = size
			s.mu.Unlock()
			if pty.Resize(size) != nil {
				return // the reader finds out what happened
			}
			s.cast.resize(size)
			continue
		}
		e, ok := s.queue.pop()
		if !ok {
			s.mu.Unlock()
			return
		}
		e.client.settled += int64(e.size)
		if len(e.data) > 0 {
			s.typed = s.gw.cfg.Now()
			if interrupts(e.data) {
				s.hurry = s.typed.Add(hurryFor)
			}
			for v := range s.viewers {
				v.urgent = true
			}
		}
		s.mu.Unlock()
		if len(e.data) > 0 {
			if _, err := pty.Write(e.data); err != nil {
				return
			}
		}
		s.acked(e.client)
	}
}
