package job

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// Deps are the parts that a Worker works with. Sprites, Namer and Sealer may be nil while running code is off.
type Deps struct {
	Bus     *bus.Bus
	Leases  *lease.Manager
	Sprites *sprites.Client
	Links   *session.Store
	Keys    session.Lister
	Namer   *session.Namer
	Authz   *authz.Authorizer
	Audit   *audit.Recorder
	Sealer  *bus.Sealer
	Tracer  trace.Tracer
	// CanaryGrant mints the canary's grants; nil where none are asked for.
	CanaryGrant CanaryGrant
}

// Config configures a Worker. The zero value works.
type Config struct {
	// WorkerID names this worker in Wb-Owner, logs and service lists. Defaults to a random name.
	WorkerID string
	// Epoch tells this start of the worker from its earlier ones. Defaults to a random word.
	Epoch string
	// Slots is how many jobs run at once. Defaults to 16.
	Slots int
	// DrainGrace is how long running jobs may finish at the end of Run; negative is not at all. Defaults to 30 s.
	DrainGrace time.Duration
	// Limits are the concurrency limits. Defaults to lease.DefaultLimits.
	Limits lease.Limits
	// LeaseTTL is the leases' time to live. Defaults to 30 s.
	LeaseTTL time.Duration
	// HardExpiry is how long a conversation's sandbox may be idle; 0 = never expires. Defaults to 0.
	HardExpiry time.Duration
	// CreatePatience bounds how long "not now" of the provider is waited for. Defaults to 5 min.
	CreatePatience time.Duration
	// OutagePatience bounds how long a run is tried while the provider is away. Defaults to 90 s.
	OutagePatience time.Duration
	// StreamBytes is the live output of a job that asks for nothing else, in bytes. Defaults to 8 MiB.
	StreamBytes int64
	// StreamHardCap is what a command may produce in all, in bytes. Defaults to 64 MiB.
	StreamHardCap int64
	// EgressAllow is the allow-list of sandboxes. Defaults to nothing.
	EgressAllow []string
	// DeploymentID marks this deployment's Sprites. Defaults to "default".
	DeploymentID string
	// TenantBacklog bounds how many of a tenant's runs may be parked. Defaults to 100.
	TenantBacklog int
	// CanaryEvery is how often one worker of the fleet runs a canary job. Defaults to 0: never.
	CanaryEvery time.Duration
	// OrphanAge is how long a run that no message carries must have been silent before it is queued again. Defaults to 1 min.
	OrphanAge time.Duration
	// Version is told to service lists. Defaults to the running binary's.
	Version string
	// Clock is the worker's time. Defaults to the real one.
	Clock Clock
	// Random returns a number in [0, 1) and may be called concurrently. Defaults to math/rand/v2.
	Random func() float64
	// Logger gets one line per job. Defaults to none.
	Logger zerolog.Logger
	// Registerer gets the metrics. Defaults to none.
	Registerer prometheus.Registerer
	// Step is called at each step of each run; its error, or panic, is the step's. For tests. Defaults to nothing.
	Step func(context.Context, Step, bus.RunKey) error
}

func (c Config) withDefaults() Config {
	def := func(to *time.Duration, d time.Duration) {
		if *to == 0 {
			*to = d
		}
	}
	if c.WorkerID == "" {
		c.WorkerID = "w" + randomWord()
	}
	if c.Epoch == "" {
		c.Epoch = randomWord()
	}
	if c.Slots == 0 {
		c.Slots = 16
	}
	def(&c.DrainGrace, 30*time.Second)
	def(&c.LeaseTTL, 30*time.Second)
	def(&c.CreatePatience, 5*time.Minute)
	def(&c.OrphanAge, time.Minute)
	def(&c.OutagePatience, 90*time.Second)
	if c.StreamBytes == 0 {
		c.StreamBytes = 8 << 20
	}
	if c.StreamHardCap == 0 {
		c.StreamHardCap = 64 << 20
	}
	if c.Limits.Exec == nil {
		c.Limits = lease.DefaultLimits()
	}
	if c.DeploymentID == "" {
		c.DeploymentID = "default"
	}
	if c.TenantBacklog == 0 {
		c.TenantBacklog = 100
	}
	if c.Version == "" {
		c.Version = telemetry.ReadBuild().Version
	}
	if c.Clock == nil {
		c.Clock = realClock{}
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if !plan.ValidToken(c.WorkerID) || !plan.ValidToken(c.Epoch) {
		errs = append(errs, errors.New("worker id and epoch must be 1 to 64 of [A-Za-z0-9_-]"))
	}
	if c.Slots < 1 {
		errs = append(errs, fmt.Errorf("slots %d is less than 1", c.Slots))
	}
	if c.StreamBytes < 0 || c.StreamHardCap < c.StreamBytes {
		errs = append(errs, fmt.Errorf("stream bytes %d and hard cap %d do not fit", c.StreamBytes, c.StreamHardCap))
	}
	if c.HardExpiry < 0 || c.CreatePatience < 0 || c.OutagePatience < 0 || c.OrphanAge < 0 || c.CanaryEvery < 0 {
		errs = append(errs, errors.New("a duration is negative"))
	}
	return errors.Join(errs...)
}

// logger is the part of a zerolog.Logger that is used after a run has ended.
type logger = *zerolog.Logger

// Worker runs jobs. Its methods may be called concurrently; Run is called once.
type Worker struct {
	cfg    Config
	clock  Clock
	random func() float64
	log    zerolog.Logger
	// strangers is for lines that whoever may publish can cause, so it is sampled.
	strangers   zerolog.Logger
	met         *metrics
	fleet       *fleetGauges
	canary      *canaryMetrics
	owner       bus.Owner
	bus         *bus.Bus
	leases      *lease.Manager
	sprites     *sprites.Client
	links       *session.Store
	keys        session.Lister
	namer       *session.Namer
	authz       *authz.Authorizer
	audit       *audit.Recorder
	sealer      *bus.Sealer
	hub         *hub
	pool        *bus.Pool
	tracer      trace.Tracer
	canaryGrant CanaryGrant

	// staying ends by depart, which Run calls once the grace period of a shutdown is over: runs are handed over then.
	staying context.Context
	depart  context.CancelFunc
	// group holds the goroutines of runs; Run waits for it.
	group    sync.WaitGroup
	draining atomic.Bool
	// laying makes counting a tenant's parked runs and parking one more a single step.
	laying sync.Mutex
	// lastFailure is the provider's last failure, for operators.
	lastFailure atomic.Pointer[bus.Failure]
	// cancelSlots bounds how many cancels of parked runs are carried out at once.
	cancelSlots chan struct{}
}

// New makes a worker. It does nothing before Run. The error names every problem of the configuration.
func New(deps Deps, cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if deps.Bus == nil || deps.Leases == nil || deps.Links == nil || deps.Authz == nil || deps.Audit == nil {
		return nil, errors.New("worker: bus, leases, links, authz and audit must be given")
	}
	reg := cfg.Registerer
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	met, err := newMetrics(reg)
	fleet, fleetErr := newFleetGauges(reg)
	canary, canaryErr := newCanaryMetrics(reg)
	if err := errors.Join(err, fleetErr, canaryErr); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	w := &Worker{
		cfg: cfg, clock: cfg.Clock, random: cfg.Random, met: met, owner: bus.Owner(cfg.WorkerID + "." + cfg.Epoch),
		log: cfg.Logger.With().Str("worker", cfg.WorkerID).Logger(),
		bus: deps.Bus, leases: deps.Leases, sprites: deps.Sprites, links: deps.Links, keys: deps.Keys,
		namer: deps.Namer, authz: deps.Authz, audit: deps.Audit, sealer: deps.Sealer,
		fleet: fleet, canary: canary, canaryGrant: deps.CanaryGrant,
		hub: newHub(), tracer: deps.Tracer, cancelSlots: make(chan struct{}, 16),
	}
	w.strangers = telemetry.Flood(w.log, 10, time.Minute)
	w.staying, w.depart = context.WithCancel(context.Background())
	// Requests stay in the queue while they could not be admitted: nothing is denied and nothing is dead-lettered because
	// Redis is away (case 48).
	w.pool, err = bus.NewPool(deps.Bus, bus.PoolConfig{
		Slots: cfg.Slots, Paused: func(bus.Kind) bool { return !w.leases.Admit() },
	}, w.receive)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return w, nil
}

// ID is the worker's name.
func (w *Worker) ID() string { return w.cfg.WorkerID }

// Running is how many runs this worker has now.
func (w *Worker) Running() int { return w.hub.count() }

// Ready returns nil while the worker pulls: the broker is there, Redis admits, the consumers answer.
func (w *Worker) Ready() error {
	if err := w.bus.Ready(); err != nil {
		return err
	}
	if w.draining.Load() {
		return errors.New("the worker is shutting down")
	}
	if err := w.pool.Healthy(); err != nil {
		return err
	}
	if !w.leases.Admit() {
		return fmt.Errorf("nothing is admitted: %w", lease.ErrUnconfirmed)
	}
	return nil
}

// randomWord is 48 random bits as a word.
func randomWord() string { return fmt.Sprintf("%012x", rand.Uint64()&(1<<48-1)) }
