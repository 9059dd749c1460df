package lease

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// gateKind is what an outcome says about the provider.
type gateKind string

const (
	gateOK    gateKind = "ok"    // it answered, whatever it said
	gateFail  gateKind = "fail"  // it did not
	gateLimit gateKind = "limit" // it asked for less
	gateNone  gateKind = "none"  // the call says nothing about it
)

// gateKindOf is the table. A running-sandbox limit says nothing about those
// that already run, so it closes nothing.
func gateKindOf(class string) gateKind {
	switch class {
	case "rate_limited":
		return gateLimit
	case "unavailable", "timeout", "transport":
		return gateFail
	case "canceled", "concurrent_limit":
		return gateNone
	default:
		return gateOK
	}
}

// Report tells how a call that entered with pass ended: class is the provider
// error's class, "" for success; retryAfter is its hint, 0 for none. Successes
// while the gate is open are counted in the process and told once a second.
func (g *Gate) Report(ctx context.Context, op, pass, class string, retryAfter time.Duration) {
	g.mu.Lock()
	k := g.known[op]
	kind := gateKindOf(class)
	if k == nil || kind == gateOK && pass == "" {
		if k != nil {
			k.oks++
		}
		g.mu.Unlock()
		return
	}
	oks := k.oks
	k.oks = 0
	if kind != gateOK {
		k.openUntil = time.Time{}
	}
	g.mu.Unlock()
	r := report{kind: kind, why: class, retryAfter: retryAfter, pass: pass, until: g.m.cfg.Now().Add(g.cfg.ProbeTTL)}
	if !g.send(ctx, op, r, oks) && pass != "" {
		g.keep(op, r)
	}
}

// keep leaves a probe's answer for flush. A newer one of the same operation replaces it: then the older probe was given up.
func (g *Gate) keep(op string, r report) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k := g.known[op]; k != nil && (k.untold == nil || k.untold.until.Before(r.until)) {
		k.untold = &r
	}
}

// send tells Redis; false when it did not answer.
func (g *Gate) send(ctx context.Context, op string, r report, oks int) bool {
	if r.retryAfter <= 0 {
		r.retryAfter = g.cfg.LimitHint
	}
	// Whoever canceled the call must not keep the fleet from hearing of it.
	reply, _, err := g.m.call(context.WithoutCancel(ctx), g.m.requests, opGateReport,
		[]string{g.m.keys.gate(op), g.m.keys.gates()},
		[]any{
			string(r.kind), r.why, ms(min(r.retryAfter, g.cfg.LimitMax)), strconv.Itoa(oks), ms(g.cfg.Window),
			strconv.Itoa(g.cfg.Threshold), ms(g.cfg.FirstBackoff), ms(g.cfg.LastBackoff), ms(g.cfg.LimitedFor), op, r.pass,
		})
	if err != nil {
		g.m.log.Debug().Err(err).Str("op", op).Msg("provider gate not told")
		return false
	}
	states := map[string]float64{"open": 0, "probing": 1, "closed": 2}
	g.m.metrics.gate.WithLabelValues(op).Set(states[reply[0]])
	if reply[0] == "open" {
		g.mu.Lock()
		if k := g.known[op]; k != nil {
			k.shutUntil = time.Time{}
		}
		g.mu.Unlock()
	}
	return true
}

// flush tells the successes that no failure has carried along, and the answers of probes that were not heard.
func (g *Gate) flush(ctx context.Context) {
	if g.m.away.Load() {
		return
	}
	g.mu.Lock()
	oks, untold := map[string]int{}, map[string]report{}
	for op, k := range g.known {
		if k.oks > 0 {
			oks[op], k.oks = k.oks, 0
		}
		if k.untold != nil && g.m.cfg.Now().Before(k.untold.until) {
			untold[op] = *k.untold
		}
		k.untold = nil
	}
	g.mu.Unlock()
	for op, r := range untold {
		if !g.send(ctx, op, r, 0) {
			g.keep(op, r)
		}
	}
	for op, n := range oks {
		g.send(ctx, op, report{kind: gateNone}, n)
	}
}

// States reads every gate that any process has used, for metrics and
// operators. Errors: an ErrUnavailable. Blocks for one call per gate at most.
func (g *Gate) States(ctx context.Context) ([]GateState, error) {
	var ops []string
	err := g.m.ask(ctx, opList, func(ctx context.Context) error {
		var err error
		ops, err = g.m.calls.SMembers(ctx, g.m.keys.gates()).Result()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read gates: %w", err)
	}
	states := make([]GateState, 0, len(ops))
	for _, op := range ops[:min(len(ops), knownMax)] {
		var hash *redis.MapStringStringCmd
		var clock *redis.TimeCmd
		err := g.m.ask(ctx, opList, func(ctx context.Context) error {
			p := g.m.calls.Pipeline()
			clock, hash = p.Time(ctx), p.HGetAll(ctx, g.m.keys.gate(op))
			_, err := p.Exec(ctx)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read gate %s: %w", op, err)
		}
		states = append(states, gateState(op, hash.Val(), clock.Val()))
	}
	return states, nil
}

func gateState(op string, v map[string]string, now time.Time) GateState {
	s := GateState{Op: op, Status: GateOpen, Failures: int(number(v["fail"]))}
	if v["s"] == "" {
		return s
	}
	s.Status, s.Why, s.Until = GateStatus(v["s"]), v["why"], time.UnixMilli(number(v["u"]))
	if s.Status == GateShut && !s.Until.After(now) {
		s.Status = GateProbing // the next caller is the probe
	}
	return s
}
