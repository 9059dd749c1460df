package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func TestMain(m *testing.M) {
	emulator.MaybeInit()
	goleak.VerifyTestMain(m)
}

// rig is a broker, a Redis and an environment in which command lines run as they would in a process of their own.
type rig struct {
	t     *testing.T
	bus   *bus.Bus
	redis *miniredis.Miniredis
	env   map[string]string
	dir   string

	mu      sync.Mutex // protects signals
	signals chan<- os.Signal
	// listening is closed when a command has asked for signals.
	listening chan struct{}
	once      sync.Once
}

func newRig(t *testing.T, options ...func(*bus.Config)) *rig {
	t.Helper()
	server, err := bus.StartServer(t.Context(), bus.ServerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := bus.Config{URL: server.URL()}
	for _, option := range options {
		option(&cfg)
	}
	b, err := bus.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	redis := miniredis.RunT(t)
	return &rig{t: t, bus: b, redis: redis, dir: t.TempDir(), listening: make(chan struct{}), env: map[string]string{
		"NATS_URL": server.URL(), "REDIS_URL": "redis://" + redis.Addr(), "AUTHZ_MODE": "dev", "USER": "olga",
		"SPRITES_API_URL": "http://127.0.0.1:1",
	}}
}

// ended is how a command line ended.
type ended struct {
	code     int
	out, err string
}

// run runs a command line to its end.
func (r *rig) run(args ...string) ended { return r.runIn("", args...) }

// runIn runs a command line with a standard input.
func (r *rig) runIn(in string, args ...string) ended {
	var out, err lockedBuffer
	// Nothing here takes long; a command that hangs must say which one it was.
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	code := run(ctx, r.cli(strings.NewReader(in), &out, &err), args)
	return ended{code, out.String(), err.String()}
}

func (r *rig) cli(in *strings.Reader, out, err interface{ Write([]byte) (int, error) }) *cli {
	return &cli{
		in: in, out: out, err: err, dir: r.dir, now: time.Now, grace: 200 * time.Millisecond, farewell: time.Minute,
		lookup: func(name string) (string, bool) { v, ok := r.env[name]; return v, ok },
		notify: func(c chan<- os.Signal, _ ...os.Signal) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.signals = c
			r.once.Do(func() { close(r.listening) })
		},
		unnotify: func(chan<- os.Signal) {},
	}
}

// interrupt is Ctrl-C.
func (r *rig) interrupt() {
	<-r.listening
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signals <- os.Interrupt
}

// lockedBuffer may be read while a command writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// player is a worker that does what a command's words say, so that each ending can be had at will: out:TEXT, err:TEXT,
// exit:N, wait (for a cancel), and any other outcome by its name.
type player struct {
	r *rig
	// running gets a job's id once its words up to a wait are done.
	running chan string
}

func (r *rig) play() *player {
	r.t.Helper()
	p := &player{r: r, running: make(chan string, 16)}
	pool, err := bus.NewPool(r.bus, bus.PoolConfig{PullWait: 50 * time.Millisecond}, p.handle)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	})
	return p
}

func (p *player) handle(ctx context.Context, d *bus.Delivery) {
	key, ok := d.Key()
	if !ok {
		return
	}
	var req bus.ExecRequest
	if !d.Replay && d.Kind == bus.KindExec {
		parsed, err := bus.ParseExec(d.Data)
		if err != nil {
			p.r.t.Errorf("the worker refuses what the command line let through: %v", err)
			return
		}
		req = *parsed
	}
	chain, err := p.r.bus.Claim(ctx, key, "player.1", bus.Claim{Record: bus.Record{Queued: d.Queued, Kind: d.Kind}})
	var conflict *bus.ConflictError
	if errors.As(err, &conflict) {
		_ = d.Ack(ctx)
		return
	}
	if err != nil {
		return // the test ended
	}
	words := req.Argv
	if req.Shell != "" {
		words = strings.Split(req.Shell, "|")
	}
	p.must(chain.Started(ctx, bus.StartedBody{}))
	result := p.perform(ctx, chain, key, words)
	if d.Replay && strings.HasPrefix(key.Job, "bad") {
		result = bus.ResultBody{Outcome: plan.OutcomeFailed, Reason: plan.ReasonProvisionFailed}
	}
	if d.Kind == bus.KindEnd {
		result = bus.ResultBody{Outcome: plan.OutcomeEnded, Plan: plan.ActionNoop}
	}
	if chain.Result(ctx, result) != nil {
		return // the test ended
	}
	if d.Replay {
		_, err := p.r.bus.EndReplay(ctx, bus.LetterID{Tenant: key.Tenant, Job: key.Job}, key.Run, result)
		p.must(err)
	}
	_ = d.Ack(ctx)
}

func (p *player) perform(ctx context.Context, chain *bus.Chain, key bus.RunKey, words []string) bus.ResultBody {
	code := 0
	for _, word := range words {
		verb, text, _ := strings.Cut(word, ":")
		switch verb {
		case "out":
			p.must(chain.Write(ctx, bus.EventStdout, []byte(text)))
		case "err":
			p.must(chain.Write(ctx, bus.EventStderr, []byte(text)))
		case "exit":
			code, _ = strconv.Atoi(text)
		case "wait":
			mark := p.awaitCancel(ctx, key)
			return bus.ResultBody{Outcome: plan.OutcomeCanceled, By: mark.By}
		case "", "true":
		default:
			return bus.ResultBody{Outcome: plan.Outcome(verb), Reason: plan.Reason(text), LimitMs: 1000}
		}
	}
	return bus.ResultBody{Outcome: plan.OutcomeExited, ExitCode: &code}
}

func (p *player) must(err error) {
	if err != nil {
		p.r.t.Errorf("the worker of the test: %v", err)
	}
}

func (p *player) awaitCancel(ctx context.Context, key bus.RunKey) bus.CancelMark {
	marks := make(chan bus.CancelMark, 4)
	watch, err := p.r.bus.WatchCancels(ctx, func(m bus.CancelMark) {
		if m.Job == key.Job {
			select {
			case marks <- m:
			default:
			}
		}
	})
	if err != nil {
		return bus.CancelMark{}
	}
	defer watch.Close()
	p.running <- key.Job
	select {
	case m := <-marks:
		return m
	case <-ctx.Done():
		return bus.CancelMark{}
	}
}

// lines decodes JSON lines.
func lines[T any](t *testing.T, text string) []T {
	t.Helper()
	var all []T
	for line := range strings.Lines(text) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("no JSON: %q: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

func (e ended) want(t *testing.T, what string, code int, out string) {
	t.Helper()
	if e.code != code || out != "*" && e.out != out {
		t.Errorf("%s: code %d, out %q, err %q; want code %d, out %q", what, e.code, e.out, e.err, code, out)
	}
}

func (e ended) String() string { return fmt.Sprintf("code %d\nout %s\nerr %s", e.code, e.out, e.err) }

// runPool runs a pool until the returned function is called.
func runPool(t *testing.T, pool *bus.Pool) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
