package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// workerVariable names the file that says what a worker process is to do.
const workerVariable = "WAKEBUS_RIG_WORKER"

// Spec says how a worker process is started.
type Spec struct {
	// Env are its settings.
	Env map[string]string `json:"env"`
	// ID is its name. Defaults to a random one.
	ID string `json:"id,omitempty"`
	// AckWait is how long a silent owner keeps a request. Defaults to the bus's own.
	AckWait time.Duration `json:"ack_wait,omitempty"`
	// Stops says at which step a job is stopped for ever, by the beginning of its id.
	Stops map[string]job.Step `json:"stops,omitempty"`
	// Fails says which step of a job always fails, by the beginning of its id.
	Fails map[string]job.Step `json:"fails,omitempty"`
	// LogFile takes its log. Defaults to none.
	LogFile string `json:"log_file,omitempty"`
}

// MaybeWorker must stand in TestMain: a process that Start has made runs a worker here and does not return.
func MaybeWorker() {
	path := os.Getenv(workerVariable)
	if path == "" {
		return
	}
	if err := work(path); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	log := io.Discard
	if spec.LogFile != "" {
		f, err := os.OpenFile(spec.LogFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		log = f
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	app, err := NewApp(ctx, spec, log)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return app.Run(ctx)
}

// NewApp makes the worker of a spec in this process, which logs to log.
func NewApp(ctx context.Context, spec Spec, log io.Writer) (*job.App, error) {
	settings, _, err := config.Load(config.RoleWorker, func(k string) (string, bool) { v, ok := spec.Env[k]; return v, ok }, nil)
	if err != nil {
		return nil, err
	}
	return job.NewApp(ctx, settings, job.AppConfig{
		Log: telemetry.NewLog(telemetry.LogConfig{Output: log, Level: "debug", Format: telemetry.LogJSON}), AckWait: spec.AckWait, Quarantine: -1,
		Worker: func(c *job.Config) { c.WorkerID, c.Step = spec.ID, spec.step },
	})
}

// step blocks for ever, after saying so, or fails, where the spec says so.
func (s *Spec) step(_ context.Context, at job.Step, key bus.RunKey) error {
	for prefix, step := range s.Stops {
		if step == at && strings.HasPrefix(key.Job, prefix) {
			fmt.Println("stopped", key.Job)
			select {}
		}
	}
	for prefix, step := range s.Fails {
		if step == at && strings.HasPrefix(key.Job, prefix) {
			return errFails
		}
	}
	return nil
}

// errFails is what a step fails with that the spec lets fail.
var errFails = errors.New("this step is to fail")

// Worker is a worker process.
type Worker struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and its lines are read
	err  error         // set before done is closed

	mu      sync.Mutex // protects what follows
	stopped map[string]bool
	failure string
	changed chan struct{} // closed and replaced with each line
	ready   bool
}

// Start starts a worker process and returns when it takes requests. End it with Kill or Terminate.
func Start(ctx context.Context, dir string, spec Spec) (*Worker, error) {
	f, err := os.CreateTemp(dir, "worker-*.json")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(json.NewEncoder(f).Encode(spec), f.Close()); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &Worker{done: make(chan struct{}), stopped: map[string]bool{}, changed: make(chan struct{})}
	w.cmd = exec.Command(self)
	w.cmd.Env = []string{workerVariable + "=" + f.Name(), "PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}
	w.cmd.Stderr = os.Stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go w.read(out)
	err = w.until(ctx, func() bool { return w.ready })
	if err != nil {
		w.Kill()
		return nil, fmt.Errorf("start worker process: %w", err)
	}
	return w, nil
}

// read keeps what the process says and reaps it; done tells its owner that it has ended.
func (w *Worker) read(out io.Reader) {
	defer close(w.done)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		w.mu.Lock()
		switch word {
		case "ready":
			w.ready = true
		case "stopped":
			w.stopped[rest] = true
		case "failed:":
			w.failure = rest
		}
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
	}
	w.err = w.cmd.Wait()
}

// until waits for a condition, which is looked at under the lock with every line.
func (w *Worker) until(ctx context.Context, holds func() bool) error {
	for {
		w.mu.Lock()
		ok, changed, failure := holds(), w.changed, w.failure
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-w.done:
			return fmt.Errorf("the worker process ended: %s", failure)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Stopped waits until the process has stopped at the steps of all these jobs.
func (w *Worker) Stopped(ctx context.Context, jobs ...string) error {
	err := w.until(ctx, func() bool {
		for _, j := range jobs {
			if !w.stopped[j] {
				return false
			}
		}
		return true
	})
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		var missing []string
		for _, j := range jobs {
			if !w.stopped[j] {
				missing = append(missing, j)
			}
		}
		return fmt.Errorf("not stopped: %v: %w", missing, err)
	}
	return nil
}

// Kill ends the process at once and waits for its end. It may be called more than once.
func (w *Worker) Kill() {
	_ = w.cmd.Process.Kill() // fails only when it has ended
	<-w.done
}

// Freeze stops the process where it is; Thaw lets it go on.
func (w *Worker) Freeze() error { return w.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (w *Worker) Thaw() error { return w.cmd.Process.Signal(syscall.SIGCONT) }

// Terminate asks for a drain and waits for the process's end; nil means that it ended with code 0.
func (w *Worker) Terminate(ctx context.Context) error {
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		<-w.done
		return fmt.Errorf("the worker process had ended by itself (%s): %w", w.failure, errors.Join(err, w.err))
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return fmt.Errorf("the worker process does not end: %w", context.Cause(ctx))
	}
}

// Done is closed when the process has ended.
func (w *Worker) Done() <-chan struct{} { return w.done }
