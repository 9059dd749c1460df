package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config says what machine to start.
type Config struct {
	// Isolation of the machine. Defaults to Namespace.
	Isolation Isolation
	// Folder on the host that holds what the machine keeps; it must exist. No default.
	Folder string
	// Hostname inside. Defaults to "sprite".
	Hostname string
	// Workspace is what is wrong with /workspace: "", WorkspaceMissing or
	// WorkspaceForeign. Defaults to "", nothing.
	Workspace string
	// Stderr takes what the init itself says. Defaults to io.Discard.
	Stderr io.Writer
}

// Machine is the host's handle. All methods may be called concurrently; all
// block for as long as the init takes, and fail with ErrGone once it has ended.
type Machine struct {
	link *link
	cmd  *exec.Cmd
	done chan struct{} // closed by wait, when the init and all its processes are gone

	mu      sync.Mutex // protects the rest
	nextID  uint64
	pending map[uint64]chan<- answer
	procs   map[int]*Process
	gone    bool
}

type answer struct {
	msg   message
	files []*os.File
	proc  *Process
	err   error
}

// Start boots a machine and returns when it takes commands. It fails with
// ErrNotHooked in a binary without MaybeInit, and with ErrNamespaces where the
// host does not allow what Namespace isolation needs. Close releases it.
func Start(cfg Config) (*Machine, error) {
	if !hooked.Load() {
		return nil, ErrNotHooked
	}
	if cfg.Isolation == "" {
		cfg.Isolation = Namespace
	}
	if cfg.Hostname == "" {
		cfg.Hostname = "sprite"
	}
	if err := prepare(cfg.Folder); err != nil {
		return nil, err
	}
	m, err := launch(cfg)
	if err != nil {
		return nil, err
	}
	_, err = m.call(opBoot, bootArgs{
		Isolation: cfg.Isolation, Folder: cfg.Folder, Hostname: cfg.Hostname, Workspace: cfg.Workspace,
	})
	if err != nil {
		m.Close()
		if cfg.Isolation == Namespace {
			err = fmt.Errorf("%w: %w", ErrNamespaces, err)
		}
		return nil, fmt.Errorf("boot machine: %w", err)
	}
	return m, nil
}

// prepare makes the folders that are bound into the machine, owned by the user
// who runs it.
func prepare(folder string) error {
	for _, p := range []string{Workspace, Home, ".sprite", ".root"} {
		if err := os.MkdirAll(filepath.Join(folder, p), 0o755); err != nil {
			return fmt.Errorf("prepare machine: %w", err)
		}
	}
	return nil
}

func launch(cfg Config) (*Machine, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer closeAll([]*os.File{ours, theirs})
	l, err := newLink(ours)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"sprite-init"}
	cmd.Env = []string{guestMarker + "=1", "GOMAXPROCS=2", "GOTRACEBACK=single"}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = cfg.Stderr
	if cfg.Isolation == Namespace {
		cmd.SysProcAttr = namespaces()
	}
	if err := cmd.Start(); err != nil {
		err = errors.Join(err, l.conn.Close())
		if cfg.Isolation == Namespace {
			err = fmt.Errorf("%w: %w", ErrNamespaces, err)
		}
		return nil, fmt.Errorf("start init: %w", err)
	}
	m := &Machine{link: l, cmd: cmd, done: make(chan struct{}), pending: map[uint64]chan<- answer{}, procs: map[int]*Process{}}
	go m.run()
	return m, nil
}

// namespaces maps one id, which is all that an ordinary user may. Not to 0: the
// guest then loses every capability by exec, and the init keeps its two by the
// ambient set.
func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: UserID, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: UserID, HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN},
	}
}

// run reads the init's messages and then collects the init; it owns both.
func (m *Machine) run() {
	for {
		msg, files, err := m.link.recv()
		if err != nil {
			break
		}
		m.deliver(msg, files)
	}
	_ = m.link.conn.Close()
	_ = m.cmd.Wait()
	m.mu.Lock()
	m.gone = true
	for id, ch := range m.pending {
		delete(m.pending, id)
		ch <- answer{err: ErrGone}
	}
	for pid, p := range m.procs {
		delete(m.procs, pid)
		p.end(0, false)
	}
	m.mu.Unlock()
	close(m.done)
}

func (m *Machine) deliver(msg message, files []*os.File) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if msg.Op == exitEvent {
		var b exitBody
		if err := json.Unmarshal(msg.Body, &b); err == nil && m.procs[b.PID] != nil {
			m.procs[b.PID].end(b.Code, true)
			delete(m.procs, b.PID)
		}
		return
	}
	ch, ok := m.pending[msg.ID]
	if !ok {
		closeAll(files)
		return
	}
	delete(m.pending, msg.ID)
	a := answer{msg: msg, files: files}
	if msg.Op == opExec && msg.Error == nil {
		// Known before the next message is read, which may be its exit.
		a.proc, a.err = m.register(msg)
	}
	ch <- a
}

func (m *Machine) register(msg message) (*Process, error) {
	var r execReply
	if err := json.Unmarshal(msg.Body, &r); err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	p := &Process{PID: r.PID, machine: m, done: make(chan struct{})}
	m.procs[r.PID] = p
	return p, nil
}

func (m *Machine) call(op string, args any, fds ...int) (answer, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return answer{}, fmt.Errorf("encode %s: %w", op, err)
	}
	ch := make(chan answer, 1)
	m.mu.Lock()
	if m.gone {
		m.mu.Unlock()
		return answer{}, ErrGone
	}
	m.nextID++
	id := m.nextID
	m.pending[id] = ch
	m.mu.Unlock()
	if err := m.link.send(message{ID: id, Op: op, Body: raw}, fds...); err != nil {
		m.mu.Lock()
		delete(m.pending, id)
		m.mu.Unlock()
		return answer{}, fmt.Errorf("%w: %w", ErrGone, err)
	}
	a := <-ch
	if a.err == nil && a.msg.Error != nil {
		a.err = a.msg.Error
	}
	if a.err != nil {
		closeAll(a.files)
	}
	return a, a.err
}

// Done is closed when the init and every process of the machine have ended.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Close ends the init, with it every process, and returns when they are gone.
func (m *Machine) Close() {
	_ = m.link.conn.Close() // the init takes this as its end
	stuck := time.AfterFunc(10*time.Second, func() { _ = m.cmd.Process.Kill() })
	defer stuck.Stop()
	<-m.done
}

// Kill ends the init at once, as a crash of the machine would.
func (m *Machine) Kill() {
	_ = m.cmd.Process.Kill()
	<-m.done
}

// Freeze stops every process where it is; Thaw lets them go on.
func (m *Machine) Freeze() error { _, err := m.call(opFreeze, nil); return err }

// Thaw undoes Freeze.
func (m *Machine) Thaw() error { _, err := m.call(opThaw, nil); return err }

// Signal sends sig to the process pid, or to its whole group. A process that
// has ended is syscall.ESRCH inside a Failure.
func (m *Machine) Signal(pid int, sig syscall.Signal, group bool) error {
	_, err := m.call(opSignal, signalArgs{PID: pid, Sig: int(sig), Group: group})
	return err
}

// Dial opens a TCP connection from inside the machine, within timeout (1 s to
// 1 min).
func (m *Machine) Dial(_ context.Context, address string, timeout time.Duration) (net.Conn, error) {
	a, err := m.call(opDial, dialArgs{Address: address, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	defer closeAll(a.files)
	if len(a.files) != 1 {
		return nil, ErrProtocol
	}
	return net.FileConn(a.files[0])
}

// Argv gives the present argument vectors of processes, in the order of their
// pids: what each runs now, which is not what it began with once it has executed
// another. It is nil for one that is gone, and cut at 4 KiB.
func (m *Machine) Argv(pids []int) ([][]string, error) {
	var argv [][]string
	a, err := m.call(opArgv, pids)
	if err != nil {
		return nil, err
	}
	return argv, json.Unmarshal(a.msg.Body, &argv)
}

// Ports lists the TCP sockets that listen inside.
func (m *Machine) Ports() ([]Port, error) {
	var ports []Port
	a, err := m.call(opPorts, nil)
	if err != nil {
		return nil, err
	}
	return ports, json.Unmarshal(a.msg.Body, &ports)
}
