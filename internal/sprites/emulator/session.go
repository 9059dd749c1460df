package emulator

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

const (
	maxExited    = 256
	killGrace    = 10 * time.Second
	hangupGrace  = 200 * time.Millisecond
	readSize     = 64 << 10
	pipeKeep     = 10 * time.Second // of a session without terminal after its client left
	defaultRows  = 24
	defaultCols  = 80
	defaultShell = "bash"
)

// spec is what a client asked to run.
type spec struct {
	guest.Command
	stdin bool
	keep  time.Duration // after disconnect; 0 is for ever
}

// process is what a session needs of a command.
type process interface {
	Done() <-chan struct{}
	Exit() (code int, known bool)
	Resize(rows, cols uint16) error
}

// session is a command and its output. It outlives its clients.
//
//	attached <-> detached -> (keep is over: TERM, KILL)
//	     \          /
//	      +-> ended: process gone, output complete
type session struct {
	id      string
	pid     int
	sp      *sprite
	machine *guest.Machine
	argv    []string
	dir     string
	tty     bool
	created time.Time
	keep    time.Duration
	proc    process
	stdin   io.WriteCloser
	input   *inputQueue // what clients send goes there
	out     *outputLog
	ended   chan struct{} // closed by finish
	lost    chan struct{} // closed by abandon
	lose    func()
	code    int // written before ended is closed
	known   bool

	mu       sync.Mutex // protects the rest
	attached int
	leash    Timer
	last     time.Time
}

// startSession starts the command. Errors of the start itself are *guest.Failure.
func (sp *sprite) startSession(c spec) (*session, error) {
	sp.mu.Lock()
	m := sp.machine
	sp.mu.Unlock()
	s := &session{
		sp: sp, machine: m, argv: c.Argv, dir: c.Dir, tty: c.TTY, keep: c.keep,
		created: sp.srv.cfg.Clock.Now(), out: newOutputLog(sp.srv.cfg.Scrollback),
		ended: make(chan struct{}), lost: make(chan struct{}),
	}
	s.last = s.created
	s.input = newInputQueue(sp.srv, func() io.WriteCloser { return s.stdin })
	s.lose = sync.OnceFunc(func() { close(s.lost) })
	if sp.srv.cfg.Instant {
		s.startInstant(c)
		return s, sp.adopt(s)
	}
	if m == nil {
		return nil, guest.ErrGone
	}
	p, err := m.Exec(c.Command)
	if err != nil {
		return nil, err
	}
	s.proc, s.pid, s.id = p, p.PID, strconv.Itoa(p.PID)
	s.wire(p, c.stdin)
	return s, sp.adopt(s)
}

// adopt makes the session known, unless the machine went away meanwhile.
func (sp *sprite) adopt(s *session) error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.machine != s.machine || sp.deleted {
		s.abandon()
		return guest.ErrGone
	}
	select {
	case <-s.ended:
		sp.noteExited(s.id)
		return nil
	default:
	}
	sp.exited = slices.DeleteFunc(sp.exited, func(id string) bool { return id == s.id }) // a pid comes round again
	sp.sessions[s.id] = s
	return nil
}

// noteExited needs the lock.
func (sp *sprite) noteExited(id string) {
	if len(sp.exited) == maxExited {
		sp.exited = sp.exited[1:]
	}
	sp.exited = append(sp.exited, id)
}

func (sp *sprite) session(id string) (*session, error) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	s, ok := sp.sessions[id]
	if !ok {
		return nil, fmt.Errorf("session %s: %w", id, errNoSession)
	}
	return s, nil
}

// finish is the end of the session: the process is gone and all its output taken.
func (s *session) finish() {
	s.code, s.known = s.proc.Exit()
	_ = s.stdin.Close()
	s.mu.Lock()
	stop(&s.leash)
	s.mu.Unlock()
	s.sp.mu.Lock()
	if s.sp.sessions[s.id] == s {
		delete(s.sp.sessions, s.id)
		s.sp.noteExited(s.id)
	}
	// Closed under the lock, so that a session is either listed or ended.
	close(s.ended)
	s.sp.mu.Unlock()
	s.out.close()
}

// abandon is for a machine that has gone: nobody waits for output any more.
func (s *session) abandon() { s.lose() }

// attach counts a client in.
func (s *session) attach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attached++
	stop(&s.leash)
}

// detach counts a client out; the last one starts the time that is left to run.
func (s *session) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attached--
	select {
	case <-s.ended:
		return
	case <-s.lost:
		return
	default:
	}
	if s.attached == 0 && s.keep > 0 && s.sp.srv.ctx.Err() == nil {
		s.leash = s.sp.srv.cfg.Clock.AfterFunc(s.keep, s.expire)
	}
}

// expire ends a session that nobody came back to.
func (s *session) expire() {
	_ = s.signal(syscall.SIGTERM)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached == 0 {
		s.leash = s.sp.srv.cfg.Clock.AfterFunc(killGrace, func() { _ = s.signal(syscall.SIGKILL) })
	}
}

// signal reaches the whole process group.
func (s *session) signal(sig syscall.Signal) error {
	if p, ok := s.proc.(*instant); ok {
		p.kill(sig)
		return nil
	}
	return s.machine.Signal(s.pid, sig, true)
}
