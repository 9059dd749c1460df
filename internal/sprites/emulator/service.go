package emulator

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

// serviceSpec is what a client put; it survives everything but its delete.
type serviceSpec struct {
	Name     string            `json:"name"`
	Cmd      string            `json:"cmd"`
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	Dir      string            `json:"dir,omitempty"`
	Needs    []string          `json:"needs"`
	HTTPPort *int              `json:"http_port"`
	// Stopped is sticky: a cold boot does not start it.
	Stopped bool `json:"stopped,omitempty"`
}

// serviceState is how a service is doing.
type serviceState string

const (
	serviceStopped  serviceState = "stopped"
	serviceStarting serviceState = "starting"
	serviceRunning  serviceState = "running"
	serviceStopping serviceState = "stopping"
	serviceFailed   serviceState = "failed"
)

const (
	firstRestart  = time.Second
	lastRestart   = 30 * time.Second
	maxServiceLog = 8 << 20 // bytes of the log file; past it the file begins anew
	maxServices   = 64
	maxLogLine    = 32 << 10
)

var serviceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// service is a spec being run in one boot of the machine.
//
//	starting -> running -> failed -> (restart) starting
//	               |
//	               +-> stopping -> stopped
type service struct {
	sp   *sprite
	spec serviceSpec
	log  *eventLog

	mu       sync.Mutex // protects the rest
	state    serviceState
	pid      int
	started  time.Time
	failure  string
	restarts int
	wanted   bool
	gone     bool          // the machine is
	ended    chan struct{} // closed at the end of the present process
	code     int
	retry    Timer
	machine  *guest.Machine
}

func newService(sp *sprite, spec serviceSpec) *service {
	return &service{sp: sp, spec: spec, state: serviceStopped, log: newEventLog()}
}

// bootServices needs the Sprite's lock. It gives what a cold boot starts, needs first.
func (sp *sprite) bootServices() []*service {
	var out []*service
	seen := map[string]bool{}
	var add func(spec *serviceSpec)
	add = func(spec *serviceSpec) {
		if seen[spec.Name] {
			return
		}
		seen[spec.Name] = true
		for _, need := range spec.Needs {
			if i := sp.serviceIndex(need); i >= 0 {
				add(sp.rec.Services[i])
			}
		}
		if !spec.Stopped {
			svc := newService(sp, *spec)
			sp.services[spec.Name] = svc
			out = append(out, svc)
		}
	}
	for _, spec := range sp.rec.Services {
		add(spec)
	}
	return out
}

// serviceIndex needs the Sprite's lock.
func (sp *sprite) serviceIndex(name string) int {
	return slices.IndexFunc(sp.rec.Services, func(s *serviceSpec) bool { return s.Name == name })
}

// begin starts the process unless it runs.
func (v *service) begin() {
	v.sp.mu.Lock()
	m := v.sp.machine
	v.sp.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone || m == nil || v.state == serviceRunning || v.state == serviceStopping {
		return
	}
	v.wanted, v.state, v.machine = true, serviceStarting, m
	stop(&v.retry)
	p, err := m.Exec(v.command())
	if err != nil {
		v.fail(err.Error())
		return
	}
	_ = p.Stdin.Close()
	v.state, v.pid, v.started, v.failure = serviceRunning, p.PID, v.sp.srv.cfg.Clock.Now(), ""
	v.ended = make(chan struct{})
	v.log.add(v.event("started", ""))
	v.follow(p, v.ended)
}

func (v *service) command() guest.Command {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + guest.Home, "USER=" + guest.User}
	for k, val := range v.spec.Env {
		env = append(env, k+"="+val)
	}
	return guest.Command{Argv: append([]string{v.spec.Cmd}, v.spec.Args...), Dir: v.spec.Dir, Env: env}
}

// follow owns the goroutines of one process; they end with it or its machine.
func (v *service) follow(p *guest.Process, ended chan struct{}) {
	var pumps sync.WaitGroup
	for kind, f := range map[string]*os.File{"stdout": p.Stdout, "stderr": p.Stderr} {
		pumps.Add(1)
		v.sp.srv.goOwned(func() { defer pumps.Done(); v.pump(kind, f) })
	}
	v.sp.srv.goOwned(func() {
		<-p.Done()
		for _, f := range []*os.File{p.Stdout, p.Stderr} {
			_ = f.SetReadDeadline(time.Now().Add(hangupGrace)) // a child may hold the pipe
		}
		pumps.Wait()
		_ = errors.Join(p.Stdout.Close(), p.Stderr.Close())
		v.exited(p, ended)
	})
}

func (v *service) pump(kind string, f io.Reader) {
	r := bufio.NewReaderSize(f, maxLogLine)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			v.log.add(v.event(kind, string(line)))
			v.sp.appendServiceLog(v.spec.Name, kind, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (v *service) exited(p *guest.Process, ended chan struct{}) {
	code, known := p.Exit()
	v.mu.Lock()
	defer v.mu.Unlock()
	defer close(ended)
	v.code, v.pid = code, 0
	if !known || v.gone {
		return
	}
	ev := v.event("exit", "")
	if v.state == serviceStopping {
		ev.Type = "stopped"
	}
	ev.Exit = &code
	v.log.add(ev)
	if v.state == serviceStopping || !v.wanted {
		v.state = serviceStopped
		if !v.sp.srv.cfg.Documented {
			// The live service was seen to call a stopped one failed.
			v.state, v.failure = serviceFailed, fmt.Sprintf("exited with code %d", code)
		}
		return
	}
	v.fail(fmt.Sprintf("exited with code %d", code))
}

// fail needs the lock. It plans the next start, later each time.
func (v *service) fail(why string) {
	v.state, v.failure = serviceFailed, why
	v.log.add(v.event("error", why))
	if !v.wanted || v.gone || v.sp.srv.ctx.Err() != nil {
		return
	}
	delay := min(firstRestart<<min(v.restarts, 5), lastRestart)
	v.retry = v.sp.srv.cfg.Clock.AfterFunc(delay, func() {
		v.mu.Lock()
		v.restarts++
		wanted := v.wanted
		v.mu.Unlock()
		if wanted {
			v.begin()
		}
	})
}

// stop ends the process and gives its code; it is false when nothing ran.
func (v *service) stop(patience time.Duration) (int, bool) {
	v.mu.Lock()
	v.wanted = false
	stop(&v.retry)
	if v.state != serviceRunning {
		v.mu.Unlock()
		return 0, false
	}
	v.state = serviceStopping
	pid, m, ended := v.pid, v.machine, v.ended
	v.log.add(v.event("stopping", ""))
	v.mu.Unlock()
	_ = m.Signal(pid, syscall.SIGTERM, true)
	late := make(chan struct{})
	t := v.sp.srv.cfg.Clock.AfterFunc(patience, func() { close(late) })
	defer t.Stop()
	select {
	case <-ended:
	case <-late:
		_ = m.Signal(pid, syscall.SIGKILL, true)
		<-ended
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.code, true
}

// lost is for a machine that has gone. It may be called under the Sprite's lock.
func (v *service) lost() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gone, v.wanted, v.state = true, false, serviceStopped
	stop(&v.retry)
	v.log.close()
}

func (v *service) signal(sig syscall.Signal) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state == serviceRunning && v.machine.Signal(v.pid, sig, true) == nil
}

// running may be called under the Sprite's lock.
func (v *service) running() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state == serviceRunning
}

func (sp *sprite) serviceLogPath(name string) string {
	return filepath.Join(sp.machineFolder(), ".sprite", "logs", "services", name+".log")
}

// appendServiceLog writes what a guest reads at /.sprite/logs/services. It is
// for reading by people: a failure costs a line, no more.
func (sp *sprite) appendServiceLog(name, kind string, line []byte) {
	path := sp.serviceLogPath(name)
	if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	flags := os.O_APPEND | os.O_CREATE | os.O_WRONLY
	if st, err := os.Stat(path); err == nil && st.Size() > maxServiceLog {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	_, _ = fmt.Fprintf(f, "%s [%s] %s", stamp(sp.srv.cfg.Clock.Now()), kind, line)
}
