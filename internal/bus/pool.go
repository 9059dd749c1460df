package bus

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
)

// PoolConfig says how many requests of each kind a worker handles at a time.
type PoolConfig struct {
	// Slots is how many exec requests run at a time, 1 to 4096. Defaults to 16.
	Slots int
	// Reserve is how many more exec requests, and as many terminal ones, may run when they are take-overs of runs that
	// another worker left. Defaults to a tenth of Slots, at least 1.
	Reserve int
	// TerminalSlots is how many terminal requests are opened at a time, 1 to 4096. Defaults to half of Slots, at least 1.
	TerminalSlots int
	// EndSlots is how many ends run at a time, 1 to 4096; they never wait for the others. Defaults to 1.
	EndSlots int
	// Kinds is what is pulled. Defaults to all kinds.
	Kinds []Kind
	// PullWait is how long one pull waits at the broker, 50 ms to 10 s; draining takes as long. Defaults to 1 s.
	PullWait time.Duration
	// Paused is asked before each pull; while it is true nothing of that kind is pulled. It must not block. Defaults to
	// never.
	Paused func(Kind) bool
}

func (c PoolConfig) withDefaults() PoolConfig {
	if c.Slots == 0 {
		c.Slots = 16
	}
	if c.Reserve == 0 {
		c.Reserve = max(1, c.Slots/10)
	}
	if c.TerminalSlots == 0 {
		c.TerminalSlots = max(1, c.Slots/2)
	}
	if c.EndSlots == 0 {
		c.EndSlots = 1
	}
	if len(c.Kinds) == 0 {
		c.Kinds = Kinds()
	}
	if c.PullWait == 0 {
		c.PullWait = time.Second
	}
	if c.Paused == nil {
		c.Paused = func(Kind) bool { return false }
	}
	return c
}

func (c PoolConfig) validate() error {
	var errs []error
	for _, f := range []struct {
		name string
		n    int
	}{{"Slots", c.Slots}, {"Reserve", c.Reserve}, {"TerminalSlots", c.TerminalSlots}, {"EndSlots", c.EndSlots}} {
		if f.n < 1 || f.n > 4096 {
			errs = append(errs, fmt.Errorf("%w: %s is %d, must be 1 to 4096", ErrInvalid, f.name, f.n))
		}
	}
	seen := map[Kind]bool{}
	for _, k := range c.Kinds {
		if !k.Valid() || seen[k] {
			errs = append(errs, fmt.Errorf("%w: kind %q is unknown or there twice", ErrInvalid, k))
		}
		seen[k] = true
	}
	if c.PullWait < 50*time.Millisecond || c.PullWait > 10*time.Second {
		errs = append(errs, fmt.Errorf("%w: PullWait is %s, must be 50ms to 10s", ErrInvalid, c.PullWait))
	}
	return errors.Join(errs...)
}

// Handler handles one delivery and settles it. Its context ends with the Pool's. It runs on a goroutine of the Pool.
type Handler func(ctx context.Context, d *Delivery)

// Pool pulls requests when a slot is free and hands each to the Handler, one goroutine each. What it holds is kept in
// progress; nothing is prefetched. Make one with NewPool, run it once with Run.
type Pool struct {
	bus     *Bus
	cfg     PoolConfig
	handler Handler
	log     zerolog.Logger
	lanes   []*lane
	waiting []byte // the body of a pull that waits

	stop     chan struct{} // closed by Drain
	stopOnce sync.Once
	handlers sync.WaitGroup
	full     atomic.Bool // the journal is near its limit

	mu     sync.Mutex // protects active
	active map[activeKey]*Delivery
}

type activeKey struct {
	source Source
	seq    uint64
}

// NewPool makes a Pool. The error lists every problem of the configuration.
func NewPool(b *Bus, cfg PoolConfig, handler Handler) (*Pool, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("make a worker pool: %w", err)
	}
	p := &Pool{bus: b, cfg: cfg, handler: handler, log: b.log.With().Str("part", "pool").Logger(), stop: make(chan struct{}),
		waiting: pullBody(cfg.PullWait), active: map[activeKey]*Delivery{}}
	for _, kind := range cfg.Kinds {
		p.lanes = append(p.lanes, newLane(p, kind))
	}
	return p, nil
}

// Run pulls and handles until Drain was called and every handler has returned, which gives nil, or until ctx ends: then the
// handlers' contexts end with it, and Run waits for them. Other errors: ErrClosed when the connection was closed for
// good. Run is called once.
func (p *Pool) Run(ctx context.Context) error {
	pulling, stopPulling := context.WithCancel(ctx)
	defer stopPulling()
	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	unhook := p.onStop(pulling, stopPulling)
	defer unhook()

	p.checkJournal(pulling) // before the first pull
	var pullers, helpers errgroup.Group
	helpers.Go(func() error { return p.keep(work) })
	helpers.Go(func() error { return p.watchJournal(pulling) })
	for _, l := range p.lanes {
		for _, u := range l.pullers() {
			pullers.Go(func() error {
				defer u.close()
				err := u.run(pulling, work)
				if err != nil {
					stopPulling() // the others cannot go on either
				}
				return err
			})
		}
	}
	err := pullers.Wait()
	p.handlers.Wait()
	stopPulling()
	stopWork()
	return errors.Join(err, helpers.Wait(), context.Cause(ctx))
}

// onStop ends pulling when Drain is called. The goroutine ends with the context or by Drain.
func (p *Pool) onStop(ctx context.Context, cancel context.CancelFunc) func() {
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-p.stop:
			cancel()
		case <-ctx.Done():
		}
	})
	return func() { cancel(); wg.Wait() }
}

// Drain stops pulling; what still arrives is given back at once. It does not block; Run returns when the last handler has.
func (p *Pool) Drain() { p.stopOnce.Do(func() { close(p.stop) }) }

// Draining reports whether Drain was called.
func (p *Pool) Draining() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

// Running is how many deliveries are being handled.
func (p *Pool) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.active)
}

// Slots is how many ordinary requests of the kind are handled at most.
func (p *Pool) Slots(kind Kind) int {
	switch kind {
	case KindExec:
		return p.cfg.Slots
	case KindTerminal:
		return p.cfg.TerminalSlots
	case KindEnd:
		return p.cfg.EndSlots
	}
	return 0
}

// JournalFull reports whether pulling rests because the journal is near its byte limit.
func (p *Pool) JournalFull() bool { return p.full.Load() }

// Healthy is nil while the broker answers every pull, at least by its heartbeat. It does not block.
func (p *Pool) Healthy() error {
	errs := []error{p.bus.Ready()}
	for _, l := range p.lanes {
		for _, u := range l.pullers() {
			errs = append(errs, u.health())
		}
	}
	return errors.Join(errs...)
}

// keep holds every delivery in progress. One ticker serves all: a delivery that is younger than the tick is renewed early.
func (p *Pool) keep(ctx context.Context) error {
	tick := time.NewTicker(p.bus.cfg.AckWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, d := range p.held() {
			if err := d.InProgress(); err != nil && d.open() {
				p.log.Warn().Err(err).Str("tenant", d.Tenant).Msg("a request could not be kept in progress")
			}
		}
	}
}

func (p *Pool) held() []*Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*Delivery, 0, len(p.active))
	for _, d := range p.active {
		if d.open() {
			out = append(out, d)
		}
	}
	return out
}

// watchJournal looks at the journal's fill every 5 s.
func (p *Pool) watchJournal(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.checkJournal(ctx)
		}
	}
}

// checkJournal rests pulling while the journal is nearly full: what was begun must be able to end.
func (p *Pool) checkJournal(ctx context.Context) {
	share, err := p.bus.JournalShare(ctx)
	if err != nil {
		return // the broker is away, and nothing can be pulled anyway
	}
	full := share >= JournalHighWater
	if p.full.Swap(full) != full {
		p.log.Warn().Float64("share", share).Bool("resting", full).Msg("the journal's fill has passed the mark at which pulling rests")
	}
}

// start hands a delivery to the handler; release is called when it has returned. A message that this very worker still
// handles is not a new request: only its handle is new.
func (p *Pool) start(ctx context.Context, d *Delivery, release func()) {
	key := activeKey{d.Source, d.streamSeq}
	p.mu.Lock()
	if have := p.active[key]; have != nil && have.adopt(d) {
		p.mu.Unlock()
		release()
		return
	}
	p.active[key] = d
	p.handlers.Add(1)
	p.mu.Unlock()
	p.bus.met.running.WithLabelValues(string(d.Kind)).Inc()
	go func() {
		defer p.handlers.Done()
		defer release()
		defer p.finish(key, d)
		p.handler(ctx, d)
	}()
}

// finish also stands between a handler's panic and the other runs of this process; its request is delivered again.
func (p *Pool) finish(key activeKey, d *Delivery) {
	if fault := recover(); fault != nil {
		p.log.Error().Str("tenant", d.Tenant).Interface("panic", fault).Bytes("stack", debug.Stack()).Msg("a handler panicked")
	}
	d.Forget()
	p.bus.met.running.WithLabelValues(string(d.Kind)).Dec()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active[key] == d {
		delete(p.active, key)
	}
}
