package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
)

// Target is a Wakebus to measure.
type Target struct {
	// Bus is the caller's connection.
	Bus *bus.Bus
	// RedisURL is the lease's Redis; lease time is not measured without it.
	RedisURL string
	// SpritesURL and SpritesToken reach the Sprites API; direct execs are not measured without them.
	SpritesURL, SpritesToken string
	// Sync, Redis and Emulator name the configuration that the figures hold for.
	Sync, Redis string
	Emulator    EmulatorMode
	// RedisPID is the server's process, 0 when it is not ours.
	RedisPID int
	// Slots is how many jobs run at once, 0 when not known.
	Slots int
	// Traffic and Calls count what reached the broker and the Sprites API; nil when these are not ours.
	Traffic func() (bus.Traffic, error)
	Calls   func() int
}

// Config is what to measure. The zero value works.
type Config struct {
	// Jobs is how many jobs the throughput is taken from, 1 and up. Defaults to 2000.
	Jobs int
	// Paced is how many jobs the latency is taken from, sent at Rate. Defaults to a tenth of Jobs, 10 to 200.
	Paced int
	// Rate is how many of them are sent in a second. Defaults to 10.
	Rate float64
	// InFlight is how many jobs are under way at a time. Defaults to twice the target's slots, or 32.
	InFlight int
	// Payload is how many bytes each job prints. Defaults to 0, the command true.
	Payload int64
	// Output is how many bytes the job prints that output throughput is taken from. Defaults to 64 MiB.
	Output int64
	// Tenant is whose jobs they are. Defaults to bench.
	Tenant string
	// Word begins job ids and must be new to the target. Defaults to a random one.
	Word string
	// Progress gets a line before each phase. Defaults to nothing.
	Progress func(string)
}

func (c Config) withDefaults(t Target) Config {
	if c.Jobs == 0 {
		c.Jobs = 2000
	}
	if c.Paced == 0 {
		c.Paced = min(max(c.Jobs/10, 10), 200)
	}
	if c.Rate == 0 {
		c.Rate = 10
	}
	if c.InFlight == 0 {
		c.InFlight = 32
		if t.Slots > 0 {
			c.InFlight = 2 * t.Slots
		}
	}
	if c.Output == 0 {
		c.Output = 64 << 20
	}
	if c.Tenant == "" {
		c.Tenant = "bench"
	}
	if c.Word == "" {
		c.Word = fmt.Sprintf("b%08x", rand.Uint32())
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
		}
	}
	add(c.Jobs < 1 || c.Paced < 1, "%d jobs and %d paced ones, must be 1 or more", c.Jobs, c.Paced)
	add(c.Rate <= 0 || c.Rate > 1000, "%g paced jobs a second, must be above 0 and at most 1000", c.Rate)
	add(c.InFlight < 1, "%d in flight, must be 1 or more", c.InFlight)
	add(c.Payload < 0 || c.Output < 1, "payload of %d and output of %d bytes", c.Payload, c.Output)
	return errors.Join(errs...)
}

// argv is the command of each job.
func (c Config) argv() []string {
	if c.Payload == 0 {
		return []string{"true"}
	}
	return []string{"head", "-c", strconv.FormatInt(c.Payload, 10), "/dev/zero"}
}

// Measure runs all phases against a target and reports. It blocks until they are done, the first job that does not exit
// with 0, or ctx's end.
func Measure(ctx context.Context, t Target, cfg Config) (Report, error) {
	cfg = cfg.withDefaults(t)
	if err := cfg.validate(); err != nil {
		return Report{}, err
	}
	ForgetPeak()
	caller, err := NewCaller(ctx, t.Bus, cfg.Tenant, cfg.Word)
	if err != nil {
		return Report{}, err
	}
	defer caller.Close()
	m := &measurement{t: t, cfg: cfg, caller: caller, report: Report{
		Jobs: cfg.Jobs, InFlight: cfg.InFlight, Payload: cfg.Payload, Sync: t.Sync, Slots: t.Slots, Emulator: t.Emulator, Redis: t.Redis,
	}}
	for _, phase := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"warm up", m.warm}, {"latency", m.paced}, {"output latency", m.delay}, {"throughput", m.load}, {"output", m.output}, {"lease", m.lease},
	} {
		cfg.Progress(phase.name)
		if err := phase.run(ctx); err != nil {
			return m.report, fmt.Errorf("measure %s: %w", phase.name, err)
		}
	}
	if _, peak, err := Memory(os.Getpid()); err == nil {
		m.report.PeakRSSMiB = round(float64(peak)/(1<<20), 1)
	}
	return m.report, nil
}

// measurement is one Measure under way.
type measurement struct {
	t      Target
	cfg    Config
	caller *Caller
	report Report
}

// warm makes every conversation's sandbox, so that what follows is the way of a job that finds one.
func (m *measurement) warm(ctx context.Context) error {
	n := m.cfg.InFlight
	_, err := m.caller.Run(ctx, Load{Jobs: n, InFlight: min(n, 16), Conversations: n})
	return err
}

// paced sends one job at a time at a fixed rate, each beside a direct exec, so that both see the same machine.
func (m *measurement) paced(ctx context.Context) error {
	direct, err := m.direct(ctx, "p")
	if err != nil {
		return err
	}
	if direct != nil {
		defer func() { _ = direct.Close(ctx) }() // what it leaves is one idle Sprite of a known name
	}
	var started, result, straight, added []time.Duration
	tick := time.NewTicker(time.Duration(float64(time.Second) / m.cfg.Rate))
	defer tick.Stop()
	for range m.cfg.Paced {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s, err := m.caller.Exec(ctx, Job{Argv: m.cfg.argv(), Conversation: "c0", User: "u0"})
		if err != nil {
			return err
		}
		started, result = append(started, s.Started), append(result, s.Result)
		if direct == nil {
			continue
		}
		took, _, err := direct.Exec(ctx, m.cfg.argv()...)
		if err != nil {
			return err
		}
		straight, added = append(straight, took), append(added, s.Result-took)
	}
	m.report.EnqueueStarted, m.report.EnqueueResult = Distribute(started), Distribute(result)
	m.report.ExecDirect, m.report.Added = Distribute(straight), Distribute(added)
	return nil
}

// direct reaches the sandboxes past Wakebus; nil where that is not known how. word keeps its runs apart from another's.
func (m *measurement) direct(ctx context.Context, word string) (*Direct, error) {
	if m.t.SpritesURL == "" || m.t.SpritesToken == "" {
		return nil, nil
	}
	return NewDirect(ctx, m.t.SpritesURL, m.t.SpritesToken, "wakebus-bench-direct", m.cfg.Word+word)
}

// delayRuns is how many commands the delay of output is taken from, at most.
const delayRuns = 100

// delay has commands print the time, and compares it with when it was heard: by the caller of a job, and straight. It
// needs a sandbox that has this machine's clock.
func (m *measurement) delay(ctx context.Context) error {
	if m.t.Emulator == EmulatorNone {
		return nil
	}
	direct, err := m.direct(ctx, "d")
	if direct == nil || err != nil {
		return err
	}
	defer func() { _ = direct.Close(ctx) }() // as above
	argv := []string{"date", "+%s%N"}
	var heard, added []time.Duration
	for range min(m.cfg.Paced, delayRuns) {
		s, err := m.caller.Exec(ctx, Job{Argv: argv, Conversation: "c0", User: "u0"})
		if err != nil {
			return err
		}
		text, at, err := direct.Hear(ctx, argv...)
		if err != nil {
			return err
		}
		through, err := since(s.Text, s.First)
		if err != nil {
			return err
		}
		straight, err := since(text, at)
		if err != nil {
			return err
		}
		heard, added = append(heard, through), append(added, through-straight)
	}
	m.report.OutputDelay, m.report.AddedOutput = Distribute(heard), Distribute(added)
	return nil
}

// since is how long before at the time was that a command printed in nanoseconds.
func since(text []byte, at time.Time) (time.Duration, error) {
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the time that a command printed: %w", err)
	}
	return at.Sub(time.Unix(0, ns)), nil
}

// counts is what is counted around the load.
type counts struct {
	stored  bus.Stored
	traffic bus.Traffic
	scripts int64
	told    bool
	calls   int
	redis   time.Duration
}

func (m *measurement) count(ctx context.Context) (c counts, err error) {
	if c.stored, err = m.t.Bus.Stored(ctx); err != nil {
		return c, err
	}
	if m.t.Traffic != nil {
		if c.traffic, err = m.t.Traffic(); err != nil {
			return c, err
		}
	}
	if m.t.RedisURL != "" {
		c.scripts, c.told = redisScripts(ctx, m.t.RedisURL)
	}
	if m.t.RedisPID != 0 {
		if c.redis, err = ProcessCPU(m.t.RedisPID); err != nil {
			return c, err
		}
	}
	if m.t.Calls != nil {
		c.calls = m.t.Calls()
	}
	return c, nil
}

// load keeps the target busy and counts what each job cost.
func (m *measurement) load(ctx context.Context) error {
	before, err := m.count(ctx)
	if err != nil {
		return err
	}
	s, err := m.caller.Run(ctx, Load{Jobs: m.cfg.Jobs, InFlight: m.cfg.InFlight, Argv: m.cfg.argv()})
	if err != nil {
		return err
	}
	after, err := m.count(ctx)
	if err != nil {
		return err
	}
	n, r := float64(m.cfg.Jobs), &m.report
	r.JobsPerSecond = round(s.PerSecond(), 1)
	r.LoadResult = Distribute(s.Result)
	r.CPUMsPerJob = round(s.CPU.Seconds()*1000/n, 3)
	r.RedisCPUMsPerJob = round((after.redis-before.redis).Seconds()*1000/n, 3)
	r.MessagesPerJob = round(float64(after.stored.Messages-before.stored.Messages)/n, 2)
	r.BytesPerJob = round((float64(after.stored.Bytes)-float64(before.stored.Bytes))/n, 0)
	r.NATSOpsPerJob = round(float64(after.traffic.InMsgs-before.traffic.InMsgs+after.traffic.OutMsgs-before.traffic.OutMsgs)/n, 2)
	r.SpritesCallsPerJob = round(float64(after.calls-before.calls)/n, 2)
	if before.told && after.told {
		r.RedisCallsPerJob = round(float64(after.scripts-before.scripts)/n, 2)
	}
	return nil
}

// output streams much of it through one job.
func (m *measurement) output(ctx context.Context) error {
	rate, err := m.caller.Throughput(ctx, m.cfg.Output)
	m.report.OutputMBPerSecond = round(rate, 1)
	return err
}

// Throughput runs one job that prints that many bytes and returns MB/s (10^6) from its start to its result. Every byte
// must have come live.
func (c *Caller) Throughput(ctx context.Context, size int64) (float64, error) {
	s, err := c.Exec(ctx, Job{
		Argv: []string{"head", "-c", strconv.FormatInt(size, 10), "/dev/zero"}, Conversation: "c0", User: "u0", StreamBytes: size,
	})
	if err != nil {
		return 0, err
	}
	if s.Bytes != size {
		return 0, fmt.Errorf("%d of %d bytes of output came, %d events were dropped", s.Bytes, size, c.tap.Dropped())
	}
	return float64(size) / 1e6 / (s.Result - s.Started).Seconds(), nil
}

// leasePairs is how many leases are taken and given back.
const leasePairs = 500

// lease times one lease of three scopes, taken and given back.
func (m *measurement) lease(ctx context.Context) error {
	if m.t.RedisURL == "" {
		return nil
	}
	leases, err := lease.Open(ctx, lease.Config{URL: m.t.RedisURL, Quarantine: -1})
	if err != nil {
		return err
	}
	defer func() { _ = leases.Close() }() // nothing is held any more
	var took []time.Duration
	for i := range min(leasePairs, m.cfg.Jobs) {
		began := time.Now()
		l, err := leases.Acquire(ctx, lease.Request{
			ID: m.cfg.Tenant + "." + m.cfg.Word + "-lease-" + strconv.Itoa(i) + ".0.0", Kind: lease.KindExec, Tenant: m.cfg.Tenant, User: "u0",
			Scopes: []lease.Scope{lease.UserScope(lease.KindExec, m.cfg.Tenant, "bench", 1000),
				lease.TenantScope(lease.KindExec, m.cfg.Tenant, 1_000_000), lease.GlobalScope(1_000_000)},
		})
		if err != nil {
			return err
		}
		if _, err := l.Release(ctx); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	m.report.Lease = Distribute(took)
	return nil
}
