package emulator

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

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
