package emulator

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

const (
	maxExited    = 256
	killGrace    = 10 * time.Second
	hangupGrace  = 200 * time.Millisecond
	readSize     = 32 << 10
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

// wire connects the process's files. Its goroutines end with the process, or
// with the machine that holds the other ends.
func (s *session) wire(p *guest.Process, stdin bool) {
	var pumps sync.WaitGroup
	start := func(f *os.File, stream byte) {
		pumps.Add(1)
		s.sp.srv.goOwned(func() { s.pump(f, stream, &pumps) })
	}
	var files []*os.File
	if p.TTY != nil {
		s.stdin = keepOpen{p.TTY} // closed by its pump: the same file is both ways
		start(p.TTY, streamStdout)
		files = []*os.File{p.TTY}
	} else {
		s.stdin = p.Stdin
		if !stdin {
			_ = p.Stdin.Close()
		}
		start(p.Stdout, streamStdout)
		start(p.Stderr, streamStderr)
		files = []*os.File{p.Stdout, p.Stderr}
	}
	s.sp.srv.goOwned(func() {
		<-p.Done()
		s.drain(files)
		pumps.Wait()
		s.finish()
	})
}

type keepOpen struct{ io.Writer }

// Close does nothing.
func (keepOpen) Close() error { return nil }

// drain tells the pumps that the process has ended: what it wrote is in the pipe
// by now, and a child that holds the pipe must not hold the exit. A terminal's
// bytes pass a queue of the kernel's, so its end is waited for a moment.
func (s *session) drain(files []*os.File) {
	now := time.Now() // a file deadline knows the system's clock only
	if s.tty {
		now = now.Add(hangupGrace)
	}
	for _, f := range files {
		_ = f.SetReadDeadline(now)
	}
}

func (s *session) pump(f *os.File, stream byte, pumps *sync.WaitGroup) {
	defer func() { _ = f.Close() }()
	buf := make([]byte, readSize)
	for {
		n, err := f.Read(buf)
		s.take(stream, buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.drainOnce(f, stream, buf)
			pumps.Done()
			// A child still holds the other end: read on, for nobody, so that it
			// is not ended by a closed pipe.
			_ = f.SetReadDeadline(time.Time{})
			_, _ = io.Copy(io.Discard, f)
			return
		}
		if err != nil {
			pumps.Done()
			return
		}
	}
}

// drainOnce takes what is in the pipe now, without waiting for more.
func (s *session) drainOnce(f *os.File, stream byte, buf []byte) {
	_ = f.SetReadDeadline(time.Time{})
	rc, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n <= 0 {
				return true
			}
			s.take(stream, buf[:n])
		}
	})
}

func (s *session) take(stream byte, p []byte) {
	if len(p) == 0 {
		return
	}
	if stream == streamStderr && s.sp.srv.cfg.Mutation == MutateStderrAsStdout {
		stream = streamStdout
	}
	frame := make([]byte, 1+len(p))
	frame[0] = stream
	copy(frame[1:], p)
	s.out.append(frame, s.lost)
	s.mu.Lock()
	s.last = s.sp.srv.cfg.Clock.Now()
	alone := s.attached == 0
	s.mu.Unlock()
	if alone {
		s.sp.touch()
	}
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
