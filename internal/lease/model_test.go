package lease_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/lease"
)

// Model time runs in units, so that no comparison is ever a tie with the few
// real milliseconds a test takes.
const (
	unit      = 10 * time.Minute
	modelTTL  = 4*unit + unit/2
	modelHold = 11*unit + unit/4
)

type entry struct {
	state            string // "", A, R, X
	grant            int64
	owner            string
	expires, created time.Duration // model time; expires 0 = in no set
	until            time.Duration
	marked           bool
}

type handle struct {
	l       *lease.Lease
	id      string
	owner   string
	grant   int64
	fences  []int64
	settled bool
	over    bool          // detached by a loss, release still owed
	until   time.Duration // by the holder's own account
}

type model struct {
	s       *server
	clock   *clock
	ms      map[string]*lease.Manager
	now     time.Duration
	entries map[string]*entry
	handles []*handle
	fence   int64
}

var modelUsers = map[string]string{"acme.a.0.1": "ann", "acme.b.0.1": "ann", "acme.c.0.1": "bob", "acme.d.0.1": "bob", "acme.e.0.1": "bob"}

func modelScopes(id string, user, tenant int) []lease.Scope {
	return []lease.Scope{lease.UserScope(lease.KindExec, "acme", modelUsers[id], user), lease.TenantScope(lease.KindExec, "acme", tenant)}
}

func (m *model) live(id string) bool {
	e := m.entries[id]
	return e != nil && e.state == "A" && e.expires > m.now
}

// used counts the ids in a scope's set that have not expired, whatever their
// record says.
func (m *model) used(user string) (n int) {
	for id, e := range m.entries {
		if e.expires > m.now && (user == "" || modelUsers[id] == user) {
			n++
		}
	}
	return n
}

func (m *model) grew(t *rapid.T, f int64) {
	if f <= m.fence {
		t.Fatalf("fence %d after %d", f, m.fence)
	}
	m.fence = f
}

func (m *model) acquire(t *rapid.T) {
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(modelUsers))).Draw(t, "id")
	owner := rapid.SampledFrom([]string{"w1.1", "w2.1"}).Draw(t, "owner")
	userLimit, tenantLimit := rapid.IntRange(0, 3).Draw(t, "user"), rapid.IntRange(1, 4).Draw(t, "tenant")
	force := rapid.IntRange(0, 5).Draw(t, "force") == 0
	if !force && m.unconfirmed(owner) {
		if rapid.Bool().Draw(t, "the owner dies") {
			m.die(owner)
		} else if !m.ms[owner].Admit() {
			_, err := m.ms[owner].Acquire(context.Background(), ask(id, 1))
			if !errors.Is(err, lease.ErrUnconfirmed) {
				t.Fatalf("an owner with unconfirmed leases got %v", err)
			}
			return
		}
	}
	l, err := m.ms[owner].Acquire(context.Background(), lease.Request{
		ID: id, Kind: lease.KindExec, Tenant: "acme", User: modelUsers[id], MaxHold: modelHold,
		Scopes: modelScopes(id, userLimit, tenantLimit), Force: force,
	})
	e := m.entries[id]
	var lost *lease.Lost
	var denied *lease.Denied
	switch {
	case e != nil && e.state == "X":
		if !errors.As(err, &lost) || lost.Reason != lease.Revoked {
			t.Fatalf("%s is revoked, got %v", id, err)
		}
		return
	case e != nil && e.state == "A" && e.created+modelHold <= m.now:
		if !errors.As(err, &lost) || lost.Reason != lease.MaxHold {
			t.Fatalf("%s was held for its longest time, got %v", id, err)
		}
		return
	case m.live(id):
		if err != nil {
			t.Fatalf("transfer %s: %v", id, err)
		}
	case !force && m.used(modelUsers[id]) >= userLimit:
		if !errors.As(err, &denied) || denied.Scope.Label() != "user" || denied.InUse != m.used(modelUsers[id]) {
			t.Fatalf("%s: user scope is full (%d), got %v", id, m.used(modelUsers[id]), err)
		}
		return
	case !force && m.used("") >= tenantLimit:
		if !errors.As(err, &denied) || denied.Scope.Label() != "tenant" || denied.InUse != m.used("") {
			t.Fatalf("%s: tenant scope is full, got %v", id, err)
		}
		return
	default:
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		created, marked := m.now, false
		if e != nil && e.state == "A" { // an operator's mark outlives the holder
			created, marked = e.created, e.marked
		}
		e = &entry{state: "A", created: created, marked: marked}
		m.entries[id] = e
	}
	m.grew(t, l.Fence())
	e.grant, e.owner, e.until = l.Fence(), owner, e.created+modelHold
	e.expires = min(m.now+modelTTL, e.until)
	if (l.Context().Err() != nil) != e.marked {
		t.Fatalf("%s: mark %v, context %v", id, e.marked, l.Context().Err())
	}
	m.handles = append(m.handles, &handle{l: l, id: id, owner: owner, grant: l.Fence(), fences: []int64{l.Fence()}, until: e.until})
}

func (m *model) unconfirmed(owner string) bool {
	return slices.ContainsFunc(m.handles, func(h *handle) bool { return h.owner == owner && h.l.State() == lease.Unconfirmed })
}

// die makes an owner stop renewing and releasing, as a killed process does.
func (m *model) die(owner string) {
	for _, h := range m.handles {
		if h.owner == owner {
			h.l.Forget()
			h.settled = true
		}
	}
}

func (m *model) pick(t *rapid.T) *handle {
	if len(m.handles) == 0 {
		t.Skip("no handle")
	}
	return m.handles[rapid.IntRange(0, len(m.handles)-1).Draw(t, "handle")]
}

func (m *model) renew(t *rapid.T) {
	h := m.pick(t)
	if h.settled || h.over {
		return
	}
	before := h.l.Fence()
	err := h.l.RenewNow()
	e := m.entries[h.id]
	want := lease.Reason("")
	until := h.until
	switch {
	case e != nil && e.state == "X":
		want = lease.Revoked
	case e != nil && e.state != "" && e.grant > h.grant, e != nil && e.state == "R" && e.grant == h.grant:
		want = lease.Transferred
	default:
		if e != nil && e.state == "A" && e.grant == h.grant {
			until = e.until
		}
		if until <= m.now {
			want = lease.MaxHold
			if e != nil {
				e.expires = 0
			}
		}
	}
	if want != "" {
		var lost *lease.Lost
		if !errors.As(err, &lost) || lost.Reason != want {
			t.Fatalf("renew %s: got %v, want %s", h.id, err, want)
		}
		h.settled, h.over = want != lease.MaxHold, want == lease.MaxHold
		return
	}
	if err != nil {
		t.Fatalf("renew %s: %v", h.id, err)
	}
	if e == nil {
		e = &entry{}
		m.entries[h.id] = e
	}
	if m.live(h.id) && e.grant == h.grant {
		if h.l.Fence() != before {
			t.Fatalf("a plain renewal changed the fence from %d to %d", before, h.l.Fence())
		}
	} else {
		m.grew(t, h.l.Fence())
		h.fences = append(h.fences, h.l.Fence())
		e.state, e.grant, e.until, e.created = "A", h.grant, until, until-modelHold
	}
	h.until = until
	e.expires = min(m.now+modelTTL, until)
}

func (m *model) release(t *rapid.T) {
	h := m.pick(t)
	got, err := h.l.Release(context.Background())
	if err != nil {
		t.Fatalf("release %s: %v", h.id, err)
	}
	want := false
	if e := m.entries[h.id]; !h.settled && (e == nil || e.state == "" || e.state == "A" && e.grant <= h.grant) {
		want = e != nil && e.expires > m.now
		delete(m.entries, h.id)
	}
	h.settled = true
	if got != want {
		t.Fatalf("release %s: got %v, want %v", h.id, got, want)
	}
}

func (m *model) releaseID(t *rapid.T) {
	h := m.pick(t)
	fence := rapid.SampledFrom(h.fences).Draw(t, "fence")
	got, err := m.ms["w1.1"].ReleaseID(context.Background(), h.id, fence)
	if err != nil {
		t.Fatalf("release by id: %v", err)
	}
	want := false
	if e := m.entries[h.id]; e != nil && e.state == "A" && e.grant <= fence {
		want = e.expires > m.now
		e.state, e.expires, e.marked = "R", 0, false
	}
	if got != want {
		t.Fatalf("release by id %s fence %d: got %v, want %v", h.id, fence, got, want)
	}
}

func (m *model) forget(t *rapid.T) {
	h := m.pick(t)
	h.l.Forget()
	h.settled = true
}

func (m *model) revoke(t *rapid.T) {
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(modelUsers))).Draw(t, "id")
	now := rapid.Bool().Draw(t, "now")
	err := m.ms["w1.1"].Revoke(context.Background(), id, "test", "ops", now)
	if !m.live(id) {
		if !errors.Is(err, lease.ErrNotFound) {
			t.Fatalf("revoke %s: %v, want not found", id, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("revoke %s: %v", id, err)
	}
	m.entries[id].marked = true
	if now {
		m.entries[id].state, m.entries[id].expires = "X", 0
	}
}

func (m *model) check(t *rapid.T) {
	for _, user := range []string{"ann", "bob", ""} {
		s := lease.UserScope(lease.KindExec, "acme", user, 0)
		if user == "" {
			s = lease.TenantScope(lease.KindExec, "acme", 0)
		}
		n, err := m.ms["w1.1"].InUse(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		if n != m.used(user) {
			t.Fatalf("%s holds %d, the model %d", s.Name, n, m.used(user))
		}
	}
	records, err := m.ms["w2.1"].List(context.Background(), lease.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, r := range records {
		got = append(got, r.ID)
	}
	for id := range m.entries {
		if m.live(id) {
			want = append(want, id)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("list %v, the model %v", got, want)
	}
}

func TestLeasesBehaveAsTheModel(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		rapid.Check(t, func(t *rapid.T) { runModel(t, s) })
	})
}

func runModel(t *rapid.T, s *server) {
	ctx := context.Background()
	if err := s.raw.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	m := &model{s: s, clock: &clock{}, ms: map[string]*lease.Manager{}, entries: map[string]*entry{}, now: time.Hour}
	for _, owner := range []string{"w1.1", "w2.1"} {
		opened, err := lease.Open(ctx, lease.Config{
			URL: s.url, Prefix: "{m}", Owner: owner, TTL: modelTTL, MaxHold: modelHold, Quarantine: -1, Now: m.clock.Now,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		m.ms[owner] = opened
	}
	t.Repeat(map[string]func(*rapid.T){
		"acquire": m.acquire, "acquire again": m.acquire, "renew": m.renew, "release": m.release, "release by id": m.releaseID,
		"forget": m.forget, "revoke": m.revoke,
		"advance": func(t *rapid.T) {
			d := time.Duration(rapid.IntRange(1, 5).Draw(t, "units")) * unit
			if err := shiftScript.Run(ctx, s.raw, nil, d.Milliseconds()).Err(); err != nil {
				t.Fatal(err)
			}
			m.clock.offset.Add(int64(d))
			m.now += d
		},
		"flush scripts": func(t *rapid.T) {
			if err := s.raw.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		},
		"lose everything": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
				t.Skip("not this time")
			}
			if err := s.raw.FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			m.entries = map[string]*entry{}
		},
		"": m.check,
	})
}
