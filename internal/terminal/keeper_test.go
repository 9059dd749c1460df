package terminal_test

import (
	"crypto/rand"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
	"github.com/wakebus/wakebus/tests/rig"
)

// signer is the web app that signs tickets.
type signer struct {
	t   *testing.T
	key authz.SigningKey
}

func newSigner(t *testing.T) (*signer, string) {
	t.Helper()
	key, file, err := rig.KeySet(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &signer{t: t, key: key}, file
}

// ticket signs one that is right but for what change does to it.
func (s *signer) ticket(change func(*authz.Claims)) string {
	s.t.Helper()
	now := time.Now()
	c := authz.Claims{Issuer: authz.IssuerWeb, Audience: jwt.ClaimStrings{authz.AudienceTerminal}, IssuedAt: jwt.NewNumericDate(now),
		Expires: jwt.NewNumericDate(now.Add(30 * time.Second)), ID: rand.Text(), Subject: "ann", Tenant: "acme", Tier: "free", Page: "home",
		Origin: origin, Verdict: authz.VerdictAllow, Role: authz.RoleOwner}
	change(&c)
	token, err := authz.Mint(c, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

func withTicket(ticket, from string) dialOption {
	return func(_ *frame.Client, o *websocket.DialOptions) {
		o.Subprotocols = []string{frame.Protocol}
		if ticket != "" {
			o.Subprotocols = append(o.Subprotocols, frame.TicketPrefix+ticket)
		}
		o.HTTPHeader = http.Header{"Origin": {from}}
	}
}

func TestARealTicketOpensItsPageOnceAndNothingElse(t *testing.T) {
	t.Parallel()
	web, keys := newSigner(t)
	s := newStackWith(t, map[string]string{"AUTHZ_MODE": "grant", "GRANT_KEYS_FILE": keys})
	const other = "https://other.example"
	app, _ := s.gateway(func(c *terminal.Config) { c.Origins = []string{origin, other} })
	same := func(*authz.Claims) {}
	stranger, _ := newSigner(t)
	for name, c := range map[string]struct {
		ticket, from, page string
	}{
		"no ticket":       {"", origin, "home"},
		"garbage":         {"a.b.c", origin, "home"},
		"bare claims":     {"eyJzdWIiOiJib2IifQ", origin, "home"},
		"foreign key":     {stranger.ticket(same), origin, "home"},
		"other origin":    {web.ticket(same), other, "home"},
		"other page":      {web.ticket(same), origin, "secret"},
		"expired":         {web.ticket(func(c *authz.Claims) { back(c, time.Hour) }), origin, "home"},
		"too long a life": {web.ticket(func(c *authz.Claims) { c.Expires = jwt.NewNumericDate(time.Now().Add(time.Hour)) }), origin, "home"},
		"a grant":         {web.ticket(func(c *authz.Claims) { c.Audience = jwt.ClaimStrings{authz.AudienceGrant} }), origin, "home"},
		"denied":          {web.ticket(func(c *authz.Claims) { c.Verdict = "no_edit_access" }), origin, "home"},
	} {
		p := s.dial(app, c.page, withTicket(c.ticket, c.from))
		p.until(name+" refused", func(p *peer) bool { return p.ended })
		if p.status != frame.StatusDenied {
			t.Errorf("%s closed with %d", name, p.status)
		}
	}
	if n := s.emulator.Count("exec.ws", ""); n != 0 {
		t.Errorf("%d calls to sandboxes for refused tickets", n)
	}
	once := web.ticket(same)
	p := s.dial(app, "home", withTicket(once, origin))
	p.until("live", func(p *peer) bool { return p.answered })
	s.dial(app, "home", withTicket(once, origin)).closes(frame.StatusDenied)
	viewer := s.dial(app, "home", withTicket(web.ticket(func(c *authz.Claims) { c.Subject, c.Role = "bob", authz.RoleViewer }), origin),
		func(h *frame.Client, _ *websocket.DialOptions) { h.ClientID = "bob" })
	viewer.until("live", func(p *peer) bool { return p.answered })
	viewer.types("x")
	viewer.errored(frame.CodeReadOnly)
}

func back(c *authz.Claims, d time.Duration) {
	c.IssuedAt = jwt.NewNumericDate(time.Now().Add(-d))
	c.Expires = jwt.NewNumericDate(time.Now().Add(30*time.Second - d))
}

// In grant mode a fresh ticket of the same person keeps a live terminal, and only that.
func TestAFreshTicketKeepsATerminalAndItsEndCutsIt(t *testing.T) {
	t.Parallel()
	web, keys := newSigner(t)
	s := newStackWith(t, map[string]string{"AUTHZ_MODE": "grant", "GRANT_KEYS_FILE": keys})
	var ahead atomic.Int64 // how far the gateway's clock is ahead of ours
	registry := prometheus.NewRegistry()
	app, _ := s.gateway(func(c *terminal.Config) {
		c.Origins, c.TickEvery, c.Registerer = []string{origin}, 10*time.Millisecond, registry
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	at := func(d time.Duration, user string) string {
		return web.ticket(func(c *authz.Claims) { back(c, -d); c.Subject = user })
	}
	p := s.dial(app, "home", withTicket(at(0, "ann"), origin))
	p.until("live", func(p *peer) bool { return p.answered })
	p.says(frame.Client{Type: frame.TypeGrant, Grant: at(0, "mallory")})
	p.errored(frame.CodeGrantRefused)
	ahead.Store(int64(40 * time.Second))
	p.says(frame.Client{Type: frame.TypeGrant, Grant: at(40*time.Second, "ann")})
	for renewed(t, registry) != 1 {
		time.Sleep(time.Millisecond)
	}
	ahead.Store(int64(65 * time.Second)) // the first ticket ended long ago
	p.types("echo he\"\"re\r")
	p.sees("here")
	ahead.Store(int64(2 * time.Minute))
	if e := p.errored("authorization_expired"); !*e.Fatal {
		t.Error("an end that is not fatal")
	}
	p.closes(frame.StatusRevoked)
}

// renewed counts the grants that were taken.
func renewed(t *testing.T, registry *prometheus.Registry) int {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "renewed" {
					return int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return 0
}
