package instance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/telemetry"
	"github.com/wakebus/wakebus/internal/terminal"
)

// Config configures an Instance. The zero value gives one worker in a temporary folder.
type Config struct {
	// Dir keeps streams, links and Sprites. Defaults to a temporary folder, removed by Close.
	Dir string
	// Workers is how many workers run in this process; negative is none. Defaults to 1.
	Workers int
	// Emulator edits the emulator's configuration. Defaults to nothing.
	Emulator func(*emulator.Config)
	// App edits each worker's configuration; n counts from 0. Defaults to nothing.
	App func(n int, a *job.AppConfig)
	// Settings are laid over the instance's own environment, by variable. Defaults to none.
	Settings map[string]string
	// RedisURL names a Redis that runs already. Defaults to one in this process.
	RedisURL string
	// NATSURL names a broker that runs already. Defaults to one in this process.
	NATSURL string
	// SyncAlways makes the embedded broker write through to disk. Defaults to false.
	SyncAlways bool
	// Ports are those to take again when they are free: nats, redis, sprites. Defaults to any.
	Ports map[string]int
	// Secrets are the session secret and passwords of an earlier start in Dir. Defaults to new ones.
	Secrets map[string]string
	// Terminal runs a terminal gateway too. Defaults to false.
	Terminal bool
	// Log is the log. Defaults to none.
	Log *telemetry.Log
}

// Instance is a running instance. Its methods may be called concurrently.
type Instance struct {
	cfg      Config
	env      map[string]string
	settings config.Config
	broker   *bus.Server
	redis    *miniredis.Miniredis
	emulator *emulator.Server
	gateway  *terminal.App
	log      *telemetry.Log
	temp     string

	mu      sync.Mutex // protects what follows
	workers []*running
	edge    *running // the gateway

	failOnce  sync.Once
	failed    chan struct{} // closed when a part has ended unasked
	closeOnce sync.Once
	closeErr  error
}

// running is one part with a Run of its own, and how to end it.
type running struct {
	app  *job.App // nil for the gateway
	stop context.CancelFunc
	done chan struct{} // closed when Run has returned
	err  error         // set before done is closed
}

// Start starts the parts and returns when all of them answer. The caller must call Close.
func Start(ctx context.Context, cfg Config) (*Instance, error) {
	i := &Instance{cfg: cfg, log: cfg.Log, env: map[string]string{}, failed: make(chan struct{})}
	if i.log == nil {
		i.log = &telemetry.Log{Logger: zerolog.Nop()}
	}
	if err := i.start(ctx); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

func (i *Instance) start(ctx context.Context) error {
	if i.cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "wakebus-")
		if err != nil {
			return fmt.Errorf("make a folder for the instance: %w", err)
		}
		i.temp, i.cfg.Dir = dir, dir
	}
	for _, part := range []func(context.Context) error{i.startBroker, i.startRedis, i.startEmulator} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	i.env["SANDBOX_SESSION_SECRET"] = i.secret("SANDBOX_SESSION_SECRET")
	i.env["CODE_EXECUTION_ENABLED"], i.env["AUTHZ_MODE"] = "true", "dev"
	maps.Copy(i.env, i.cfg.Settings)
	settings, _, err := config.Load(config.RoleWorker, func(k string) (string, bool) { v, ok := i.env[k]; return v, ok }, nil)
	if err != nil {
		return fmt.Errorf("settings of the instance: %w", err)
	}
	i.settings = settings
	if i.broker != nil {
		// A broker that was given has been set up by whoever may.
		if err := i.setUp(ctx); err != nil {
			return err
		}
	}
	n := i.cfg.Workers
	if n == 0 {
		n = 1
	}
	for range max(n, 0) {
		if _, err := i.AddWorker(ctx); err != nil {
			return err
		}
	}
	if i.cfg.Terminal {
		return i.startGateway(ctx)
	}
	return nil
}

// setUp makes the streams, so that an instance without workers can be published to, and a gateway finds them.
func (i *Instance) setUp(ctx context.Context) error {
	b, err := bus.Connect(ctx, bus.Config{URL: i.env["NATS_URL"], Name: "wakebus setup", TenantBacklog: i.settings.TenantBacklog,
		Limits: bus.Limits{Sandbox: i.settings.QueueBytes.Bytes(), Jobs: i.settings.JournalBytes.Bytes(), Output: i.settings.OutputBytes.Bytes()}})
	if err != nil {
		return err
	}
	defer b.Close()
	return b.Setup(ctx)
}

// startGateway runs a terminal gateway on a free loopback port, or the one it had before.
func (i *Instance) startGateway(ctx context.Context) error {
	env := maps.Clone(i.env)
	env["WAKEBUS_TERMINAL_ADDR"] = "127.0.0.1:" + strconv.Itoa(i.port("terminal"))
	settings, _, err := config.Load(config.RoleGateway, func(k string) (string, bool) { v, ok := env[k]; return v, ok }, nil)
	if err != nil {
		return fmt.Errorf("settings of the terminal gateway: %w", err)
	}
	gateway, err := terminal.NewApp(ctx, settings, terminal.AppConfig{Log: i.log, Quarantine: -1, NoAdmin: true})
	if err != nil {
		return err
	}
	i.gateway = gateway
	i.edge = i.launch(ctx, gateway.Run)
	i.env["TERMINAL_URL"] = gateway.URL()
	return nil
}

// launch runs a part until its stop is called.
func (i *Instance) launch(ctx context.Context, part func(context.Context) error) *running {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &running{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = part(run)
		if run.Err() == nil {
			i.failOnce.Do(func() { close(i.failed) })
		}
	}()
	return w
}

func (i *Instance) startBroker(ctx context.Context) error {
	if i.cfg.NATSURL != "" {
		i.env["NATS_URL"] = i.cfg.NATSURL
		return nil
	}
	sc := bus.ServerConfig{Dir: filepath.Join(i.cfg.Dir, "nats"), Port: i.port("nats"), Password: i.secret("nats"), SyncAlways: i.cfg.SyncAlways}
	broker, err := bus.StartServer(ctx, sc)
	if err != nil {
		return err
	}
	i.broker = broker
	i.env["NATS_URL"] = broker.URL()
	return nil
}

func (i *Instance) startRedis(context.Context) error {
	if i.cfg.RedisURL != "" {
		i.env["REDIS_URL"] = i.cfg.RedisURL
		return nil
	}
	i.redis = miniredis.NewMiniRedis()
	// Keys must expire by the real clock: this Redis serves people, not a test's fake time.
	i.redis.ClockTTL(true)
	password := i.secret("redis")
	i.redis.RequireAuth(password)
	if err := i.redis.StartAddr("127.0.0.1:" + strconv.Itoa(i.port("redis"))); err != nil {
		return fmt.Errorf("start redis in memory: %w", err)
	}
	i.env["REDIS_URL"] = "redis://:" + password + "@" + i.redis.Addr()
	return nil
}

func (i *Instance) startEmulator(ctx context.Context) error {
	ec := emulator.Config{
		Addr: "127.0.0.1:" + strconv.Itoa(i.port("sprites")), Token: i.secret("sprites"), Dir: filepath.Join(i.cfg.Dir, "sprites"), Logger: i.log.Logger,
	}
	if i.cfg.Emulator != nil {
		i.cfg.Emulator(&ec)
	}
	server, err := emulator.New(ec)
	if err != nil {
		return err
	}
	i.emulator = server
	if err := server.Start(ctx); err != nil {
		return err
	}
	i.env["SPRITES_API_URL"], i.env["SPRITES_API_TOKEN"] = server.URL(), server.Token()
	return nil
}

// port is the port to take: the earlier one while it is free, so that addresses survive a restart.
func (i *Instance) port(name string) int {
	p := i.cfg.Ports[name]
	if p == 0 {
		return 0
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
	if err != nil {
		return 0
	}
	if err := l.Close(); err != nil {
		return 0
	}
	return p
}

func (i *Instance) secret(name string) string {
	if s := i.cfg.Secrets[name]; s != "" {
		return s
	}
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// Env is the environment that points a client or a worker at this instance. The caller may keep the map.
func (i *Instance) Env() map[string]string { return maps.Clone(i.env) }

// Settings are the instance's own settings.
func (i *Instance) Settings() config.Config { return i.settings }

// Emulator is the Sprites emulator, for its call log and faults.
func (i *Instance) Emulator() *emulator.Server { return i.emulator }

// Broker is the embedded broker, or nil when one was given.
func (i *Instance) Broker() *bus.Server { return i.broker }

// Redis is the Redis in memory, or nil when one was given.
func (i *Instance) Redis() *miniredis.Miniredis { return i.redis }

// Dir is the instance's folder.
func (i *Instance) Dir() string { return i.cfg.Dir }

// Connect opens one more connection to the instance's broker. The caller closes it.
func (i *Instance) Connect(ctx context.Context) (*bus.Bus, error) {
	return bus.Connect(ctx, bus.Config{URL: i.env["NATS_URL"], Name: "wakebus client"})
}

// AddWorker starts one more worker and returns its number.
func (i *Instance) AddWorker(ctx context.Context) (int, error) {
	i.mu.Lock()
	n := len(i.workers)
	i.mu.Unlock()
	ac := job.AppConfig{Log: i.log, Quarantine: -1}
	if i.cfg.App != nil {
		i.cfg.App(n, &ac)
	}
	app, err := job.NewApp(ctx, i.settings, ac)
	if err != nil {
		return 0, fmt.Errorf("start worker %d: %w", n, err)
	}
	w := i.launch(ctx, app.Run)
	w.app = app
	i.mu.Lock()
	defer i.mu.Unlock()
	i.workers = append(i.workers, w)
	return len(i.workers) - 1, nil
}

// App is worker n.
func (i *Instance) App(n int) *job.App {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.workers[n].app
}

// StopWorker drains worker n, as SIGTERM does, and waits for its end.
func (i *Instance) StopWorker(n int) error {
	i.mu.Lock()
	w := i.workers[n]
	i.mu.Unlock()
	w.stop()
	<-w.done
	return w.err
}

// Failed is closed when a part has ended that nobody stopped.
func (i *Instance) Failed() <-chan struct{} { return i.failed }

// Close ends the workers, then what they need. It may be called more than once.
func (i *Instance) Close() error {
	i.closeOnce.Do(func() { i.closeErr = i.shut() })
	return i.closeErr
}

func (i *Instance) shut() error {
	i.mu.Lock()
	parts := append([]*running(nil), i.workers...)
	if i.edge != nil {
		parts = append(parts, i.edge)
	}
	i.mu.Unlock()
	var errs []error
	for _, w := range parts {
		w.stop()
	}
	for _, w := range parts {
		<-w.done
		errs = append(errs, w.err)
	}
	if i.emulator != nil {
		errs = append(errs, i.emulator.Close())
	}
	if i.redis != nil {
		i.redis.Close()
	}
	if i.broker != nil {
		errs = append(errs, i.broker.Close())
	}
	if i.temp != "" {
		errs = append(errs, os.RemoveAll(i.temp))
	}
	return errors.Join(errs...)
}

// Addresses are the instance's addresses without their secrets, by part, for people.
func (i *Instance) Addresses() map[string]string {
	out := map[string]string{}
	for part, variable := range map[string]string{"NATS": "NATS_URL", "Redis": "REDIS_URL", "Sprites": "SPRITES_API_URL", "Terminal": "TERMINAL_URL"} {
		u := i.env[variable]
		if u == "" {
			continue
		}
		if at := strings.LastIndexByte(u, '@'); at >= 0 {
			scheme, _, _ := strings.Cut(u, "://")
			u = scheme + "://" + u[at+1:]
		}
		out[part] = u
	}
	return out
}

// ReadyWithin is how long a start may take before it counts as failed.
const ReadyWithin = 30 * time.Second
