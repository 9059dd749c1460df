package terminal

import (
	"context"
	"sync"
	"time"

	"github.com/wakebus/wakebus/internal/terminal/frame"
	"github.com/wakebus/wakebus/internal/terminal/ring"
)

// state is how far a session has come. See the diagram in doc.go.
type state int

const (
	stateOpening state = iota
	stateReattaching
	stateLive
	stateDormant
	stateEnded
)

// session is one shell as this gateway sees it. run owns its course; mu protects everything below it and is never held
// over network I/O; a recording, which must keep the order, writes its local file under it.
type session struct {
	gw     *Gateway
	page   Page
	id     string // names this session's numbering of output
	ctx    context.Context
	cancel context.CancelFunc // called by stop

	// wake, ready and drained carry one pending signal each and are never closed.
	wake    chan struct{} // a dormant session is wanted
	ready   chan struct{} // input or a size waits for the shell
	drained chan struct{} // a viewer has read on
	settled chan struct{} // replayed bytes have arrived
	done    chan struct{} // closed by run when the session has ended

	mu       sync.Mutex
	state    state
	started  bool // run was started
	wanted   bool // a dormant session is to wake
	met      bool // the shell's first output is settled: viewers may be placed
	ring     *ring.Ring
	base     int64 // number of the first byte since the shell began, or since this gateway met it
	whole    bool  // base is the shell's own beginning
	marks    []mark
	before   modes  // set by what the ring has lost
	switched int64  // number of a byte before which the lost ones changed a mode last
	redraw   bool   // a full-screen program is to draw its screen anew
	nudging  bool   // it was told a wrong size for a moment
	replay   []byte // collected while not settled
	holding  bool   // output goes to replay, not to the ring
	pty      PTY
	viewers  map[*viewer]struct{}
	clients  map[string]*client
	queue    queue
	size     frame.Size
	sizeSent frame.Size
	people   map[personKey]*person
	rec      Record
	rev      uint64
	holder   bool
	lease    Lease
	stopWait func() bool // ends the watch over lease
	end      *ending
	last     time.Time // of the last input or output
	empty    time.Time // since when there has been no viewer; zero while there are
	typed    time.Time // of input that no output has followed yet
	hurry    time.Time // until when output is drained without waiting for viewers
	adoptAt  time.Time // when a guest looks at the holder next
	cast     *recording
}

// mark is a place in the output before which an unknown number of bytes is missing; what follows, up to end, is the
// sandbox's own replay.
type mark struct{ at, end int64 }

// maxMarks bounds the remembered marks. The oldest go first: a viewer that far behind misses bytes anyway.
const maxMarks = 32

// ending is why and how a session ended.
type ending struct {
	reason   frame.CloseReason
	code     *int
	message  *frame.Server // a fatal error to show before the close
	retry    time.Duration
	at       time.Time
	killable bool // the shell may still run and must not
}

func newSession(gw *Gateway, page Page, size frame.Size) *session {
	now := gw.cfg.Now()
	ctx, cancel := context.WithCancel(gw.ctx)
	return &session{
		ctx: ctx, cancel: cancel, gw: gw, page: page, id: gw.cfg.ID(), size: size, last: now,
		wake: make(chan struct{}, 1), ready: make(chan struct{}, 1), drained: make(chan struct{}, 1),
		settled: make(chan struct{}, 1), done: make(chan struct{}),
		ring: ring.New(gw.cfg.RingBytes, 0), viewers: map[*viewer]struct{}{}, clients: map[string]*client{},
		people: map[personKey]*person{}, queue: queue{limit: gw.cfg.QueueBytes},
	}
}

// signal leaves one pending signal in c.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run takes the session through its life. It returns when the session has ended and everything it held is given back.
func (s *session) run() {
	defer close(s.done)
	defer s.cancel()
	ctx := s.ctx
	pty, err := s.acquire(ctx)
	if err != nil {
		s.finish(ctx, s.endingOf(err))
		return
	}
	for {
		why := s.serve(ctx, pty)
		if end := s.after(why, pty); end != nil {
			s.finish(ctx, *end)
			return
		}
		if why == servedDormant && !s.sleep(ctx) {
			s.finish(ctx, ending{reason: frame.ReasonRestarting})
			return
		}
		if pty, err = s.reattach(ctx); err != nil {
			s.finish(ctx, s.endingOf(err))
			return
		}
	}
}

// after judges how an attachment ended: nil means that the shell is wanted again.
func (s *session) after(why served, pty PTY) *ending {
	switch why {
	case servedExited:
		end := ending{reason: frame.ReasonExited}
		if code, known := pty.Exit(); known {
			end.code = &code
		}
		return &end
	case servedStopped:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.end != nil {
			return s.end
		}
		return &ending{reason: frame.ReasonRestarting}
	case servedDropped, servedDormant:
		return nil
	}
	return nil
}

// sleep waits without an attachment until somebody wants the shell; false when the session is to end instead.
func (s *session) sleep(ctx context.Context) bool {
	for {
		s.mu.Lock()
		stop, wanted := s.end != nil, s.wanted
		s.mu.Unlock()
		if stop || wanted {
			return !stop
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.wake:
		}
	}
}

// wakeLocked makes a dormant session come back.
func (s *session) wakeLocked() {
	if s.state == stateDormant {
		s.wanted = true
		signal(s.wake)
	}
}

// stop ends the session for a reason; run does the rest. The first reason stands.
func (s *session) stop(end ending) {
	s.mu.Lock()
	if s.end == nil && s.state != stateEnded {
		s.end = &end
	}
	pty := s.pty
	s.mu.Unlock()
	if pty != nil {
		pty.Close()
	}
	s.cancel()
}

// finish tells the viewers, gives back what is held and leaves the final output for a viewer who comes back.
func (s *session) finish(ctx context.Context, end ending) {
	s.mu.Lock()
	if s.end != nil {
		end = *s.end
	}
	end.at = s.gw.cfg.Now()
	s.end, s.state = &end, stateEnded
	pty := s.pty
	s.pty, s.holding, s.replay = nil, false, nil
	for v := range s.viewers {
		v.signal()
	}
	s.mu.Unlock()
	if pty != nil {
		pty.Close()
	}
	s.surrender(ctx, end)
	s.cast.close()
	s.gw.sessionEnded(s)
}

// received takes output of the shell. It copies p.
func (s *session) received(p []byte) {
	s.mu.Lock()
	s.last = s.gw.cfg.Now()
	s.typed = time.Time{}
	if s.holding {
		s.replay = append(s.replay, p...)
		// A replay larger than the ring keeps its end: what is older could be shown to nobody.
		if over := len(s.replay) - 2*s.gw.cfg.RingBytes; over > 0 {
			s.replay = append(s.replay[:0], s.replay[over:]...)
		}
		s.mu.Unlock()
		signal(s.settled)
		return
	}
	s.appendLocked(p)
	s.mu.Unlock()
}

// appendLocked adds live output to the ring, the recording and everybody's view.
func (s *session) appendLocked(p []byte) {
	if len(p) == 0 {
		return
	}
	s.forgetLocked(p)
	s.ring.Write(p)
	s.cast.output(p)
	for v := range s.viewers {
		v.signal()
	}
}
