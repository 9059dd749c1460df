package terminal_test

import (
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

func TestAViewerLooksAndCannotType(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.open("ann.owner.home")
	bob := b.open("bob.viewer.home")
	bob.types("rm -rf /\r")
	e := bob.errored(frame.CodeReadOnly)
	ann.types("x")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "x" })
	if *e.Fatal {
		t.Error("typing ended a viewer's terminal")
	}
	b.shell(0).print("x")
	bob.sees("x")
	ann.sees("x")
}

func TestTheLastActiveOwnerDecidesTheSize(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ann := b.open("ann.owner.home", sized(80, 24))
	b.pass(time.Second)
	bob := b.open("bob.owner.home", sized(120, 40))
	b.shell(0).until(func(s *shell) bool { return s.size == frame.Size{Cols: 120, Rows: 40} })
	b.pass(time.Second)
	ann.types("a")
	b.shell(0).until(func(s *shell) bool { return s.size == frame.Size{Cols: 80, Rows: 24} })
	b.pass(time.Second)
	bob.resizes(0, 0)
	bob.resizes(130, 50)
	b.shell(0).until(func(s *shell) bool { return s.size == frame.Size{Cols: 130, Rows: 50} })
	bob.vanish()
	b.shell(0).until(func(s *shell) bool { return s.size == frame.Size{Cols: 80, Rows: 24} })
}

func TestASecondSocketOfOneClientReplacesTheFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	b.open("ann.owner.home")
	if end := p.closes(frame.StatusReplaced); end.Reason != frame.ReasonReplaced {
		t.Errorf("ended with %+v", end)
	}
}

func TestTwoOpensOfOnePageMakeOneShell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set(func(w *world) { w.gate = make(chan struct{}) })
	ann := b.dial("ann.owner.home")
	bob := b.dial("bob.owner.home")
	bob.has("phase waking", func(f frame.Server) bool { return f.Phase == frame.PhaseWaking })
	close(b.gate)
	b.shell(0).print("$ ")
	ann.sees("$ ")
	bob.sees("$ ")
	if b.count("open") != 1 || b.count("pty") != 1 || b.live() != 1 {
		t.Errorf("%d opens, %d shells, %d slots", b.count("open"), b.count("pty"), b.live())
	}
}

func TestSocketsOfOnePersonAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *terminal.Config) { c.MaxPerUser = 1 })
	b.open("ann.owner.home")
	p := b.dial("ann.owner.other")
	p.closes(frame.StatusTooMany)
	b.open("bob.owner.other")
}

func TestViewersOfOneShellAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *terminal.Config) { c.MaxViewers = 1 })
	b.open("ann.owner.home")
	b.dial("bob.owner.home").closes(frame.StatusTooMany)
}

// case 72: what a flood keeps in memory is bounded, and the interrupt gets through.
func TestCase72AFloodIsBoundedAndInterruptible(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *terminal.Config) { c.RingBytes, c.OutputRate = 16<<10, 64<<10 })
	p := b.open("ann.owner.home")
	b.shell(0).print(strings.Repeat("y\r\n", 100<<10))
	p.sees("y\r\n")
	p.types("\x03")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "\x03" })
	p.until("ack", func(p *peer) bool { return p.input == 1 })
}
