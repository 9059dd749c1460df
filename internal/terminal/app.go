package terminal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/lease"
	links "github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// DefaultPageDir is where the built page is looked for, from the working directory.
const DefaultPageDir = "internal/terminal/page/dist"

// shellBuffer is what the kernel may hold of a shell's output before we read it, and viewBuffer of what we wrote to a
// viewer: what stands in them cannot be skipped when somebody interrupts a flood.
const (
	shellBuffer = 128 << 10
	viewBuffer  = 128 << 10
)

// AppConfig is what an App needs besides the settings. The zero value works.
type AppConfig struct {
	// Log is the process's log. Defaults to one that writes to stderr.
	Log *telemetry.Log
	// Registry takes and shows the metrics. Defaults to a new one.
	Registry *prometheus.Registry
	// Build names the binary. Defaults to the running one's.
	Build *telemetry.Build
	// Broker connects in process. Defaults to the settings' address.
	Broker *bus.Server
	// Quarantine is lease.Config's. Defaults to its default.
	Quarantine time.Duration
	// PageDir holds the built page. Defaults to DefaultPageDir where that exists.
	PageDir string
	// NoAdmin leaves the admin port out, for a process that has one already. Defaults to false.
	NoAdmin bool
	// Gateway edits the gateway's configuration, for tests and the demo. Defaults to nothing.
	Gateway func(*Config)
}

// App is a whole gateway process: connections, gateway, edge and admin port. `terminal-gw serve`, the dev instance and
// the end-to-end tests start the same one.
type App struct {
	cfg      config.Config
	opt      AppConfig
	log      *telemetry.Log
	bus      *bus.Bus
	leases   *lease.Manager
	sprites  *sprites.Client
	gateway  *Gateway
	admin    *telemetry.Admin
	listener net.Listener
	fleetOff atomic.Bool
}

// NewApp connects to everything that the settings name and listens. What is missing or does not answer is reported all
// at once. It blocks for at most about 10 s. The caller must call Run or Close.
func NewApp(ctx context.Context, cfg config.Config, opt AppConfig) (*App, error) {
	a := &App{cfg: cfg, opt: opt.withDefaults(cfg)}
	a.log = a.opt.Log
	err := a.connect(ctx)
	if err == nil {
		err = a.build()
	}
	if err != nil {
		a.Close()
		return nil, fmt.Errorf("start terminal gateway: %w", err)
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
	if o.PageDir == "" {
		if _, err := os.Stat(filepath.Join(DefaultPageDir, "index.html")); err == nil {
			o.PageDir = DefaultPageDir
		}
	}
	if o.Gateway == nil {
		o.Gateway = func(*Config) {}
	}
	return o
}

// connect opens the bus, the leases and the edge's address, and reports all failures together.
func (a *App) connect(ctx context.Context) error {
	c := a.cfg
	var errs []error
	b, err := bus.Connect(ctx, bus.Config{
		URL: c.NATSURL.Reveal(), Creds: c.NATSCreds, NKey: c.NATSNKey, CA: c.NATSCA, Cert: c.NATSCert, Key: c.NATSKey,
		Name: "wakebus terminal-gw", InboxPrefix: c.NATSInboxPrefix, InProcess: a.opt.Broker, Replicas: c.Replicas, Logger: &a.log.Logger,
		Registerer: a.opt.Registry,
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("NATS_URL: %w", err))
	}
	a.bus = b
	m, err := lease.Open(ctx, lease.Config{URL: c.RedisURL.Reveal(), TTL: c.LeaseTTL, Quarantine: a.opt.Quarantine, MaxHold: maxHold,
		Logger: &a.log.Logger, Registerer: a.opt.Registry})
	if err != nil {
		errs = append(errs, fmt.Errorf("REDIS_URL: %w", err))
	}
	a.leases = m
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", string(c.TerminalAddr))
	if err != nil {
		errs = append(errs, fmt.Errorf("WAKEBUS_TERMINAL_ADDR: %w", err))
	} else {
		a.listener = l
	}
	return errors.Join(errs...)
}

// build makes the parts over the connections.
func (a *App) build() error {
	c := a.cfg
	client, err := sprites.New(sharedGate{a.leases.Gate()}, sprites.Config{BaseURL: c.SpritesAPIURL.Reveal(), Token: c.SpritesAPIToken.Reveal(),
		DialTimeout: c.DialTimeout, ReceiveBuffer: shellBuffer, Logger: &a.log.Logger, Registerer: a.opt.Registry})
	if err != nil {
		return err
	}
	a.sprites = client
	store, err := links.New(a.bus.Links(), links.Config{})
	if err != nil {
		return err
	}
	recorder, err := audit.New(a.bus.AuditSink(), audit.Config{Log: a.log.Logger, Registerer: a.opt.Registry})
	if err != nil {
		return err
	}
	gc := a.gatewayConfig()
	a.opt.Gateway(&gc)
	gc.setDefaults()
	keep, err := a.keeper(gc.Now)
	if err != nil {
		return err
	}
	a.gateway, err = New(Deps{
		Gatekeeper: keep, Opener: &busOpener{bus: a.bus, patience: gc.OpenPatience, now: gc.Now}, Shells: spriteShells{client},
		Records: linkRecords{store}, Leases: slots{leases: a.leases, limits: limitsOf(c), ttl: c.LeaseTTL}, Journal: trail{recorder},
	}, gc)
	if err != nil || a.opt.NoAdmin {
		return err
	}
	a.admin, err = telemetry.NewAdmin(a.log, telemetry.AdminConfig{Addr: string(c.AdminAddr), Gatherer: a.opt.Registry, Build: a.opt.Build,
		Checks: map[string]telemetry.Check{
			"nats":  func(context.Context) error { return a.bus.Ready() },
			"redis": a.leases.Ready,
		}})
	return err
}

func (a *App) keeper(now func() time.Time) (*keeper, error) {
	c := a.cfg
	ac := authz.Config{Mode: authz.Mode(c.AuthzMode), Caller: a.bus,
		Switch:    authz.Switch{Enabled: c.ExecutionEnabled, FleetOff: a.fleetOff.Load},
		Endpoints: []string{c.NATSURL.Reveal(), c.RedisURL.Reveal(), c.SpritesAPIURL.Reveal()}}
	if c.GrantKeysFile != "" {
		keys, err := authz.OpenKeyFile(c.GrantKeysFile, authz.KeyFileConfig{})
		if err != nil {
			return nil, fmt.Errorf("GRANT_KEYS_FILE: %w", err)
		}
		if ac.Verifier, err = authz.NewVerifier(keys, authz.VerifierConfig{}); err != nil {
			return nil, err
		}
	}
	az, err := authz.New(ac)
	if err != nil {
		return nil, err
	}
	tickets, err := authz.NewTickets(authz.TicketsConfig{})
	if err != nil {
		return nil, err
	}
	return &keeper{authz: az, verifier: ac.Verifier, tickets: tickets, now: now}, nil
}

func (a *App) gatewayConfig() Config {
	c := a.cfg
	return Config{
		Origins: a.origins(), Open: c.AuthzMode == config.AuthDev, DetachWindow: c.TerminalDetachWindow, Recordings: c.TerminalRecordings,
		PageDir: a.opt.PageDir, Logger: &a.log.Logger, Registerer: a.opt.Registry,
	}
}

// origins are those that the settings list, else the public address's own, else in development the loopback names.
func (a *App) origins() []string {
	if len(a.cfg.TerminalOrigins) > 0 {
		return a.cfg.TerminalOrigins
	}
	if public := a.cfg.TerminalPublicURL.Reveal(); public != "" {
		if u, err := url.Parse(public); err == nil {
			return []string{u.Scheme + "://" + u.Host}
		}
	}
	if _, port, err := net.SplitHostPort(a.listener.Addr().String()); err == nil && a.cfg.AuthzMode == config.AuthDev {
		return []string{"http://127.0.0.1:" + port, "http://localhost:" + port}
	}
	return nil
}

func limitsOf(c config.Config) lease.Limits {
	tiers := map[string]int{}
	for t, n := range c.LimitTerminal {
		tiers[string(t)] = n
	}
	l := lease.DefaultLimits()
	l.Terminal, l.Tenant, l.Global = tiers, c.LimitTenant, c.LimitGlobal
	return l
}

// URL is where the gateway listens: http://host:port.
func (a *App) URL() string { return "http://" + a.listener.Addr().String() }

// AdminURL is where the admin port listens; empty without one.
func (a *App) AdminURL() string {
	if a.admin == nil {
		return ""
	}
	return a.admin.URL()
}

// Gateway is the gateway, for tests.
func (a *App) Gateway() *Gateway { return a.gateway }

// Run serves until ctx ends, then hands its shells over, sends the viewers away and closes everything. It returns nil
// after a clean end.
func (a *App) Run(ctx context.Context) error {
	defer a.Close()
	// The parts below outlive ctx: the hand-over needs them.
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	watch, err := a.bus.WatchExecution(base, func(s bus.ExecutionSwitch) { a.fleetOff.Store(!s.On) })
	if err != nil {
		return fmt.Errorf("watch the fleet's switch: %w", err)
	}
	defer watch.Close()
	server := &http.Server{Handler: a.gateway.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(viewBuffer) // without it output only comes later
			}
			return ctx
		}}
	g, base := errgroup.WithContext(base)
	g.Go(func() error { return a.leases.Run(base) })
	if a.admin != nil {
		g.Go(func() error { return a.admin.Run(base) })
	}
	g.Go(func() error {
		if err := server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the edge: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		defer stop()
		run, cancel := context.WithCancel(ctx)
		defer cancel()
		unhook := context.AfterFunc(base, cancel) // a part that fails for good ends the gateway the way SIGTERM does
		defer unhook()
		err := a.gateway.Run(run)
		return errors.Join(err, server.Close())
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("run terminal gateway: %w", err)
	}
	return nil
}

// Close closes the connections. It may be called more than once.
func (a *App) Close() {
	if a.listener != nil {
		_ = a.listener.Close() // it may be closed already
	}
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
