package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// Config configures a demo. The zero value works.
type Config struct {
	// Out gets a line per step and the summary. Defaults to nothing.
	Out io.Writer
	// Verbose shows the events of each step.
	Verbose bool
	// Dir keeps the instance's folder. Defaults to a temporary one that is removed.
	Dir string
	// Log is the workers' log. Defaults to none.
	Log *telemetry.Log
	// Emulator edits the emulator's configuration. Defaults to nothing.
	Emulator func(*emulator.Config)
}

// ErrStep says that a step did not hold.
var ErrStep = errors.New("a step of the demo did not hold")

// step is one thing that must hold.
type step struct {
	name string
	run  func(ctx context.Context) (string, error)
}

// stepWithin bounds one step; the slowest takes a few seconds.
const stepWithin = 25 * time.Second

// patience is how long the demo's worker waits for a rate limited create.
const patience = "2s"

type demo struct {
	cfg  Config
	inst *instance.Instance
	web  *caller
	conv string
	home string // the conversation's Sprite
}

// Run starts an instance, walks through the steps, prints each with its timing, and returns nil only if all of them
// held. It takes less than 30 s.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	inst, err := instance.Start(ctx, instance.Config{
		Dir: cfg.Dir, Log: cfg.Log, Emulator: cfg.Emulator,
		Settings: map[string]string{"WAKEBUS_CREATE_PATIENCE": patience},
	})
	if err != nil {
		return fmt.Errorf("start the demo's instance: %w", err)
	}
	d := &demo{cfg: cfg, inst: inst, conv: "demo"}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unwatch := make(chan struct{})
	defer close(unwatch)
	go func() {
		select {
		case <-inst.Failed():
			cancel(errors.New("the demo's worker has ended"))
		case <-unwatch:
		}
	}()
	err = d.walk(ctx)
	return errors.Join(err, inst.Close())
}

func (d *demo) walk(ctx context.Context) error {
	client, err := d.inst.Connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	d.web = &caller{bus: client, name: "demo"}
	steps := []step{
		{"a. a first command: its sandbox is created, locked down and warmed up; output streams", d.first},
		{"b. a second command finds the first one's file", d.second},
		{"c. the sandbox slept and its first wake is dropped: the command runs once", d.asleep},
		{"d1. a command that fails keeps its own exit code", d.nonZero},
		{"d2. a command over its time limit is really stopped", d.timeout},
		{"d3. a second command at once is over the free plan's limit", d.overLimit},
		{"e. running code is switched off: denied, and nothing is called", d.switchedOff},
		{"f1. a creation that is rate limited past its patience becomes a dead letter", d.rateLimited},
		{"f2. an operator replays it: it succeeds, seen by the same subscriber", d.replayed},
		{"g. the session ends: its sandbox is gone", d.end},
	}
	held := 0
	for _, s := range steps {
		start := time.Now()
		sctx, cancel := context.WithTimeout(ctx, stepWithin)
		detail, err := s.run(sctx)
		cancel()
		took := time.Since(start).Round(time.Millisecond)
		if err != nil {
			fmt.Fprintf(d.cfg.Out, "FAIL  %-88s %8s  %v\n", s.name, took, err)
			continue
		}
		held++
		fmt.Fprintf(d.cfg.Out, "ok    %-88s %8s  %s\n", s.name, took, detail)
	}
	fmt.Fprintf(d.cfg.Out, "demo: %d of %d steps held\n", held, len(steps))
	if held < len(steps) {
		return ErrStep
	}
	return nil
}

// expect collects what does not hold.
type expect struct{ wrong []string }

func (x *expect) that(ok bool, format string, args ...any) {
	if !ok {
		x.wrong = append(x.wrong, fmt.Sprintf(format, args...))
	}
}

func (x *expect) done() error {
	if len(x.wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(x.wrong, "; "))
}

func (d *demo) run(ctx context.Context, req bus.ExecRequest) (*seen, *expect, error) {
	if req.ConversationID == "" {
		req.ConversationID = d.conv
	}
	s, err := d.web.exec(ctx, req, "")
	x := &expect{}
	if err != nil {
		return nil, x, err
	}
	if d.cfg.Verbose {
		fmt.Fprintf(d.cfg.Out, "      %s: %v\n      stdout %q stderr %q\n", s.job, s.events, s.stdout.String(), s.stderr.String())
	}
	x.that(!s.holes, "events of %s have holes", s.job)
	return s, x, nil
}

func exited(x *expect, s *seen, code int) {
	x.that(s.result.Outcome == plan.OutcomeExited && s.result.ExitCode != nil && *s.result.ExitCode == code, "%s instead of exited %d (%s)", s.says(), code, s.result.Message)
}

func (d *demo) first(ctx context.Context) (string, error) {
	s, x, err := d.run(ctx, bus.ExecRequest{Shell: "echo to stdout; echo to stderr >&2; echo kept > kept; sleep 0.3; echo done"})
	if err != nil {
		return "", err
	}
	exited(x, s, 0)
	x.that(s.stdout.String() == "to stdout\ndone\n", "stdout is %q", s.stdout.String())
	x.that(s.stderr.String() == "to stderr\n", "stderr is %q", s.stderr.String())
	x.that(s.result.Plan == plan.ActionCreate && s.result.Fresh, "plan %s, fresh %v", s.result.Plan, s.result.Fresh)
	x.that(s.firstOut > 0 && s.total-s.firstOut > 200*time.Millisecond, "output came only with the result")
	d.home = s.result.Sandbox
	x.that(d.inst.Emulator().Count("sprite.create", d.home) == 1, "the emulator saw %d creates", d.inst.Emulator().Count("sprite.create", d.home))
	x.that(d.inst.Emulator().Count("policy.network.set", d.home) >= 1, "no lockdown")
	return fmt.Sprintf("%s, plan %s, first output after %s", s.says(), s.result.Plan, s.firstOut.Round(time.Millisecond)), x.done()
}

func (d *demo) second(ctx context.Context) (string, error) {
	s, x, err := d.run(ctx, bus.ExecRequest{Argv: []string{"cat", "kept"}})
	if err != nil {
		return "", err
	}
	exited(x, s, 0)
	x.that(s.stdout.String() == "kept\n", "stdout is %q", s.stdout.String())
	x.that(s.result.Plan == plan.ActionResume, "plan %s", s.result.Plan)
	return fmt.Sprintf("%s, plan %s, started after %s", s.says(), s.result.Plan, s.started.Round(time.Millisecond)), x.done()
}

func (d *demo) asleep(ctx context.Context) (string, error) {
	em := d.inst.Emulator()
	if err := em.Sleep(d.home); err != nil {
		return "", err
	}
	if err := em.AddFaults(emulator.Fault{Route: "exec.ws", Sprite: d.home, Asleep: true, Times: 1, Do: emulator.FaultDrop}); err != nil {
		return "", err
	}
	before := em.Count("exec.ws", d.home)
	s, x, err := d.run(ctx, bus.ExecRequest{Shell: "echo ran >> count; wc -l < count"})
	if err != nil {
		return "", err
	}
	exited(x, s, 0)
	x.that(strings.TrimSpace(s.stdout.String()) == "1", "it ran %s times", strings.TrimSpace(s.stdout.String()))
	x.that(s.result.Woke == "warm", "woke is %q", s.result.Woke)
	dials := em.Count("exec.ws", d.home) - before
	x.that(dials >= 2, "the emulator saw %d dials, so none was dropped", dials)
	return fmt.Sprintf("%s, woke %s, %d dials, ran once", s.says(), s.result.Woke, dials), x.done()
}

func (d *demo) nonZero(ctx context.Context) (string, error) {
	s, x, err := d.run(ctx, bus.ExecRequest{Shell: "exit 42"})
	if err != nil {
		return "", err
	}
	exited(x, s, 42)
	return s.says(), x.done()
}

func (d *demo) timeout(ctx context.Context) (string, error) {
	s, x, err := d.run(ctx, bus.ExecRequest{Shell: "sleep 1234 & echo $! > pid; wait", TimeoutMs: 700})
	if err != nil {
		return "", err
	}
	x.that(s.result.Outcome == plan.OutcomeTimedOut && s.result.Stopped == "confirmed", "%s, stopped %q", s.says(), s.result.Stopped)
	x.that(d.inst.Emulator().Count("exec.kill", d.home) >= 1, "no kill reached the sandbox")
	alive, more, err := d.run(ctx, bus.ExecRequest{Shell: "kill -0 $(cat pid) 2>/dev/null && echo alive || echo gone"})
	if err != nil {
		return "", err
	}
	more.that(alive.stdout.String() == "gone\n", "its child is %q", alive.stdout.String())
	return fmt.Sprintf("%s after %s", s.says(), s.total.Round(time.Millisecond)), errors.Join(x.done(), more.done())
}

func (d *demo) overLimit(ctx context.Context) (string, error) {
	long, err := d.web.publish(ctx, &bus.ExecRequest{ConversationID: d.conv, Shell: "until [ -e go ]; do sleep 0.05; done"}, "")
	if err != nil {
		return "", err
	}
	defer long.reader.Close()
	if err := long.until(ctx, bus.EventStarted); err != nil {
		return "", err
	}
	s, x, err := d.run(ctx, bus.ExecRequest{Argv: []string{"true"}})
	if err != nil {
		return "", err
	}
	x.that(s.result.Reason == plan.ReasonConcurrencyLimit && s.result.Retryable, "%s", s.says())
	if err := d.web.bus.MarkCancel(ctx, bus.CancelTarget{Tenant: tenant, Job: long.seen.job}, bus.CancelRequest{By: "demo"}, nil); err != nil {
		return "", err
	}
	first, err := long.wait(ctx)
	if err != nil {
		return "", err
	}
	x.that(first.result.Outcome == plan.OutcomeCanceled, "the first one %s", first.says())
	return fmt.Sprintf("%s; the first one, canceled by us: %s", s.says(), first.says()), x.done()
}

// switchedOff starts a second deployment whose switch is off.
func (d *demo) switchedOff(ctx context.Context) (string, error) {
	off, err := instance.Start(ctx, instance.Config{Log: d.cfg.Log, Emulator: d.cfg.Emulator, Settings: map[string]string{"CODE_EXECUTION_ENABLED": "false"}})
	if err != nil {
		return "", err
	}
	detail, err := d.whileOff(ctx, off)
	return detail, errors.Join(err, off.Close())
}

func (d *demo) whileOff(ctx context.Context, off *instance.Instance) (string, error) {
	client, err := off.Connect(ctx)
	if err != nil {
		return "", err
	}
	defer client.Close()
	web := &caller{bus: client, name: "off"}
	s, err := web.exec(ctx, bus.ExecRequest{ConversationID: d.conv, Argv: []string{"true"}}, "")
	if err != nil {
		return "", err
	}
	x := &expect{}
	x.that(s.result.Outcome == plan.OutcomeDenied && s.result.Reason == plan.ReasonKillSwitchOff, "%s", s.says())
	x.that(len(off.Emulator().Calls()) == 0, "the emulator saw %d calls", len(off.Emulator().Calls()))
	leases := 0
	for _, key := range off.Redis().Keys() {
		if strings.Contains(key, ":z:exec:") || strings.Contains(key, ":l:"+tenant+".") {
			leases++
		}
	}
	x.that(leases == 0, "redis holds %d lease keys", leases)
	return fmt.Sprintf("%s, 0 calls to Sprites, 0 lease keys", s.says()), x.done()
}

func (d *demo) rateLimited(ctx context.Context) (string, error) {
	limit := emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 429,
		Body: `{"error":"sprite_creation_rate_limited","message":"slow down","limit":10,"window_seconds":60,"retry_after_seconds":1}`}
	if err := d.inst.Emulator().AddFaults(limit); err != nil {
		return "", err
	}
	p, err := d.web.publish(ctx, &bus.ExecRequest{JobID: d.web.id(), ConversationID: "limited", Shell: "echo $GREETING; cat", Env: map[string]string{"GREETING": "hello"}, Stdin: []byte("from stdin\n")}, "")
	if err != nil {
		return "", err
	}
	defer p.reader.Close()
	s, err := p.wait(ctx)
	if err != nil {
		return "", err
	}
	d.web.name = s.job // remembered for the replay
	x := &expect{}
	x.that(s.result.Outcome == plan.OutcomeFailed && s.result.Reason == plan.ReasonProvisionRateLimited, "%s (%s)", s.says(), s.result.Message)
	x.that(s.result.DeadLetter == tenant+"/"+s.job, "dead letter is %q", s.result.DeadLetter)
	letter, err := d.letter(ctx, bus.LetterID{Tenant: tenant, Job: s.job})
	if err != nil {
		return "", err
	}
	x.that(letter.State == bus.LetterDead && letter.Class == bus.ClassProvisionRateLimited, "the letter is %s, %s", letter.State, letter.Class)
	d.inst.Emulator().ClearFaults()
	return fmt.Sprintf("%s after %d attempts, dead letter %s", s.says(), s.result.Timing.Attempts, s.result.DeadLetter), x.done()
}

// letter waits for the dead letter, which is stored right after the result that names it.
func (d *demo) letter(ctx context.Context, id bus.LetterID) (*bus.Letter, error) {
	for {
		l, err := d.web.bus.Letter(ctx, id)
		if !errors.Is(err, bus.ErrNoLetter) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (d *demo) replayed(ctx context.Context) (string, error) {
	job := d.web.name
	reader, err := d.web.bus.Subscribe(ctx, tenant, job, bus.ReadFollow())
	if err != nil {
		return "", err
	}
	defer reader.Close()
	p := &pending{reader: reader, seen: &seen{job: job}, sent: time.Now()}
	if err := p.until(ctx, bus.EventResult); err != nil {
		return "", err
	}
	id := bus.LetterID{Tenant: tenant, Job: job}
	entry, err := d.web.bus.MarkReplaying(ctx, id, bus.ReplayOptions{By: "demo"})
	if err != nil {
		return "", err
	}
	grant, err := json.Marshal(map[string]string{"iss": "ops", "sub": "demo", "job": job})
	if err != nil {
		return "", err
	}
	if err := d.web.bus.ParkReplay(ctx, entry, bus.Replay{At: time.Now(), Deadline: time.Now().Add(time.Minute), Grant: string(grant)}); err != nil {
		return "", err
	}
	p.seen = &seen{job: job}
	s, err := p.wait(ctx)
	if err != nil {
		return "", err
	}
	x := &expect{}
	exited(x, s, 0)
	x.that(s.stdout.String() == "hello\nfrom stdin\n", "stdout is %q", s.stdout.String())
	return fmt.Sprintf("run %d: %s, with the original's env and stdin", entry.Run, s.says()), x.done()
}

func (d *demo) end(ctx context.Context) (string, error) {
	d.web.name = "end"
	job := d.web.id()
	body, err := json.Marshal(bus.EndRequest{V: 1, JobID: job, ConversationID: d.conv})
	if err != nil {
		return "", err
	}
	p, err := d.web.send(ctx, bus.KindEnd, job, body, "")
	if err != nil {
		return "", err
	}
	defer p.reader.Close()
	s, err := p.wait(ctx)
	if err != nil {
		return "", err
	}
	x := &expect{}
	x.that(s.result.Outcome == plan.OutcomeEnded && s.result.Plan == plan.ActionTeardown, "%s, plan %s", s.says(), s.result.Plan)
	for _, sp := range d.inst.Emulator().Sprites() {
		x.that(sp.Name != d.home, "the sandbox still exists")
	}
	return fmt.Sprintf("%s, plan %s", s.says(), s.result.Plan), x.done()
}
