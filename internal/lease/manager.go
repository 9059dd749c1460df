package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
)

// Manager is one process's door to the leases. All methods may be called
// concurrently; each call to Redis is bounded by Config.CallTimeout.
type Manager struct {
	cfg     Config
	keys    keys
	scripts map[op]*redis.Script
	log     zerolog.Logger
	metrics *metrics
	// lineArgs are waiter TTL, line max, parked max, give way and channel.
	lineArgs string
	touched  *touches
	gate     *Gate
	pending  *pending
	freed    chan Freed  // sent to by the signal loop of Run, never closed
	takes    atomic.Bool // somebody reads freed

	// calls serves requests, beats the heartbeats: a pool that is busy with
	// requests must not starve renewals.
	calls, beats redis.UniversalClient
	// requests and renewals carry the scripts over them.
	requests, renewals *courier

	began time.Time
	away  atomic.Bool  // the last call got no word of Redis
	last  atomic.Int64 // when Redis last answered, as elapsed
	calm  atomic.Int64 // no held lease is unconfirmed before this, as elapsed

	closing   chan struct{} // closed once by Close
	heartbeat sync.WaitGroup
	mu        sync.Mutex // protects closed and held
	closed    bool
	held      map[*Lease]struct{}
}

// Open connects, proves that the server runs what the leases need, and checks
// that its eviction policy drops nothing. It blocks for a few calls at most.
// Errors: *Misconfigured for what retrying does not mend, else an
// ErrUnavailable.
func Open(ctx context.Context, cfg Config) (*Manager, error) { return open(ctx, cfg, nil) }

func open(ctx context.Context, cfg Config, edit func(name, source string) string) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	calls, err := newClient(cfg, 64)
	if err != nil {
		return nil, err
	}
	beats, err := newClient(cfg, 8)
	if err != nil {
		return nil, errors.Join(err, calls.Close())
	}
	m := &Manager{
		cfg: cfg, keys: keys{cfg.Prefix}, scripts: compile(edit), log: *cfg.Logger,
		calls: calls, beats: beats, requests: newCourier(calls, cfg.CallTimeout), renewals: newCourier(beats, cfg.CallTimeout),
		pending: newPending(cfg.Now), began: cfg.Now(),
		freed: make(chan Freed, 256), closing: make(chan struct{}), held: map[*Lease]struct{}{},
	}
	m.touched = newTouches(cfg.TTL / 2)
	m.lineArgs = fmt.Sprintf("%s %d %d %s %s", ms(cfg.WaiterTTL), cfg.LineMax, cfg.ParkedMax, ms(cfg.GiveWay), m.keys.signals())
	if m.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, errors.Join(err, m.closeClients())
	}
	m.gate = newGate(m)
	if err := m.selftest(ctx); err != nil {
		return nil, errors.Join(err, m.closeClients())
	}
	return m, nil
}

// Run retries what Close and Release could not finish, listens to signals, and
// watches Redis, until ctx ends; then it returns nil. Leases are granted and
// renewed without it; run it once.
func (m *Manager) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.listen(ctx) })
	g.Go(func() error { return m.settle(ctx) })
	g.Go(func() error { return m.watch(ctx) })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("run lease manager: %w", err)
	}
	return nil
}

// Close ends every heartbeat and closes the connections. It releases nothing
// that is still held: a command may run on, and its lease is then transferred
// to whoever takes it over, or expires. Releases already asked for get one
// last try, a second in all. Blocks for at most that and one call.
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	close(m.closing)
	m.mu.Unlock()
	m.heartbeat.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if !m.away.Load() {
		m.settleDue(ctx, true)
	}
	return m.closeClients()
}

func (m *Manager) closeClients() error {
	err := errors.Join(m.calls.Close(), m.beats.Close())
	m.requests.close()
	m.renewals.close()
	if err != nil {
		return fmt.Errorf("close lease store: %w", err)
	}
	return nil
}

// Owner is the name this process holds leases under.
func (m *Manager) Owner() string { return m.cfg.Owner }

// Gate is the shared gate before the provider.
func (m *Manager) Gate() *Gate { return m.gate }

// Admit says whether new work may be taken: Redis answered last time, and
// every held lease is confirmed. It never blocks.
func (m *Manager) Admit() bool {
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	return !closed && !m.away.Load() && m.unconfirmed() == 0
}

// Ready asks Redis and returns nil, ErrUnconfirmed, ErrClosed or an
// ErrUnavailable. It blocks for one call at most.
func (m *Manager) Ready(ctx context.Context) error {
	if err := m.ping(ctx); err != nil {
		return err
	}
	if m.unconfirmed() > 0 {
		return ErrUnconfirmed
	}
	return nil
}

// elapsed is monotonic: a wall clock that is set changes nothing here.
func (m *Manager) elapsed() time.Duration { return m.cfg.Now().Sub(m.began) }

// unconfirmed asks every lease for its state, which each derives from the
// clock: a count kept beside would be wrong right after a pause. It looks again
// only once the earliest deadline it saw has come: deadlines only move on, and
// a lease granted meanwhile was asked for one call before now at the earliest.
func (m *Manager) unconfirmed() int {
	now := m.elapsed()
	if now < time.Duration(m.calm.Load()) {
		return 0
	}
	m.mu.Lock()
	leases := make([]*Lease, 0, len(m.held))
	for l := range m.held {
		leases = append(leases, l)
	}
	m.mu.Unlock()
	n, calm := 0, now+m.cfg.TTL-m.cfg.Margin-m.cfg.CallTimeout
	for _, l := range leases {
		state, deadline := l.standing()
		if state == Unconfirmed {
			n++
		}
		if state != Detached {
			calm = min(calm, deadline.Sub(m.began))
		}
	}
	m.calm.Store(int64(calm))
	m.metrics.unconfirmed.Set(float64(n))
	return n
}

// adopt registers a granted lease and starts its heartbeat.
func (m *Manager) adopt(l *Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.held[l] = struct{}{}
	m.metrics.held.Inc()
	m.heartbeat.Add(1)
	go func() {
		defer m.heartbeat.Done()
		l.beat()
	}()
	return nil
}

func (m *Manager) drop(l *Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.held[l]; ok {
		delete(m.held, l)
		m.metrics.held.Dec()
	}
}

// poke lets the leases renew now: all, or those of one id.
func (m *Manager) poke(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.held {
		if id == "" || l.req.ID == id {
			select {
			case l.poked <- struct{}{}:
			default:
			}
		}
	}
}
