package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// EmulatorMode is what stands behind the Sprites API.
type EmulatorMode string

// The closed set of modes.
const (
	// EmulatorInstant answers a few commands without starting a process, so that Wakebus is what is measured.
	EmulatorInstant EmulatorMode = "instant"
	// EmulatorReal starts a process for each command, under the guard.
	EmulatorReal EmulatorMode = "real"
	// EmulatorNone is a Sprites API that is not ours.
	EmulatorNone EmulatorMode = "none"
)

// RigConfig configures a Rig. The zero value works.
type RigConfig struct {
	// Workers is how many workers run in this process; negative is none. Defaults to 1.
	Workers int
	// Slots is how many jobs each worker runs at once, 1 to 4096. Defaults to 32.
	Slots int
	// Emulator is EmulatorInstant or EmulatorReal. Defaults to EmulatorInstant.
	Emulator EmulatorMode
	// SyncAlways makes broker and Redis write through to the disk before they answer. Defaults to false.
	SyncAlways bool
	// Backlog is how many requests of a tenant may be queued. Defaults to 1,000,000.
	Backlog int
	// InMemoryRedis takes the Redis in this process even where redis-server is installed. Defaults to false.
	InMemoryRedis bool
}

func (c RigConfig) withDefaults() RigConfig {
	if c.Workers == 0 {
		c.Workers = 1
	}
	if c.Slots == 0 {
		c.Slots = 32
	}
	if c.Emulator == "" {
		c.Emulator = EmulatorInstant
	}
	if c.Backlog == 0 {
		c.Backlog = 1_000_000
	}
	return c
}

func (c RigConfig) validate() error {
	var errs []error
	if c.Slots < 1 || c.Slots > 4096 {
		errs = append(errs, fmt.Errorf("%w: %d slots, must be 1 to 4096", ErrConfig, c.Slots))
	}
	if c.Workers > 64 {
		errs = append(errs, fmt.Errorf("%w: %d workers, at most 64", ErrConfig, c.Workers))
	}
	if c.Emulator != EmulatorInstant && c.Emulator != EmulatorReal {
		errs = append(errs, fmt.Errorf("%w: emulator %q, must be instant or real", ErrConfig, c.Emulator))
	}
	return errors.Join(errs...)
}

// Rig is a whole Wakebus of our own: broker, Redis, Sprites emulator and workers, on loopback.
type Rig struct {
	cfg   RigConfig
	redis *Redis // nil for the one in this process
	inst  *instance.Instance
	bus   *bus.Bus
}

// StartRig starts everything and returns when it answers. The caller must call Close.
func StartRig(ctx context.Context, cfg RigConfig) (*Rig, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := &Rig{cfg: cfg}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) start(ctx context.Context) error {
	ic := instance.Config{
		Workers: r.cfg.Workers, SyncAlways: r.cfg.SyncAlways, Settings: r.settings(),
		Emulator: func(e *emulator.Config) {
			e.Instant = r.cfg.Emulator == EmulatorInstant
			// Falling asleep and waking are the platform's; a measurement of ours must not hold them.
			e.Idle, e.Linger = 24*time.Hour, -1
		},
	}
	if !r.cfg.InMemoryRedis {
		redis, err := StartRedis(ctx, r.cfg.SyncAlways)
		if err != nil && !errors.Is(err, ErrNoRedis) {
			return err
		}
		if err == nil {
			r.redis, ic.RedisURL = redis, redis.URL()
		}
	}
	var err error
	if r.inst, err = instance.Start(ctx, ic); err != nil {
		return err
	}
	r.bus, err = r.inst.Connect(ctx)
	return err
}

// settings lift every limit that would deny a job, and make queue and journal large enough for a million of them: what is
// measured is the way of one that is let through.
func (r *Rig) settings() map[string]string {
	const plenty = "1000000"
	return map[string]string{
		"WAKEBUS_SLOTS": strconv.Itoa(r.cfg.Slots), "WAKEBUS_TENANT_BACKLOG": strconv.Itoa(r.cfg.Backlog),
		"WAKEBUS_LIMIT_TENANT": plenty, "WAKEBUS_LIMIT_EXEC": "free=" + plenty + ",business=" + plenty,
		"WAKEBUS_STREAM_HARD_CAP": "1GiB", "WAKEBUS_LOG_LEVEL": "error",
		"WAKEBUS_QUEUE_BYTES": "1GiB", "WAKEBUS_JOURNAL_BYTES": "2GiB",
	}
}

// Env is the environment of one more worker process for this Rig, without what the machine has set.
func (r *Rig) Env() []string {
	env := maps.Clone(r.inst.Env())
	env["WAKEBUS_ADMIN_ADDR"] = "127.0.0.1:0"
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	return out
}

// Instance is what was started.
func (r *Rig) Instance() *instance.Instance { return r.inst }

// Redis is the server process, nil when the Redis is in this process.
func (r *Rig) Redis() *Redis { return r.redis }

// Target is how to measure it.
func (r *Rig) Target() Target {
	env := r.inst.Env()
	t := Target{
		Bus: r.bus, RedisURL: env["REDIS_URL"], SpritesURL: env["SPRITES_API_URL"], SpritesToken: env["SPRITES_API_TOKEN"],
		Sync: "interval", Redis: "in memory", Emulator: r.cfg.Emulator, Slots: max(r.cfg.Workers, 0) * r.cfg.Slots,
		Traffic: r.inst.Broker().Traffic, Calls: func() int { return r.inst.Emulator().Count("*", "*") },
	}
	if r.cfg.SyncAlways {
		t.Sync = "always"
	}
	if r.redis != nil {
		t.Redis, t.RedisPID = "redis-server", r.redis.PID()
	}
	return t
}

// Close ends everything. Call it once.
func (r *Rig) Close() error {
	var errs []error
	if r.bus != nil {
		r.bus.Close()
	}
	if r.inst != nil {
		errs = append(errs, r.inst.Close())
	}
	if r.redis != nil {
		errs = append(errs, r.redis.Close())
	}
	return errors.Join(errs...)
}
