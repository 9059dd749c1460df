package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawner runs every fork on one thread that has given its capabilities away.
// They are per thread and inherited by fork: the init keeps what it needs for
// mounts on its other threads, no command ever gets any.
func (d *initd) spawner(ready chan<- error) {
	runtime.LockOSThread()
	err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	ready <- err
	for f := range d.spawn {
		f()
	}
}

func (d *initd) onSpawner(f func()) {
	done := make(chan struct{})
	d.spawn <- func() { defer close(done); f() }
	<-done
}

func (d *initd) exec(m message, files []*os.File) {
	var c Command
	if err := json.Unmarshal(m.Body, &c); err != nil {
		d.answer(m, nil, err)
		return
	}
	d.paths.rewrite(&c)
	path, err := lookPath(c)
	if err != nil {
		d.answer(m, nil, err)
		return
	}
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Sys: &syscall.SysProcAttr{Setsid: true}}
	var master, slave *os.File
	if c.TTY {
		if master, slave, err = openPTY(c); err != nil {
			d.answer(m, nil, fmt.Errorf("open terminal: %w", err))
			return
		}
		defer closeAll([]*os.File{master, slave})
		attr.Sys.Setctty = true
		files = []*os.File{slave, slave, slave}
	}
	if len(files) != 3 {
		d.answer(m, nil, ErrProtocol)
		return
	}
	for _, f := range files {
		// A program does not expect EAGAIN from its standard streams.
		fd := f.Fd()
		_ = unix.SetNonblock(int(fd), false)
		attr.Files = append(attr.Files, fd)
	}
	d.start(m, path, c.Argv, attr, master)
}

func (d *initd) start(m message, path string, argv []string, attr *syscall.ProcAttr, master *os.File) {
	d.onSpawner(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		pid, err := syscall.ForkExec(path, argv, attr)
		if err != nil {
			d.answer(m, nil, &fs.PathError{Op: "start", Path: path, Err: startError(err, attr.Dir)})
			return
		}
		d.procs[pid] = true
		if master != nil {
			d.answer(m, execReply{PID: pid}, nil, int(master.Fd()))
			return
		}
		d.answer(m, execReply{PID: pid}, nil)
	})
}

// startError tells a missing working directory from a missing program: fork
// reports both as ENOENT.
func startError(err error, dir string) error {
	if dir == "" {
		return err
	}
	if _, statErr := os.Stat(dir); statErr != nil {
		return fmt.Errorf("chdir: %w", statErr)
	}
	return err
}

// reap collects every child, ours and adopted ones, and reports ours.
func (d *initd) reap(chld <-chan os.Signal) {
	for range chld {
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			d.mu.Lock()
			known := d.procs[pid]
			delete(d.procs, pid)
			d.mu.Unlock()
			if known {
				d.event(exitBody{PID: pid, Code: exitCode(ws)})
			}
		}
	}
}

func (d *initd) event(b exitBody) {
	raw, err := json.Marshal(b)
	if err == nil {
		_ = d.link.send(message{Op: exitEvent, Body: raw})
	}
}

func exitCode(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func openPTY(c Command) (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) (*os.File, *os.File, error) { _ = master.Close(); return nil, nil, err }
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return fail(err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return fail(err)
	}
	size := &unix.Winsize{Row: c.Rows, Col: c.Cols}
	if size.Row == 0 || size.Col == 0 {
		size.Row, size.Col = 24, 80
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size); err != nil {
		_ = slave.Close()
		return fail(err)
	}
	return master, slave, nil
}

// lookPath searches as a shell would, in the command's own PATH: the init's
// environment means nothing to the guest.
func lookPath(c Command) (string, error) {
	name := c.Path
	if strings.Contains(name, "/") {
		return name, nil
	}
	search := defaultPath
	for _, kv := range c.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	for _, dir := range filepath.SplitList(search) {
		p := filepath.Join(dir, name)
		st, err := os.Stat(p)
		if err == nil && st.Mode().IsRegular() && unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
	}
	return "", &Failure{Code: "ENOENT", Path: name, Message: fmt.Sprintf("exec: %q: executable file not found in $PATH", name)}
}
