package terminal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/wakebus/wakebus/internal/telemetry"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// Deps are the gateway's neighbours. All are needed.
type Deps struct {
	Gatekeeper Gatekeeper
	Opener     Opener
	Shells     Shells
	Records    Records
	Leases     Leases
	Journal    Journal
}

// Gateway serves terminals. Its methods may be called concurrently.
type Gateway struct {
	cfg Config
	log zerolog.Logger
	// strangers gets what anybody can cause, cut to ten lines a minute.
	strangers zerolog.Logger
	met       *metrics
	keeper    Gatekeeper
	opener    Opener
	shells    Shells
	records   Records
	leases    Leases
	journal   Journal

	// ctx ends when the gateway stops; every session runs under it. intake ends before, when it takes nobody in any more.
	// work counts the goroutines that it owns, edges those that serve sockets.
	ctx        context.Context
	cancel     context.CancelFunc
	intake     context.Context
	stopIntake context.CancelFunc
	work       sync.WaitGroup
	edges      sync.WaitGroup
	checks     *errgroup.Group // bounds the calls that one tick starts

	mu       sync.Mutex // protects all below
	sessions map[Page]*session
	ended    map[*session]struct{} // final output kept for a viewer who comes back
	sockets  int
	perUser  map[string]int // by tenant and user
	draining bool
}

// New returns a gateway that serves once Run is called. The error lists every problem.
func New(deps Deps, cfg Config) (*Gateway, error) {
	cfg.setDefaults()
	errs := []error{cfg.validate()}
	for name, missing := range map[string]bool{"gatekeeper": deps.Gatekeeper == nil, "opener": deps.Opener == nil, "shells": deps.Shells == nil,
		"records": deps.Records == nil, "leases": deps.Leases == nil, "journal": deps.Journal == nil} {
		if missing {
			errs = append(errs, fmt.Errorf("%s is missing", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("terminal gateway config: %w", err)
	}
	met, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register terminal metrics: %w", err)
	}
	gw := &Gateway{cfg: cfg, log: cfg.Logger.With().Str("gateway", cfg.Name).Logger(), met: met,
		keeper: deps.Gatekeeper, opener: deps.Opener, shells: deps.Shells, records: deps.Records, leases: deps.Leases, journal: deps.Journal,
		sessions: map[Page]*session{}, ended: map[*session]struct{}{}, perUser: map[string]int{}, checks: &errgroup.Group{}}
	gw.strangers = telemetry.Flood(gw.log, 10, time.Minute)
	gw.checks.SetLimit(32)
	gw.ctx, gw.cancel = context.WithCancel(context.Background())
	gw.intake, gw.stopIntake = context.WithCancel(gw.ctx)
	return gw, nil
}

// Run looks after the sessions until ctx ends, then hands them over and sends the viewers away: see Drain. It returns
// when everything that the gateway started has ended.
func (g *Gateway) Run(ctx context.Context) error {
	tick, stop := g.cfg.Tick(g.cfg.TickEvery)
	defer stop()
	for {
		select {
		case <-tick:
			g.tick(g.ctx)
		case <-ctx.Done():
			g.drain()
			g.cancel()
			g.work.Wait()
			return nil
		}
	}
}

// tick does all that is due. It starts no call twice and waits for all it started, so that ticks never overlap.
func (g *Gateway) tick(ctx context.Context) {
	now := g.cfg.Now()
	for _, s := range g.all() {
		s.tick(ctx, now, g.checks)
	}
	_ = g.checks.Wait() // the calls handle their errors themselves
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.ended {
		if s.forgettable(now) {
			delete(g.ended, s)
		}
	}
}

func (g *Gateway) all() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*session, 0, len(g.sessions))
	for _, s := range g.sessions {
		out = append(out, s)
	}
	return out
}

// tick does what is due for one session.
func (s *session) tick(ctx context.Context, now time.Time, calls *errgroup.Group) {
	s.mu.Lock()
	empty := len(s.viewers) == 0
	unused := empty && !s.empty.IsZero() && now.Sub(s.empty) >= s.gw.cfg.DetachWindow
	idle := s.state == stateLive && now.Sub(s.last) >= s.gw.cfg.IdleAfter
	adopt := !s.holder && s.rec.Shell.ID != "" && s.end == nil && !s.adoptAt.IsZero() && !now.Before(s.adoptAt)
	if adopt {
		s.adoptAt = now.Add(s.gw.cfg.AdoptEvery)
	}
	due := s.dueLocked(now)
	pings := s.pingsLocked(now)
	s.pruneLocked(now)
	s.mu.Unlock()
	switch {
	case unused:
		// The slot goes back and the attachment with it; the shell itself ends after another window, or is found again.
		s.stop(ending{reason: frame.ReasonDetached})
		return
	case idle:
		s.rest()
	}
	for _, p := range due {
		calls.Go(func() error { s.recheck(ctx, p); return nil })
	}
	if adopt {
		calls.Go(func() error { s.adopt(ctx); return nil })
	}
	for _, v := range pings {
		s.gw.work.Go(func() { v.ping(ctx) })
	}
}

// pingsLocked picks the viewers whose sockets are to be proven open.
func (s *session) pingsLocked(now time.Time) []*viewer {
	var out []*viewer
	for v := range s.viewers {
		if now.Sub(v.pinged) >= s.gw.cfg.PingEvery {
			v.pinged = now
			out = append(out, v)
		}
	}
	return out
}

// pruneLocked forgets clients that have been away for long, and the oldest beyond the bound.
func (s *session) pruneLocked(now time.Time) {
	for id, c := range s.clients {
		if c.viewer == nil && now.Sub(c.left) >= s.gw.cfg.DetachWindow {
			delete(s.clients, id)
		}
	}
}

// forgettable is true once an ended session has waited long enough for its viewer.
func (s *session) forgettable(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.viewers) == 0 && now.Sub(s.end.at) >= s.gw.cfg.FinalKeep
}

// sessionEnded moves a session out of the way of a new shell.
func (g *Gateway) sessionEnded(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[s.page] == s {
		delete(g.sessions, s.page)
		g.met.sessions.Dec()
	}
	// Only a shell that ended has last words; one that goes on elsewhere is met again by a new session.
	last := s.end.reason == frame.ReasonExited || s.end.reason == frame.ReasonGone
	if last && len(g.ended) < g.cfg.MaxSockets {
		g.ended[s] = struct{}{}
	}
}

// live asks whether a lease is renewed as due.
func (g *Gateway) live(ctx context.Context, lease string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.CallTimeout)
	defer cancel()
	ok, err := g.leases.Live(ctx, lease)
	if err != nil {
		return false, fmt.Errorf("ask for lease %s: %w", lease, err)
	}
	return ok, nil
}

// afterwards bounds a call that must be made even when its cause was the end of ctx.
func (g *Gateway) afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), g.cfg.CallTimeout)
}
