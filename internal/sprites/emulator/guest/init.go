package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

var hooked atomic.Bool

// MaybeInit turns this process into the init of a machine when it was started
// as one, and then never returns. It must be the first statement of every main
// and TestMain whose program starts machines: what runs before it runs in every
// init as well.
func MaybeInit() {
	hooked.Store(true)
	if os.Getenv(guestMarker) != "1" {
		return
	}
	os.Exit(initMain())
}

// initd is the state of the init process. Its goroutines end with the process.
type initd struct {
	link  *link
	paths pathMap
	files fileTree
	spawn chan func()

	mu    sync.Mutex   // protects procs, and orders "started" before "exit"
	procs map[int]bool // children that the host asked for
}

func initMain() int {
	_ = os.Unsetenv(guestMarker)
	unix.CloseOnExec(controlFD)
	l, err := newLink(os.NewFile(controlFD, "control"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "sprite init:", err)
		return 1
	}
	// As pid 1 the init would be ended by what a guest can send it. Caught and
	// dropped rather than ignored: an ignored signal would stay ignored in every
	// command started from here.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP,
		unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM)
	d := &initd{link: l, spawn: make(chan func()), procs: map[int]bool{}}
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, unix.SIGCHLD)
	go d.reap(chld)
	err = d.serve()
	d.killAll()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sprite init:", err)
		return 1
	}
	return 0
}

// serve answers the host until it hangs up.
func (d *initd) serve() error {
	slots := make(chan struct{}, maxInFlight)
	for {
		m, files, err := d.link.recv()
		if err != nil {
			return nil //nolint:nilerr // the host is gone, whichever way: an ordinary end
		}
		if m.Op == opBoot {
			if err := d.boot(m); err != nil {
				return err
			}
			continue
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			defer closeAll(files)
			d.handle(m, files)
		}()
	}
}

func (d *initd) boot(m message) error {
	var a bootArgs
	err := json.Unmarshal(m.Body, &a)
	if err == nil {
		d.paths = newPathMap(a)
		if a.Isolation == Namespace {
			err = enterRoot(a)
		} else {
			err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		}
	}
	if err == nil {
		d.files, err = newFileTree(a)
	}
	if err == nil {
		ready := make(chan error)
		go d.spawner(ready)
		err = <-ready
	}
	if sendErr := d.link.send(message{ID: m.ID, Error: failure(err)}); sendErr != nil {
		return sendErr
	}
	return err
}

func (d *initd) handle(m message, files []*os.File) {
	switch m.Op {
	case opExec:
		d.exec(m, files)
	case opDial:
		d.dial(m)
	case opOpen:
		d.open(m)
	case opWatch:
		d.answer(m, nil, d.watch(m, files))
	case opSignal:
		d.answer(m, nil, d.signal(m))
	case opFreeze:
		d.freeze()
		d.answer(m, nil, nil)
	case opThaw:
		d.thaw()
		d.answer(m, nil, nil)
	case opPorts:
		ports, err := d.ports()
		d.answer(m, ports, err)
	case opArgv:
		argv, err := d.argv(m)
		d.answer(m, argv, err)
	case opList, opDelete, opRename, opCopy, opChmod, opChown:
		res, err := d.tree(m)
		d.answer(m, res, err)
	default:
		d.answer(m, nil, fmt.Errorf("operation %q: %w", m.Op, ErrProtocol))
	}
}

// answer cannot report a failed send to anybody: the host is gone then, and
// serve ends the process.
func (d *initd) answer(m message, v any, err error, fds ...int) {
	out := message{ID: m.ID, Op: m.Op, Error: failure(err)}
	if v != nil && err == nil {
		out.Body, err = json.Marshal(v)
		out.Error = failure(err)
	}
	_ = d.link.send(out, fds...)
}

func (d *initd) dial(m message) {
	var a dialArgs
	if err := json.Unmarshal(m.Body, &a); err != nil {
		d.answer(m, nil, err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(max(a.Timeout, time.Second), time.Minute))
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.Address)
	if err != nil {
		d.answer(m, nil, err)
		return
	}
	defer func() { _ = c.Close() }()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		d.answer(m, nil, err)
		return
	}
	defer func() { _ = f.Close() }()
	d.answer(m, nil, nil, int(f.Fd()))
}

func (d *initd) signal(m message) error {
	var a signalArgs
	if err := json.Unmarshal(m.Body, &a); err != nil {
		return err
	}
	// Never 0, 1 or a negative number from outside: kill(2) would read them as
	// "everybody".
	if a.PID <= 1 {
		return fmt.Errorf("signal process %d: %w", a.PID, unix.EINVAL)
	}
	if a.Group {
		return unix.Kill(-a.PID, unix.Signal(a.Sig))
	}
	return unix.Kill(a.PID, unix.Signal(a.Sig))
}

// Hooked says whether this binary has called MaybeInit.
func Hooked() bool { return hooked.Load() }
