package terminal_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// Whatever fails between the ticket and the shell, the person gets a reason and the slot comes back.
func TestEveryFailureOfAnOpenNamesItsReasonAndGivesTheSlotBack(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		call   string
		err    error
		code   frame.Code
		status int
	}{
		{"load", broken, "provision_failed", frame.StatusRestarting},
		{"open", broken, "provision_failed", frame.StatusRestarting},
		{"open", &terminal.Refused{Reason: plan.ReasonConcurrencyLimit}, "concurrency_limit", frame.StatusDenied},
		{"open", &terminal.Refused{Reason: plan.ReasonKillSwitchOff}, "kill_switch_off", frame.StatusDenied},
		{"save", broken, "provision_failed", frame.StatusRestarting},
		{"take", broken, "provision_failed", frame.StatusRestarting},
		{"pty", broken, "provision_failed", frame.StatusRestarting},
	} {
		t.Run(fmt.Sprintf("%s with %v", c.call, c.err), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.set(func(w *world) { w.fail[c.call] = c.err })
			p := b.dial("ann.owner.home")
			if e := p.errored(c.code); !*e.Fatal {
				t.Error("not fatal")
			}
			p.closes(c.status)
			b.until(func(w *world) bool { return w.liveLocked() == 0 })
			b.set(func(w *world) { delete(w.fail, c.call) })
			b.open("ann.owner.home")
			if b.live() != 1 {
				t.Errorf("%d slots in use after the next open", b.live())
			}
		})
	}
}

// case 69: only the last viewer's leaving arms the reaper; then the slot comes back and the shell is found again.
func TestCase69TheDetachWindowGivesTheSlotBackAndKeepsTheShell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.open("ann.owner.home")
	bob := b.open("bob.owner.home")
	b.shell(0).print("before\r\n")
	ann.sees("before")
	bob.leaves()
	b.pass(29 * time.Minute)
	b.pass(29 * time.Minute)
	ann.leaves()
	b.shell(0).print("while away\r\n")
	b.pass(29 * time.Minute)
	if b.live() != 1 {
		t.Fatal("the slot went back too early")
	}
	b.pass(time.Minute)
	b.until(func(w *world) bool { return w.liveLocked() == 0 })
	b.shell(0).until(func(s *shell) bool { return len(s.ptys) == 0 })
	if b.count("kill") != 0 {
		t.Error("the shell was killed")
	}
	q := b.open("ann.owner.home", returning(ann))
	q.sees("while away\r\n")
	if strings.Contains(q.text(), "before") {
		t.Errorf("shown twice: %q", q.text())
	}
	b.pass(time.Second)
	b.until(func(w *world) bool { return w.liveLocked() == 1 })
	if b.count("open") != 1 {
		t.Errorf("%d opens", b.count("open"))
	}
}

// case 69: an exit while nobody looks frees the slot once, and the final output waits.
func TestCase69AnExitWhileDetachedKeepsTheFinalTail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	b.shell(0).print("start\r\n")
	p.sees("start")
	p.vanish()
	b.shell(0).print("the final words\r\n")
	b.shell(0).exit(0)
	b.until(func(w *world) bool { return w.liveLocked() == 0 })
	q := b.dial("ann.owner.home", returning(p))
	end := q.closes(frame.StatusEnded)
	if q.text() != "the final words\r\n" || end.ExitCode == nil || *end.ExitCode != 0 {
		t.Errorf("came back to %q, %+v", q.text(), end)
	}
	if n := b.count("release"); n != 1 {
		t.Errorf("released %d times", n)
	}
}

func TestAShellThatIsGoneIsSaidToBeGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	b.set(func(w *world) { w.fail["attach"] = terminal.ErrShellGone })
	b.shell(0).drop()
	if end := p.closes(frame.StatusEnded); end.Reason != frame.ReasonGone || end.ExitCode != nil {
		t.Errorf("ended with %+v", end)
	}
	b.until(func(w *world) bool { return w.liveLocked() == 0 })
}

// case 38: the shell on record is only a hint. One that is gone is asked for once, its slot goes back, and the page gets a
// fresh shell, whose id is recorded.
func TestCase38AShellOnRecordThatIsGoneIsReplacedByAFreshOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	page := terminal.Page{Tenant: "t", ID: "home"}
	b.set(func(w *world) {
		w.leases["t.old.0.1"] = &fakeLease{world: w, id: "t.old.0.1", fence: 1, held: true}
		w.fence = 1
		w.records[page] = terminal.Record{Sandbox: "box", Shell: terminal.Shell{ID: "no such shell", Created: 7}, Gateway: "gone", Lease: "t.old.0.1", Fence: 1}
		w.revs[page] = 1
	})
	p := b.open("ann.owner.home")
	b.shell(0).print("fresh\r\n")
	p.sees("fresh\r\n")
	b.mu.Lock()
	recorded := b.records[page].Shell
	b.mu.Unlock()
	if recorded != b.shell(0).id {
		t.Errorf("the record says %+v, the shell is %+v", recorded, b.shell(0).id)
	}
	if b.count("attach") != 1 || b.count("pty") != 1 || b.live() != 1 {
		t.Errorf("%d attachments, %d shells, %d slots", b.count("attach"), b.count("pty"), b.live())
	}
}

// case 63: an unreachable sandbox uses up its budget, then stays quiet until a key.
func TestCase63AnUnreachableSandboxIsLeftInPeaceUntilAKey(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *terminal.Config) { c.ReattachTries = 3 })
	p := b.open("ann.owner.home")
	b.set(func(w *world) { w.fail["attach"] = errors.New("502") })
	b.shell(0).drop()
	p.errored("worker_unavailable")
	if n := b.count("attach"); n != 3 {
		t.Errorf("%d tries", n)
	}
	b.pass(time.Minute)
	b.set(func(w *world) { delete(w.fail, "attach") })
	p.types("x")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "x" })
	if n := b.count("attach"); n != 4 {
		t.Errorf("%d tries in all", n)
	}
}

// case 65: many opens at once bind to the shell that their own socket announced.
func TestCase65ConcurrentOpensBindToTheirOwnShells(t *testing.T) {
	t.Parallel()
	b := setup(t)
	peers := map[string]*peer{}
	for i := range 10 {
		page := fmt.Sprintf("page%d", i)
		peers[page] = b.dial("ann.owner." + page)
	}
	for page, p := range peers {
		p.until("live", func(p *peer) bool { return p.answered })
		b.mu.Lock()
		id := b.records[terminal.Page{Tenant: "t", ID: page}].Shell.ID
		s := b.shells[id]
		b.mu.Unlock()
		s.print("I am " + id)
		p.sees("I am " + id)
		p.types(page)
		s.until(func(s *shell) bool { return string(s.typed) == page })
	}
}

func TestASecondGatewayTakesOverAfterTheFirstDied(t *testing.T) {
	t.Parallel()
	a := setup(t)
	p := a.open("ann.owner.home")
	a.shell(0).print(strings.Repeat("line of history\r\n", 20) + "one\r\n")
	p.sees("one\r\n")
	p.types("typed")
	a.shell(0).until(func(s *shell) bool { return string(s.typed) == "typed" })
	// The first gateway dies: its sockets are gone and its lease is not renewed.
	p.vanish()
	a.shell(0).print("two\r\n")
	b := setupIn(t, a.world)
	q := b.open("ann.owner.home", returning(p))
	b.shell(0).print("three\r\n")
	q.sees("three\r\n")
	if got := q.text(); got != "two\r\nthree\r\n" {
		t.Errorf("came back to %q", got)
	}
	if q.session == p.session || q.input != 0 {
		t.Errorf("another gateway's numbering goes on: session %s, input %d", q.session, q.input)
	}
	b.pass(time.Second)
	rec := func() terminal.Record {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.records[terminal.Page{Tenant: "t", ID: "home"}]
	}
	holder := rec().Gateway
	b.set(func(w *world) {
		for _, l := range w.leases {
			l.dead = true
		}
	})
	b.pass(5 * time.Second)
	if got := rec().Gateway; got == holder || got == "" {
		t.Errorf("the holder is %q still", got)
	}
	if b.live() != 1 || b.count("open") != 1 || b.count("pty") != 1 {
		t.Errorf("%d slots, %d opens, %d shells", b.live(), b.count("open"), b.count("pty"))
	}
}

func TestALiveGatewayKeepsItsShellAndTheOtherIsAGuest(t *testing.T) {
	t.Parallel()
	a := setup(t)
	p := a.open("ann.owner.home")
	b := setupIn(t, a.world)
	q := b.open("bob.owner.home")
	for range 3 {
		b.pass(5 * time.Second)
	}
	a.shell(0).print("for both")
	p.sees("for both")
	q.sees("for both")
	q.types("x")
	a.shell(0).until(func(s *shell) bool { return string(s.typed) == "x" })
	if b.count("take") != 1 {
		t.Errorf("the lease was taken %d times", b.count("take"))
	}
}

func TestTwoGatewaysThatOpenOnePageMakeOneShellAndOneLease(t *testing.T) {
	t.Parallel()
	a := setup(t)
	b := setupIn(t, a.world)
	a.set(func(w *world) { w.limit, w.gate = 1, make(chan struct{}) })
	p := a.dial("ann.owner.home")
	a.until(func(w *world) bool { return w.calls["open"] == 1 })
	q := b.dial("ann.owner.home")
	a.until(func(w *world) bool { return w.calls["open"] == 2 })
	close(a.gate)
	a.shell(0).print("one shell")
	p.sees("one shell")
	for q.text() == "" { // the loser looks until its patience ends; time is the test's
		q.sees("one shell")
	}
	if a.live() != 1 || a.count("pty") != 1 {
		t.Errorf("%d slots and %d shells", a.live(), a.count("pty"))
	}
}

func TestAStoppingGatewayHandsOverFirstAndSendsViewersAway(t *testing.T) {
	t.Parallel()
	a := setup(t)
	p := a.open("ann.owner.home")
	a.shell(0).print("kept ")
	p.sees("kept ")
	a.stop()
	end := p.closes(frame.StatusRestarting)
	if end.Reason != frame.ReasonRestarting {
		t.Errorf("ended with %+v", end)
	}
	a.mu.Lock()
	rec := a.records[terminal.Page{Tenant: "t", ID: "home"}]
	a.mu.Unlock()
	if rec.Gateway != "" || rec.Shell.ID == "" || a.live() != 1 || a.count("release") != 0 || a.count("kill") != 0 {
		t.Errorf("record %+v, %d slots, %d releases", rec, a.live(), a.count("release"))
	}
	b := setupIn(t, a.world)
	q := b.open("ann.owner.home", returning(p))
	b.shell(0).print("on")
	q.sees("on")
	b.pass(time.Second)
	if b.count("take") != 2 || b.live() != 1 {
		t.Errorf("taken %d times, %d slots", b.count("take"), b.live())
	}
}

func TestARevokedLeaseEndsTheShell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	b.set(func(w *world) {
		for _, l := range w.leases {
			l.cancel(&terminal.LeaseEnded{Reason: "revoked"})
		}
	})
	p.closes(frame.StatusRevoked)
	b.until(func(w *world) bool { return w.calls["kill"] == 1 && w.liveLocked() == 0 })
}

func TestAnOpenCanBeStoppedWhileItWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set(func(w *world) { w.gate = make(chan struct{}) })
	p := b.dial("ann.owner.home")
	b.until(func(w *world) bool { return len(w.opens) == 1 })
	b.stop()
	p.closes(frame.StatusRestarting)
}
