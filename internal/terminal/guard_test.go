package terminal_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// case 86: whatever is not exactly an allowed origin is refused before the upgrade, and before any other call.
func TestCase86ForeignOriginsAreRefusedBeforeAnyCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, o := range []string{"https://evil.example", "null", "http://app.example", "https://app.example:444", "https://app.example.evil.example",
		"https://xapp.example", "https://APP.example", "https://app.example/", b.srv.URL, ""} {
		if _, err := b.try("ann.owner.home", from(o)); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("origin %q gave %v", o, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) != 0 {
		t.Errorf("calls were made: %v", b.calls)
	}
}

func TestAMissingOriginPassesOnlyWithATicket(t *testing.T) {
	t.Parallel()
	b := setup(t)
	none := func(_ *frame.Client, o *websocket.DialOptions) { o.HTTPHeader = http.Header{} }
	b.open("ann.owner.home", none)
	noTicket := func(_ *frame.Client, o *websocket.DialOptions) {
		o.HTTPHeader, o.Subprotocols = http.Header{}, []string{frame.Protocol}
	}
	if _, err := b.try("ann.owner.home", noTicket); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("neither origin nor ticket gave %v", err)
	}
}

func TestTheServerSelectsTheProtocolAndNeverTheTicket(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	if got := p.conn.Subprotocol(); got != frame.Protocol {
		t.Errorf("selected %q", got)
	}
}

// Why somebody is refused is the operators' to know and nobody else's, and a flood of it is cut.
func TestARefusalsDetailIsLoggedAndNeverSent(t *testing.T) {
	t.Parallel()
	var log lockedLog
	logger := zerolog.New(&log)
	b := setup(t, func(c *terminal.Config) { c.Logger = &logger })
	same := func(_ *frame.Client, o *websocket.DialOptions) {
		o.Subprotocols = []string{frame.Protocol, frame.TicketPrefix + "ann.owner.home.same"}
	}
	b.open("ann.owner.home", same)
	for range 12 {
		p := b.dial("ann.owner.home", same)
		if f := p.errored("authorization_expired"); strings.Contains(f.Message, "malformed") {
			t.Errorf("the detail was sent: %+v", f)
		}
		p.closes(frame.StatusDenied)
	}
	if n := strings.Count(log.String(), `"detail":"used or malformed"`); n != 10 {
		t.Errorf("%d lines, want 10:\n%s", n, log.String())
	}
}

// lockedLog may be read while the gateway writes.
type lockedLog struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestATicketOpensOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	same := func(_ *frame.Client, o *websocket.DialOptions) {
		o.Subprotocols = []string{frame.Protocol, frame.TicketPrefix + "ann.owner.home.same"}
	}
	b.open("ann.owner.home", same)
	b.dial("ann.owner.home", same).closes(frame.StatusDenied)
}

func TestATicketForAnotherPageIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.dial("ann.owner.home", func(h *frame.Client, _ *websocket.DialOptions) { h.Page = "other" })
	p.closes(frame.StatusDenied)
	if b.count("open") != 0 {
		t.Error("an open was made")
	}
}

func TestWhoCannotBeCheckedMayComeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set(func(w *world) { w.fail["admit"] = errors.New("callout silent") })
	b.dial("ann.owner.home").closes(frame.StatusRestarting)
}

// case 70: who is revoked is cut within one interval, the others go on, and no sandbox is touched.
func TestCase70ARevokedPersonIsCutAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.open("ann.owner.home")
	bob := b.open("bob.owner.home")
	calls := func() int { return b.count("attach") + b.count("wake") + b.count("pty") + b.count("kill") }
	before := calls()
	b.set(func(w *world) { w.revoked["ann"] = &terminal.Refused{Reason: plan.ReasonNoEditAccess} })
	b.pass(time.Minute)
	ann.errored("no_edit_access")
	ann.closes(frame.StatusRevoked)
	b.shell(0).print("still here")
	bob.sees("still here")
	if n := calls(); n != before {
		t.Errorf("%d sandbox calls", n-before)
	}
	if b.count("recheck") != 2 {
		t.Errorf("%d checks of two people", b.count("recheck"))
	}
}

// case 70: when nobody authorised is left the shell dies in the same tick, also while detached.
func TestCase70ARevokedDetachedPersonsShellDies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	p.leaves()
	b.pass(30 * time.Second)
	b.set(func(w *world) { w.revoked["ann"] = &terminal.Refused{Reason: plan.ReasonNoEditAccess} })
	b.pass(30 * time.Second)
	b.until(func(w *world) bool { return w.calls["kill"] == 1 && w.liveLocked() == 0 })
}

// case 70: a checker that errs costs nobody a session, for a bounded time.
func TestCase70ACheckersErrorKeepsTheSessionForAWhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	b.set(func(w *world) { w.fail["recheck"] = errors.New("database away") })
	for range 14 {
		b.pass(time.Minute)
	}
	b.shell(0).print("kept")
	p.sees("kept")
	b.pass(time.Minute)
	p.closes(frame.StatusRevoked)
	b.until(func(w *world) bool { return w.calls["kill"] == 1 })
}

func TestAGrantThatRanOutCutsWhoIsThereAndWaitsForWhoIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.open("ann.owner.home")
	bob := b.open("bob.owner.home")
	bob.leaves()
	b.set(func(w *world) {
		for _, u := range []string{"ann", "bob"} {
			w.revoked[u] = &terminal.Refused{Reason: plan.ReasonAuthorizationExpired}
		}
	})
	b.pass(time.Minute)
	ann.closes(frame.StatusRevoked)
	if b.count("kill") != 0 {
		t.Error("the shell of a person who is away was killed at once")
	}
	for range 14 {
		b.pass(time.Minute)
	}
	b.until(func(w *world) bool { return w.calls["kill"] == 1 })
}

func TestAFreshGrantOfTheSamePersonIsTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	p.says(frame.Client{Type: frame.TypeGrant, Grant: "mallory.grant"})
	if e := p.errored(frame.CodeGrantRefused); *e.Fatal {
		t.Error("a refused grant ended the terminal")
	}
	p.says(frame.Client{Type: frame.TypeGrant, Grant: "ann.fresh"})
	p.types("x")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "x" })
}

// A client that sends grants without end costs the web app a bounded number of questions, and keys do not wait for them.
func TestGrantsAreBoundedAndHoldUpNoKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	for range 20 {
		p.says(frame.Client{Type: frame.TypeGrant, Grant: "ann.fresh"})
	}
	p.errored(frame.CodeGrantRefused)
	p.types("x")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "x" })
	b.until(func(w *world) bool { return w.calls["renew"] > 0 })
	if n := b.count("renew"); n > 4 {
		t.Errorf("%d grants were checked", n)
	}
}

func TestThePageCarriesItsHeadersAndSaysHowToBuildIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resp, err := http.Get(b.srv.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, h := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"} {
		if resp.Header.Get(h) == "" {
			t.Errorf("%s is missing", h)
		}
	}
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", resp.StatusCode)
	}
}
