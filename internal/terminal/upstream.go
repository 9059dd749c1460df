package terminal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// knownTail is how much of the known output is looked for in a replay, in bytes.
const knownTail = 4 << 10

// begin makes pty the session's attachment. A replayed one is held back until settle has judged its replay.
func (s *session) begin(pty PTY, replayed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pty, s.holding, s.replay = pty, replayed, nil
	select { // a signal of the attachment before would end the wait early
	case <-s.settled:
	default:
	}
	if !replayed {
		s.liveLocked()
	}
}

// liveLocked opens the session to its viewers.
func (s *session) liveLocked() {
	s.state, s.last, s.wanted = stateLive, s.gw.cfg.Now(), false
	first := !s.met
	s.met = true
	for v := range s.viewers {
		if first {
			s.placeLocked(v)
		} else {
			v.bracket = v.bracket || v.placed // says live once it has caught up
		}
		v.signal()
	}
	signal(s.ready)
}

// settle collects an attachment's replay until it is quiet, for a fixed time at most, and adds what is new of it. It
// runs beside the reader.
func (s *session) settle(ctx context.Context) {
	s.mu.Lock()
	holding := s.holding
	s.mu.Unlock()
	if !holding {
		return
	}
	quiet, limit := time.NewTimer(s.gw.cfg.SettleQuiet), time.NewTimer(s.gw.cfg.SettleMax)
	defer quiet.Stop()
	defer limit.Stop()
	for waiting := true; waiting; {
		select {
		case <-s.settled:
			quiet.Reset(s.gw.cfg.SettleQuiet)
		case <-quiet.C:
			waiting = false
		case <-limit.C:
			waiting = false
		case <-ctx.Done():
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holding {
		s.releaseHoldLocked()
		s.liveLocked()
	}
}

// releaseHoldLocked ends the collecting: what can be proven new is added; what cannot be aligned is shown in full
// behind a mark, never guessed at.
func (s *session) releaseHoldLocked() {
	if !s.holding {
		return
	}
	replay := s.replay
	s.holding, s.replay = false, nil
	end := s.ring.End()
	if !s.met {
		// This gateway meets the shell: the replay is the history.
		s.forgetLocked(replay)
		s.ring.Write(replay)
		s.cast.resume(replay)
		return
	}
	next, ok := align(s.ring.Tail(knownTail), s.whole && end-s.base <= knownTail, replay)
	if ok {
		s.appendLocked(replay[next:])
		return
	}
	if len(replay) == 0 {
		return // nothing to compare with and nothing to show
	}
	s.gw.met.unprovenReplays.Inc()
	s.cast.gap()
	s.marks = append(s.marks, mark{at: end, end: end + int64(len(replay))})
	if len(s.marks) > maxMarks {
		s.marks = s.marks[1:]
	}
	s.appendLocked(replay)
}

// reattach joins the running shell again after a drop or a rest. The tries are bounded; when they are used up the
// session rests until a key or a viewer wants it, with a fresh budget: only who waits may use it up.
func (s *session) reattach(ctx context.Context) (PTY, error) {
	for {
		pty, err := s.tries(ctx)
		if err == nil || errors.Is(err, ErrShellGone) || errors.Is(err, ErrStopped) {
			return pty, err
		}
		s.unreachable()
		if !s.sleep(ctx) {
			return nil, ErrStopped
		}
	}
}

// tries is one budget of attachments.
func (s *session) tries(ctx context.Context) (PTY, error) {
	s.mu.Lock()
	s.state = stateReattaching
	rec := s.rec
	for v := range s.viewers {
		v.sendLocked(frame.Server{Type: frame.TypePhase, Phase: frame.PhaseAttaching})
	}
	s.mu.Unlock()
	delay := s.gw.cfg.ReattachDelay
	var err error
	for try := range s.gw.cfg.ReattachTries {
		if try > 0 && !s.pause(ctx, delay) {
			return nil, ErrStopped
		}
		if delay = min(delay*2, 5*time.Second); try == 0 {
			delay = s.gw.cfg.ReattachDelay
		}
		var pty PTY
		if pty, err = s.attach(ctx, rec); err == nil {
			s.gw.met.reattaches.WithLabelValues("attached").Inc()
			return pty, nil
		}
		if errors.Is(err, ErrShellGone) {
			s.gw.met.reattaches.WithLabelValues("gone").Inc()
			return nil, err
		}
		if s.stopping() {
			return nil, ErrStopped
		}
		s.gw.log.Warn().Err(err).Str("sandbox", rec.Sandbox).Int("try", try+1).Msg("attach to shell failed")
	}
	s.gw.met.reattaches.WithLabelValues("unreachable").Inc()
	return nil, err
}

// attach wakes the sandbox and joins the shell. On success the session's replay is being settled.
func (s *session) attach(ctx context.Context, rec Record) (PTY, error) {
	call, cancel := context.WithTimeout(ctx, s.gw.cfg.OpenPatience)
	defer cancel()
	if err := s.gw.shells.Wake(call, rec.Sandbox); err != nil {
		return nil, fmt.Errorf("wake sandbox %s: %w", rec.Sandbox, err)
	}
	pty, err := s.gw.shells.Attach(call, rec.Sandbox, rec.Shell)
	if err != nil {
		return nil, fmt.Errorf("attach to shell %s in %s: %w", rec.Shell.ID, rec.Sandbox, err)
	}
	s.begin(pty, true)
	return pty, nil
}

// unreachable says that the shell cannot be reached now; the next key tries again.
func (s *session) unreachable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.wanted = stateDormant, false
	for v := range s.viewers {
		v.sendLocked(frame.NewError("worker_unavailable", "The sandbox does not answer; press a key to try again.", s.page.ID, false))
	}
}

// pause waits between tries; false when the session is to stop.
func (s *session) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !s.stopping()
	case <-ctx.Done():
		return false
	}
}

func (s *session) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end != nil
}

// rest drops the attachment so that the sandbox may sleep; the shell goes on.
func (s *session) rest() {
	s.mu.Lock()
	if s.state != stateLive || s.pty == nil {
		s.mu.Unlock()
		return
	}
	s.state, s.wanted = stateDormant, false
	pty := s.pty
	s.mu.Unlock()
	pty.Close()
}
