package terminal_test

import (
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

func TestAShellOpensOnARealSandboxAndOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	a, stopA := s.gateway()
	p := s.dial(a, "home", sized(100, 30))
	p.has("phase waking", func(f frame.Server) bool { return f.Phase == frame.PhaseWaking })
	p.until("phase live", func(p *peer) bool { return p.answered })
	p.types("PS1='> '; stty size; echo in $((40+2)) $PWD\r")
	p.sees("30 100")
	p.sees("in 42 /workspace")
	p.types("x=kept\r")
	stopA()
	p.closes(frame.StatusRestarting)
	b, _ := s.gateway()
	q := s.dial(b, "home", returning(p), sized(100, 30))
	q.until("phase live", func(p *peer) bool { return p.answered })
	q.types("echo still $x\r")
	q.sees("still kept")
	if n := s.shellSessions(); n != 1 {
		t.Errorf("%d shells", n)
	}
	q.types("exit 7\r")
	if end := q.closes(frame.StatusEnded); end.ExitCode == nil || *end.ExitCode != 7 {
		t.Errorf("ended with %+v", end)
	}
	r := s.dial(b, "home")
	r.until("a new shell", func(p *peer) bool { return p.answered })
	r.types("echo fresh $x.\r")
	r.sees("fresh .")
}

func TestOnTheFreeTierASecondPageIsRefusedAndASecondViewerIsNot(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	a, _ := s.gateway(func(c *terminal.Config) { c.LookPatience = 100 * time.Millisecond })
	s.dial(a, "one").until("live", func(p *peer) bool { return p.answered })
	other := func(h *frame.Client, _ *dialOpts) { h.ClientID = "other" }
	s.dial(a, "one", other).until("live too", func(p *peer) bool { return p.answered })
	p := s.dial(a, "two")
	if e := p.errored("concurrency_limit"); !*e.Fatal || !strings.Contains(e.Message, "many") {
		t.Errorf("error %+v", e)
	}
	p.closes(frame.StatusDenied)
}
