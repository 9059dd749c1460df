package guest

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Process is one started command. Its files belong to the caller, who closes
// them; with a terminal only TTY is set, else the other three.
type Process struct {
	PID    int
	Stdin  *os.File
	Stdout *os.File
	Stderr *os.File
	TTY    *os.File

	machine *Machine
	once    sync.Once
	done    chan struct{} // closed by end
	code    int           // written before done is closed
	known   bool
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit gives the code as a shell has it (128 + n for a signal), after Done. It
// is false when the machine went away and no code is known.
func (p *Process) Exit() (code int, known bool) { return p.code, p.known }

func (p *Process) end(code int, known bool) {
	p.once.Do(func() {
		p.code, p.known = code, known
		close(p.done)
	})
}

// Resize sets the terminal's size in characters.
func (p *Process) Resize(rows, cols uint16) error {
	if p.TTY == nil {
		return nil
	}
	rc, err := p.TTY.SyscallConn()
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	var ioErr error
	err = rc.Control(func(fd uintptr) {
		ioErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
	if err == nil {
		err = ioErr
	}
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// Exec starts a command and returns as soon as it runs. Errors of the start
// itself (no such program, no such folder) are of type *Failure.
func (m *Machine) Exec(c Command) (*Process, error) {
	if len(c.Argv) == 0 {
		return nil, fmt.Errorf("start process: no arguments: %w", unix.EINVAL)
	}
	if c.TTY {
		a, err := m.call(opExec, c)
		if err != nil {
			return nil, err
		}
		if len(a.files) != 1 {
			closeAll(a.files)
			return nil, ErrProtocol
		}
		a.proc.TTY = a.files[0]
		return a.proc, nil
	}
	return m.execPipes(c)
}

const pipeSize = 256 << 10

func (m *Machine) execPipes(c Command) (*Process, error) {
	var pairs [3][2]*os.File // [stream][reader, writer]
	var all []*os.File
	for i := range pairs {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(all)
			return nil, fmt.Errorf("make pipe: %w", err)
		}
		// Fewer switches between writer and reader. A user may be past the limit
		// of such pipes: the usual size does as well.
		_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, pipeSize)
		_ = unix.SetNonblock(int(w.Fd()), true)
		pairs[i] = [2]*os.File{r, w}
		all = append(all, r, w)
	}
	theirs := []*os.File{pairs[0][0], pairs[1][1], pairs[2][1]}
	ours := []*os.File{pairs[0][1], pairs[1][0], pairs[2][0]}
	a, err := m.call(opExec, c, int(theirs[0].Fd()), int(theirs[1].Fd()), int(theirs[2].Fd()))
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return nil, err
	}
	a.proc.Stdin, a.proc.Stdout, a.proc.Stderr = ours[0], ours[1], ours[2]
	return a.proc, nil
}
