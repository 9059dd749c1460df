package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// AppConfig is what an App needs besides the settings. The zero value works.
type AppConfig struct {
	// Log is the process's log. Defaults to one that writes to stderr.
	Log *telemetry.Log
	// Registry takes and shows the metrics. Defaults to a new one.
	Registry *prometheus.Registry
	// Tracing makes the spans. Defaults to none.
	Tracing *telemetry.Tracing
	// Build names the binary. Defaults to the running one's.
	Build *telemetry.Build
	// Broker connects in process. Defaults to the settings' address.
	Broker *bus.Server
	// AckWait is how long a silent owner keeps a request. Defaults to the bus's own, 9 s.
	AckWait time.Duration
	// Quarantine is lease.Config's. Defaults to its default.
	Quarantine time.Duration
	// Sprites edits the client's configuration, for tests and the demo. Defaults to nothing.
	Sprites func(*sprites.Config)
	// Leases edits the lease manager's configuration, for tests. Defaults to nothing.
	Leases func(*lease.Config)
	// Worker edits the worker's configuration, for tests and the demo. Defaults to nothing.
	Worker func(*Config)
}

// App is a whole worker process: connections, worker, endpoints, background roles, admin port. `worker run`, the dev
// instance, the demo and the end-to-end tests start the same one.
type App struct {
	cfg     config.Config
	log     *telemetry.Log
	bus     *bus.Bus
	leases  *lease.Manager
	sprites *sprites.Client
	links   *session.Store
	worker  *Worker
	admin   *telemetry.Admin
	fleet   *fleetSwitch
}

// NewApp connects to everything that the settings name and sets the streams up. What is missing or does not answer is
// reported all at once. It blocks for at most about 10 s. The caller must call Run or Close.
func NewApp(ctx context.Context, cfg config.Config, opt AppConfig) (*App, error) {
	opt = opt.withDefaults(cfg)
	a := &App{cfg: cfg, log: opt.Log, fleet: &fleetSwitch{}}
	if err := a.connect(ctx, opt); err != nil {
		a.Close()
		return nil, err
	}
	if err := a.build(opt); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

func (o AppConfig) withDefaults(cfg config.Config) AppConfig {
	if o.Log == nil {
		o.Log = telemetry.NewLog(telemetry.LogConfig{Level: cfg.LogLevel})
	}
	if o.Build == nil {
		b := telemetry.ReadBuild()
		o.Build = &b
	}
	if o.Registry == nil {
		o.Registry = telemetry.NewRegistry(*o.Build)
	}
	if o.Sprites == nil {
		o.Sprites = func(*sprites.Config) {}
	}
	if o.Leases == nil {
		o.Leases = func(*lease.Config) {}
	}
	if o.Worker == nil {
		o.Worker = func(*Config) {}
	}
	return o
}

// connect opens the bus and the leases and reports both failures together.
func (a *App) connect(ctx context.Context, opt AppConfig) error {
	c := a.cfg
	var errs []error
	b, err := bus.Connect(ctx, bus.Config{
		URL: c.NATSURL.Reveal(), Creds: c.NATSCreds, NKey: c.NATSNKey, CA: c.NATSCA, Cert: c.NATSCert, Key: c.NATSKey,
		Name: "wakebus worker", InboxPrefix: inboxPrefix(c.NATSInboxPrefix), Replicas: c.Replicas, Limits: bus.Limits{Sandbox: c.QueueBytes.Bytes(), Jobs: c.JournalBytes.Bytes(), Output: c.OutputBytes.Bytes()}, InProcess: opt.Broker, TenantBacklog: c.TenantBacklog,
		AckWait: opt.AckWait, DirectReads: true, Logger: &a.log.Logger, Registerer: opt.Registry,
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("NATS_URL: %w", err))
	} else {
		a.bus = b
		if err := b.Setup(ctx); err != nil {
			errs = append(errs, fmt.Errorf("NATS_URL: %w", err))
		}
	}
	lc := lease.Config{
		URL: c.RedisURL.Reveal(), TTL: c.LeaseTTL, Quarantine: opt.Quarantine, ParkedMax: c.TenantBacklog,
		Logger: &a.log.Logger, Registerer: opt.Registry,
	}
	opt.Leases(&lc)
	m, err := lease.Open(ctx, lc)
	if err != nil {
		errs = append(errs, fmt.Errorf("REDIS_URL: %w", err))
	}
	a.leases = m
	return errors.Join(errs...)
}

// inboxPrefix is the worker's own, so that no other role can read its replies.
func inboxPrefix(set string) string {
	if set == "" || set == config.Default().NATSInboxPrefix {
		return "_INBOX_worker"
	}
	return set
}

// build makes the parts over the connections.
func (a *App) build(opt AppConfig) error {
	store, err := session.New(a.bus.Links(), session.Config{})
	if err != nil {
		return err
	}
	a.links = store
	deps := Deps{Bus: a.bus, Leases: a.leases, Links: store, Keys: a.bus.Links()}
	if opt.Tracing != nil && opt.Tracing.On() {
		deps.Tracer = opt.Tracing
	}
	if err := a.secrets(&deps, opt); err != nil {
		return err
	}
	bound, mint, err := canaryKeys(a.cfg)
	if err != nil {
		return err
	}
	if a.cfg.GrantKeysFile != "" {
		deps.CanaryGrant = mint
	}
	if deps.Authz, err = a.authorizer(bound); err != nil {
		return err
	}
	deps.Audit, err = audit.New(a.bus.AuditSink(), audit.Config{Log: a.log.Logger, Registerer: opt.Registry})
	if err != nil {
		return err
	}
	wc := a.workerConfig(opt)
	opt.Worker(&wc)
	if a.worker, err = New(deps, wc); err != nil {
		return err
	}
	a.admin, err = telemetry.NewAdmin(a.log, telemetry.AdminConfig{
		Addr: string(a.cfg.AdminAddr), Gatherer: opt.Registry, Build: opt.Build, Checks: map[string]telemetry.Check{
			"nats":   func(context.Context) error { return a.bus.Ready() },
			"redis":  a.leases.Ready,
			"worker": func(context.Context) error { return a.worker.Ready() },
		},
	})
	return err
}

// secrets builds what needs the token or the session secret. With running code off they may be missing.
func (a *App) secrets(deps *Deps, opt AppConfig) error {
	c := a.cfg
	if secret := []byte(c.SessionSecret.Reveal()); len(secret) >= session.MinSecret {
		var previous [][]byte
		if p := c.SessionSecretPrevious.Reveal(); p != "" {
			previous = append(previous, []byte(p))
		}
		namer, err := session.NewNamer(session.NamerConfig{Secret: secret, Previous: previous})
		if err != nil {
			return err
		}
		sealer, err := bus.NewSealer(secret, bus.SealerConfig{Previous: []byte(c.SessionSecretPrevious.Reveal())})
		if err != nil {
			return err
		}
		deps.Namer, deps.Sealer = namer, sealer
	}
	if c.SpritesAPIToken.Reveal() == "" {
		return nil
	}
	sc := sprites.Config{
		BaseURL: c.SpritesAPIURL.Reveal(), Token: c.SpritesAPIToken.Reveal(), DialTimeout: c.DialTimeout, CreatePatience: c.CreatePatience,
		Caps:   sprites.Caps{RAMMB: c.SpriteRAMMB, CPUs: c.SpriteCPUs, StorageGB: c.SpriteStorageGB},
		Logger: &a.log.Logger, Registerer: opt.Registry,
	}
	opt.Sprites(&sc)
	client, err := sprites.New(providerGate{a.leases.Gate()}, sc)
	if err != nil {
		return err
	}
	a.sprites, deps.Sprites = client, client
	return nil
}

func (a *App) authorizer(bound map[string]authz.BoundKey) (*authz.Authorizer, error) {
	c := a.cfg
	ac := authz.Config{
		Mode: authz.Mode(c.AuthzMode), Caller: a.bus,
		Switch:    authz.Switch{Enabled: c.ExecutionEnabled, FleetOff: a.fleet.off},
		Endpoints: []string{c.NATSURL.Reveal(), c.RedisURL.Reveal(), c.SpritesAPIURL.Reveal()},
	}
	if c.GrantKeysFile != "" {
		keys, err := authz.OpenKeyFile(c.GrantKeysFile, authz.KeyFileConfig{})
		if err != nil {
			return nil, fmt.Errorf("GRANT_KEYS_FILE: %w", err)
		}
		v, err := authz.NewVerifier(keys, authz.VerifierConfig{Bound: bound})
		if err != nil {
			return nil, err
		}
		ac.Verifier = v
	}
	return authz.New(ac)
}

// grace is the setting as the worker takes it, where zero stands for its default.
func grace(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

func (a *App) workerConfig(opt AppConfig) Config {
	c := a.cfg
	tiers := func(l config.TierLimits) map[string]int {
		m := map[string]int{}
		for t, n := range l {
			m[string(t)] = n
		}
		return m
	}
	return Config{
		Slots: c.Slots, DrainGrace: grace(c.DrainGrace), LeaseTTL: c.LeaseTTL, HardExpiry: c.HardExpiry, CreatePatience: c.CreatePatience, OutagePatience: c.OutagePatience,
		Limits:      lease.Limits{Exec: tiers(c.LimitExec), Terminal: tiers(c.LimitTerminal), File: c.LimitFile, Tenant: c.LimitTenant, Global: c.LimitGlobal},
		StreamBytes: c.StreamBytes.Bytes(), StreamHardCap: c.StreamHardCap.Bytes(), EgressAllow: c.EgressAllow, DeploymentID: c.DeploymentID,
		TenantBacklog: c.TenantBacklog, CanaryEvery: c.CanaryEvery, Version: opt.Build.Version, Logger: a.log.Logger, Registerer: opt.Registry,
	}
}

// Worker is the worker, for its state.
func (a *App) Worker() *Worker { return a.worker }

// AdminURL is where the admin port listens.
func (a *App) AdminURL() string { return a.admin.URL() }

// Run serves until ctx ends, then drains: it stops pulling, lets running jobs finish for the grace period, hands the
// rest over, and closes everything. It returns nil after a clean end.
func (a *App) Run(ctx context.Context) error {
	defer a.Close()
	// The parts below outlive ctx: jobs that finish during the grace period need them.
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, base := errgroup.WithContext(base)
	g.Go(func() error { return a.leases.Run(base) })
	g.Go(func() error { return a.admin.Run(base) })
	g.Go(func() error {
		defer stop()
		var watch *bus.Watch
		err := a.worker.insist(ctx, "watch the execution switch", func() (err error) {
			watch, err = a.bus.WatchExecution(base, a.switched)
			return err
		})
		if ctx.Err() != nil && watch == nil {
			return nil
		}
		if err != nil {
			return err
		}
		defer watch.Close()
		run, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		// A part that fails for good ends the worker the way SIGTERM does.
		unhook := context.AfterFunc(base, func() { cancel(context.Cause(base)) })
		defer unhook()
		return a.worker.Run(run)
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("run worker: %w", err)
	}
	return nil
}

// switched takes the fleet's switch over, and says so: an off denies everybody's jobs.
func (a *App) switched(s bus.ExecutionSwitch) {
	was := a.fleet.off()
	a.fleet.set(!s.On)
	switch {
	case s.Unreadable:
		a.log.Error().Str("why", s.Why).Msg("the fleet's execution switch cannot be read: execution is off")
	case !s.On:
		a.log.Warn().Str("by", s.By).Str("why", s.Why).Msg("execution was switched off for the fleet")
	case was:
		a.log.Warn().Str("by", s.By).Str("why", s.Why).Msg("execution was switched on for the fleet")
	}
}

// Close closes the connections. It may be called more than once.
func (a *App) Close() {
	if a.sprites != nil {
		if err := a.sprites.Close(); err != nil {
			a.log.Warn().Err(err).Msg("close sprites client")
		}
	}
	if a.leases != nil {
		if err := a.leases.Close(); err != nil {
			a.log.Warn().Err(err).Msg("close lease store")
		}
	}
	if a.bus != nil {
		a.bus.Close()
	}
}
