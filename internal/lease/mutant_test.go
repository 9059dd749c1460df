package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/lease"
)

// mutant changes one thing in one script; some probe must notice.
type mutant struct{ name, script, from, to string }

var mutants = []mutant{
	{"limit off by one", "acquire", "if free <= 0 and not alive(z, id) then\n    if not force", "if free < 0 and not alive(z, id) then\n    if not force"},
	{"partial acquire: an id enters the narrow scope before the wide one is judged", "acquire", "  if free <= 0 and not alive(z, id) then\n    if not force", "  if free > 0 then call('ZADD', z, str(now + ttl), id) end\n  if free <= 0 and not alive(z, id) then\n    if not force"},
	{"widest scope not counted", "acquire", "for i = 1, n do\n  local z, w, limit", "for i = 1, n - 1 do\n  local z, w, limit"},
	{"dead ids never pruned", "acquire", "local dead = call('ZRANGEBYSCORE', z, '-inf', str(now), 'LIMIT', 0, 128)", "local dead = {}"},
	{"live ids pruned too", "acquire", "call('ZRANGEBYSCORE', z, '-inf', str(now), 'LIMIT'", "call('ZRANGEBYSCORE', z, '-inf', '+inf', 'LIMIT'"},
	{"fence counted instead of clocked", "acquire", "math.max(last + 1, tonumber(T[1]) * 1000000 + tonumber(T[2]))", "last + 1"},
	{"fence printed with 14 digits", "acquire", "return string.format('%.0f', n)", "return tostring(n)"},
	{"transfer keeps the fence", "acquire", "return place(str(f), str(f), 'transferred')", "return place(rec.f, rec.g, 'transferred')"},
	{"acquire ignores a revocation", "acquire", "if rec.s == 'X'", "if rec.s == 'never'"},
	{"acquire ignores the tombstone of a given-up call", "acquire", "if seen[1] then", "if false then"},
	{"renewal ignores the fence", "renew", "if theirs > grant then return", "if false then return"},
	{"renewal ignores a release", "renew", "if mine and rec.s == 'R'", "if false"},
	{"renewal outlives the longest hold", "renew", "if x <= now then", "if false then"},
	{"release ignores the fence", "release", "tonumber(rec.g) > fence", "false"},
	{"release leaves the wide scope", "release", "for i = 1, n do\n  if not live and alive", "for i = 1, n - 1 do\n  if not live and alive"},
	{"late release leaves no tombstone", "release", "if tomb > 0 then", "if false then"},
	{"keys expire before their leases", "acquire", "call('PEXPIRE', KEYS[4 + i], keyttl)", "call('PEXPIRE', KEYS[4 + i], '50')"},
	{"quarantine ignored", "acquire", "if quarantine > 0", "if false"},
	{"give-back frees a slot it did not add", "abandon", "or rec.v ~= 'granted'", ""},
	{"younger waiter overtakes", "acquire", "e.order >= mine_order", "true"},
}

// arena opens managers whose scripts are a mutant's.
type arena struct {
	s      *server
	prefix string
	edit   func(name, source string) string
	opened []*lease.Manager
}

func (a *arena) open(change func(*lease.Config)) (*lease.Manager, error) {
	cfg := lease.Config{URL: a.s.url, Prefix: a.prefix, TTL: time.Minute, Quarantine: -1}
	if change != nil {
		change(&cfg)
	}
	m, err := lease.OpenEdited(context.Background(), cfg, a.edit)
	if err == nil {
		a.opened = append(a.opened, m)
	}
	return m, err
}

func (a *arena) close() {
	for _, m := range a.opened {
		_ = m.Close()
	}
}

// probes are what must hold, each within milliseconds.
var probes = map[string]func(a *arena) error{
	"limits hold in every scope, all or nothing": probeLimits,
	"dead ids make room, live ones do not":       probePrune,
	"the fence grows, also over a loss of data":  probeFence,
	"old holders change nothing":                 probeStale,
	"late calls find tombstones":                 probeLate,
	"the longest hold ends":                      probeHold,
	"keys outlive their leases":                  probeKeys,
	"an empty start is quarantined":              probeQuarantine,
	"waiters go in order":                        probeOrder,
	"what is revoked stays away":                 probeRevoked,
}

func (a *arena) try() error {
	defer a.close()
	for _, name := range slices.Sorted(maps.Keys(probes)) {
		if err := probes[name](a); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := a.s.raw.FlushAll(context.Background()).Err(); err != nil {
			return err
		}
	}
	return nil
}

// broken is a probe's finding.
func broken(format string, args ...any) error { return fmt.Errorf("does not hold: "+format, args...) }

func two(id string, user, tenant int) lease.Request {
	r := ask(id, user)
	r.Scopes = append(r.Scopes, lease.TenantScope(lease.KindExec, "acme", tenant))
	return r
}

func isDenied(err error, scope string) bool {
	var d *lease.Denied
	return errors.As(err, &d) && d.Scope.Label() == scope
}

func probeLimits(a *arena) error {
	ctx := context.Background()
	m, err := a.open(nil)
	if err != nil {
		return err
	}
	l, err := m.Acquire(ctx, two("a", 2, 1))
	if err != nil {
		return err
	}
	if _, err := m.Acquire(ctx, two("b", 2, 1)); !isDenied(err, "tenant") {
		return broken("tenant: %v", err)
	}
	if n, err := m.InUse(ctx, two("", 0, 0).Scopes[0]); n != 1 || err != nil {
		return broken("user holds %d %v", n, err)
	}
	if _, err := m.Acquire(ctx, two("c", 1, 9)); !isDenied(err, "user") {
		return broken("user: %v", err)
	}
	if ok, err := l.Release(ctx); !ok || err != nil {
		return broken("release %v %v", ok, err)
	}
	for i := range 2 {
		if n, err := m.InUse(ctx, two("", 0, 0).Scopes[i]); n != 0 || err != nil {
			return broken("scope %d holds %d %v after release", i, n, err)
		}
	}
	return nil
}

func probePrune(a *arena) error {
	ctx := context.Background()
	m, err := a.open(nil)
	if err != nil {
		return err
	}
	for _, id := range []string{"a", "b"} {
		l, err := m.Acquire(ctx, two(id, 2, 9))
		if err != nil {
			return err
		}
		l.Forget()
	}
	if _, err := m.Acquire(ctx, two("c", 2, 9)); !isDenied(err, "user") {
		return broken("beside two live ones: %v", err)
	}
	if err := shiftScript.Run(ctx, a.s.raw, nil, (2 * time.Minute).Milliseconds()).Err(); err != nil {
		return err
	}
	if _, err := m.Acquire(ctx, two("c", 2, 9)); err != nil {
		return fmt.Errorf("beside two dead ones: %w", err)
	}
	return nil
}

func probeFence(a *arena) error {
	ctx := context.Background()
	m, err := a.open(nil)
	if err != nil {
		return err
	}
	var last int64
	for i := range 4 {
		if i == 2 {
			if err := a.s.raw.FlushAll(ctx).Err(); err != nil {
				return err
			}
		}
		l, err := m.Acquire(ctx, two("a", 1, 1))
		if err != nil {
			return err
		}
		if l.Fence() <= last {
			return broken("fence %d after %d", l.Fence(), last)
		}
		last = l.Fence()
	}
	return nil
}

func probeStale(a *arena) error {
	ctx := context.Background()
	m, err := a.open(nil)
	if err != nil {
		return err
	}
	old, err := m.Acquire(ctx, two("a", 1, 1))
	if err != nil {
		return err
	}
	taker, err := a.open(func(c *lease.Config) { c.Owner = "taker.1" })
	if err != nil {
		return err
	}
	l, err := taker.Acquire(ctx, two("a", 1, 1))
	if err != nil {
		return err
	}
	if ok, err := old.Release(ctx); ok || err != nil {
		return broken("a stale release: %v %v", ok, err)
	}
	if n, err := m.InUse(ctx, two("", 0, 0).Scopes[0]); n != 1 || err != nil {
		return broken("%d %v after a stale release", n, err)
	}
	third, err := a.open(func(c *lease.Config) { c.Owner = "third.1" })
	if err != nil {
		return err
	}
	if _, err := third.Acquire(ctx, two("a", 1, 1)); err != nil {
		return err
	}
	var lost *lease.Lost
	if err := l.RenewNow(); !errors.As(err, &lost) || lost.Reason != lease.Transferred {
		return broken("a stale renewal: %v", err)
	}
	return nil
}

// probeLate runs calls in the order in which a slow network delivers them.
func probeLate(a *arena) error {
	ctx := context.Background()
	m, err := a.open(nil)
	if err != nil {
		return err
	}
	l, err := m.Acquire(ctx, two("a", 1, 1))
	if err != nil {
		return err
	}
	// The release by another process, then the holder's renewal.
	if ok, err := m.ReleaseID(ctx, "a", l.Fence()); !ok || err != nil {
		return broken("release by id: %v %v", ok, err)
	}
	var lost *lease.Lost
	if err := l.RenewNow(); !errors.As(err, &lost) || lost.Reason != lease.Transferred {
		return broken("a renewal of a released lease: %v", err)
	}
	// The give-back, then the acquire itself.
	nonces := &nonceTap{}
	late, err := a.open(func(c *lease.Config) { c.NewID = nonces.next })
	if err != nil {
		return err
	}
	if err := late.Abandon(ctx, two("b", 1, 1), "nonce-b"); err != nil {
		return err
	}
	nonces.force = "nonce-b"
	if _, err := late.Acquire(ctx, two("b", 1, 1)); !errors.Is(err, lease.ErrAbandoned) {
		return broken("a late acquire: %v", err)
	}
	// The give-back of a transfer frees nothing of the run it took over.
	nonces.force = "nonce-c"
	if _, err := m.Acquire(ctx, two("c", 1, 1)); err != nil {
		return err
	}
	if _, err := late.Acquire(ctx, two("c", 1, 1)); err != nil {
		return err
	}
	if err := late.Abandon(ctx, two("c", 1, 1), "nonce-c"); err != nil {
		return err
	}
	if n, err := m.InUse(ctx, two("", 0, 0).Scopes[0]); n != 1 || err != nil {
		return broken("%d %v after giving a transfer back", n, err)
	}
	return nil
}

type nonceTap struct {
	force string
	n     int
}

func (t *nonceTap) next() string {
	if t.force != "" {
		return t.force
	}
	t.n++
	return fmt.Sprintf("tap-%d", t.n)
}

func probeHold(a *arena) error {
	ctx := context.Background()
	m, err := a.open(nil)
	if err != nil {
		return err
	}
	r := two("a", 1, 1)
	r.MaxHold = 90 * time.Second
	l, err := m.Acquire(ctx, r)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		lost bool
		d    time.Duration
	}{{false, 45 * time.Second}, {true, 46 * time.Second}} {
		if err := shiftScript.Run(ctx, a.s.raw, nil, step.d.Milliseconds()).Err(); err != nil {
			return err
		}
		var lost *lease.Lost
		err := l.RenewNow()
		if got := errors.As(err, &lost) && lost.Reason == lease.MaxHold; got != step.lost {
			return broken("renewal after %s: %v", step.d, err)
		}
	}
	return nil
}

func probeKeys(a *arena) error {
	ctx := context.Background()
	m, err := a.open(nil)
	if err != nil {
		return err
	}
	if _, err := m.Acquire(ctx, two("a", 1, 1)); err != nil {
		return err
	}
	for _, k := range []string{":r:a", ":z:exec:u:acme:ann", ":z:exec:t:acme"} {
		ttl, err := a.s.raw.PTTL(ctx, a.prefix+k).Result()
		if err != nil || ttl < 2*time.Minute {
			return broken("%s lives %s %v", k, ttl, err)
		}
	}
	return nil
}

func probeQuarantine(a *arena) error {
	m, err := a.open(func(c *lease.Config) { c.Quarantine = time.Minute })
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := m.Acquire(ctx, two("a", 1, 1)); !errors.Is(err, lease.ErrWarmingUp) {
		return broken("right after an empty start: %v", err)
	}
	if err := shiftScript.Run(ctx, a.s.raw, nil, (61 * time.Second).Milliseconds()).Err(); err != nil {
		return err
	}
	_, err = m.Acquire(ctx, two("a", 1, 1))
	return err
}

func probeOrder(a *arena) error {
	ctx := context.Background()
	m, err := a.open(nil)
	if err != nil {
		return err
	}
	l, err := m.Acquire(ctx, two("a", 1, 9))
	if err != nil {
		return err
	}
	wait := func(id string, queued int64) (*lease.Lease, error) {
		r := two(id, 1, 9)
		r.Scopes, r.Queued = lease.Waiting(r.Scopes), queued
		return m.Acquire(ctx, r)
	}
	for id, queued := range map[string]int64{"second": 20, "first": 10} {
		if _, err := wait(id, queued); !isDenied(err, "user") {
			return broken("%s: %v", id, err)
		}
	}
	l.Forget()
	if err := shiftScript.Run(ctx, a.s.raw, nil, (30 * time.Second).Milliseconds()).Err(); err != nil {
		return err
	}
	if err := a.s.raw.ZRem(ctx, a.prefix+":z:exec:u:acme:ann", "a").Err(); err != nil {
		return err
	}
	if _, err := wait("second", 20); !isDenied(err, "user") {
		return broken("the younger one: %v", err)
	}
	_, err = wait("first", 10)
	return err
}

func probeRevoked(a *arena) error {
	ctx := context.Background()
	m, err := a.open(nil)
	if err != nil {
		return err
	}
	if _, err := m.Acquire(ctx, two("a", 1, 1)); err != nil {
		return err
	}
	if err := m.Revoke(ctx, "a", "test", "ops", true); err != nil {
		return err
	}
	var lost *lease.Lost
	if _, err := m.Acquire(ctx, two("a", 1, 1)); !errors.As(err, &lost) || lost.Reason != lease.Revoked {
		return broken("acquire of a revoked id: %v", err)
	}
	return nil
}

// TestMutantsOfTheScriptsAreKilled changes the scripts one by one: what no
// probe notices is not tested. A real server kills all; miniredis prints every
// digit of a number and so cannot see the 14-digit fence.
func TestMutantsOfTheScriptsAreKilled(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		if err := (&arena{s: s, prefix: "{plain}"}).try(); err != nil {
			t.Fatalf("the unchanged scripts fail: %v", err)
		}
		killed := 0
		for i, mu := range mutants {
			changed := false
			a := &arena{s: s, prefix: fmt.Sprintf("{mutant%d}", i), edit: func(name, source string) string {
				if name != mu.script {
					return source
				}
				changed = strings.Contains(source, mu.from)
				return strings.Replace(source, mu.from, mu.to, 1)
			}}
			err := a.try()
			_ = s.raw.FlushAll(context.Background()).Err()
			switch {
			case !changed:
				t.Errorf("mutant %q does not apply to %s.lua any more", mu.name, mu.script)
			case err != nil:
				killed++
				t.Logf("killed %q by: %v", mu.name, err)
			case s.mini != nil && strings.Contains(mu.name, "14 digits"):
				t.Logf("survived on miniredis, as it must: %q", mu.name)
			default:
				t.Errorf("mutant survived: %s", mu.name)
			}
		}
		t.Logf("%d of %d mutants killed", killed, len(mutants))
	})
}
