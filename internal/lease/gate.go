package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// GateConfig sets the provider gate up.
type GateConfig struct {
	// Exempt operations are never held up. Defaults to delete, end, kill.
	Exempt []string
	// Shared operations have a share per tenant while the provider's own limit
	// was met within LimitedFor. Defaults to create.
	Shared []string
	// SharePerMinute and ShareBurst are a tenant's share; negative is none.
	// Default to 5 and 5: half of the 10 creations a minute of an organisation
	// (Sprites SDK, comment on rate limits).
	SharePerMinute, ShareBurst int
	// Window, Threshold: an operation closes when that many calls failed within
	// the window and at least half of all. Default to 10 s and 5.
	Window    time.Duration
	Threshold int
	// FirstBackoff doubles with each failed probe up to LastBackoff, which bounds
	// how long the end of an outage goes unnoticed: a probe is one call of the
	// whole fleet's. Default to 1 s and 10 s.
	FirstBackoff, LastBackoff time.Duration
	// LimitHint replaces a missing retry-after, LimitMax caps one. Default to
	// 5 s and 5 min.
	LimitHint, LimitMax time.Duration
	// LimitedFor is how long shares hold after a limit was met. Defaults to
	// 10 min.
	LimitedFor time.Duration
	// ProbeTTL is how long a probe may take before another is sent. Defaults
	// to 90 s: a cold create must fit.
	ProbeTTL time.Duration
	// Cache is how long an answer is kept in the process. Defaults to 250 ms.
	Cache time.Duration
}

func (c GateConfig) withDefaults() GateConfig {
	if c.Exempt == nil {
		c.Exempt = []string{"delete", "end", "kill"}
	}
	if c.Shared == nil {
		c.Shared = []string{"create"}
	}
	or(&c.SharePerMinute, 5)
	or(&c.ShareBurst, 5)
	or(&c.Window, 10*time.Second)
	or(&c.Threshold, 5)
	or(&c.FirstBackoff, time.Second)
	or(&c.LastBackoff, 10*time.Second)
	or(&c.LimitHint, 5*time.Second)
	or(&c.LimitMax, 5*time.Minute)
	or(&c.LimitedFor, 10*time.Minute)
	or(&c.ProbeTTL, 90*time.Second)
	or(&c.Cache, 250*time.Millisecond)
	return c
}

func (c GateConfig) validate() error {
	var errs []error
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"window", c.Window}, {"first backoff", c.FirstBackoff}, {"last backoff", c.LastBackoff}, {"limit hint", c.LimitHint},
		{"limit max", c.LimitMax}, {"limited for", c.LimitedFor}, {"probe ttl", c.ProbeTTL}, {"cache", c.Cache},
	} {
		if d.d <= 0 {
			errs = append(errs, fmt.Errorf("gate config: %s %s is not positive", d.name, d.d))
		}
	}
	if c.Threshold < 1 {
		errs = append(errs, fmt.Errorf("gate config: threshold %d is not positive", c.Threshold))
	}
	return errors.Join(errs...)
}

// GateStatus is what a gate does.
type GateStatus string

// The statuses.
const (
	GateOpen    GateStatus = "open"
	GateProbing GateStatus = "probing" // one call tests the provider, the rest wait
	GateShut    GateStatus = "closed"
)

// GateState is one operation's gate, for operators.
type GateState struct {
	Op     string     `json:"op"`
	Status GateStatus `json:"status"`
	// Until is when it may open or probe again, by the server's clock.
	Until time.Time `json:"until,omitzero"`
	Why   string    `json:"why,omitempty"`
	// Failures are those counted in the current window.
	Failures int `json:"failures"`
}

// Gate is back-pressure and breaker in one, per operation, shared by the
// fleet: a rate limit closes the operation by its hint, an outage by backoff;
// one probe opens it. It is advice from Redis: without Redis, what this
// process last knew counts, and otherwise it is open. Methods may be called
// concurrently and block for one call to Redis at most.
type Gate struct {
	m   *Manager
	cfg GateConfig

	mu    sync.Mutex // protects known
	known map[string]*known
}

// known is what this process last heard of one operation.
type known struct {
	openUntil, shutUntil time.Time
	why                  string
	oks                  int // successes not yet told
	untold               *report
}

// report is a probe's answer that Redis has not heard. While the probe's time runs the whole fleet waits for it.
type report struct {
	kind       gateKind
	why        string
	retryAfter time.Duration
	pass       string
	until      time.Time
}

// knownMax bounds the operations a process tracks; operations are a closed set
// of a dozen. Beyond it calls pass ungated.
const knownMax = 64

func newGate(m *Manager) *Gate { return &Gate{m: m, cfg: m.cfg.Gate, known: map[string]*known{}} }

// Enter asks whether a call may be made now: nil, a *GateClosed, or ctx's
// cause. Whoever entered must Report with the pass that it got, which tells the
// probe from the calls that began before the gate closed.
func (g *Gate) Enter(ctx context.Context, op, tenant string) (pass string, err error) {
	if slices.Contains(g.cfg.Exempt, op) {
		return "", nil
	}
	shared := slices.Contains(g.cfg.Shared, op)
	if decided, err := g.recall(op, shared); decided {
		return "", err
	}
	rate := g.cfg.SharePerMinute
	if !shared {
		rate = 0
	}
	token := g.m.cfg.NewID()
	reply, ran, err := g.m.call(ctx, g.m.requests, opGateEnter,
		[]string{g.m.keys.gate(op), g.m.keys.share(op, tenant)},
		[]any{ms(g.cfg.ProbeTTL), strconv.Itoa(max(rate, 0)), strconv.Itoa(max(g.cfg.ShareBurst, 1)), token})
	if err != nil {
		if ctx.Err() != nil {
			if ran { // what was let in is not made
				g.keep(op, report{kind: gateNone, pass: token, until: g.m.cfg.Now().Add(g.cfg.ProbeTTL)})
			}
			return "", fmt.Errorf("enter gate %s: %w", op, context.Cause(ctx))
		}
		if ran {
			return token, nil // this may be the probe, and nobody else can say how it ended
		}
		return "", nil
	}
	if reply[0] == "probe" {
		pass = token
	}
	return pass, g.learn(op, reply, shared)
}

// recall answers from memory: a fresh answer, or, without Redis, the last one.
func (g *Gate) recall(op string, shared bool) (decided bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.known[op]
	if k == nil {
		if len(g.known) >= knownMax {
			return true, nil
		}
		k = &known{}
		g.known[op] = k
	}
	now := g.m.cfg.Now()
	if now.Before(k.shutUntil) {
		return true, g.refuse(op, k.why, k.shutUntil.Sub(now))
	}
	return g.m.away.Load() || !shared && now.Before(k.openUntil), nil
}

func (g *Gate) learn(op string, reply []string, shared bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	k, now := g.known[op], g.m.cfg.Now()
	wait, why := span(field(reply, 1)), field(reply, 2)
	switch {
	case reply[0] == "probe":
		g.m.metrics.gate.WithLabelValues(op).Set(1)
		return nil
	case reply[0] == "open":
		if !shared {
			k.openUntil = now.Add(g.cfg.Cache)
		}
		g.m.metrics.gate.WithLabelValues(op).Set(0)
		return nil
	case why == "share":
		return g.refuse(op, why, wait) // one tenant's: not everybody's
	default:
		k.shutUntil, k.why = now.Add(min(wait, g.cfg.Cache)), why
		g.m.metrics.gate.WithLabelValues(op).Set(2)
		return g.refuse(op, why, wait)
	}
}

func (g *Gate) refuse(op, why string, wait time.Duration) error {
	g.m.metrics.gateRefused.WithLabelValues(op, why).Inc()
	return &GateClosed{Op: op, Why: why, RetryAfter: g.m.cfg.jitter(wait, 0.1)}
}
