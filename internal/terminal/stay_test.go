package terminal_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

func TestAPersonSeesThePhasesAndThenTheShell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set(func(w *world) { w.gate = make(chan struct{}) })
	p := b.dial("ann.owner.home")
	p.has("phase waking", func(f frame.Server) bool { return f.Phase == frame.PhaseWaking })
	close(b.gate)
	b.shell(0).print("$ ")
	p.sees("$ ")
	p.types("ls\r")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "ls\r" })
	p.until("ack of 3", func(p *peer) bool { return p.input == 3 })
}

func TestAReturningClientGetsExactlyTheTail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	b.shell(0).print("one\r\n")
	p.sees("one\r\n")
	p.vanish()
	b.shell(0).print("two\r\n")
	q := b.open("ann.owner.home", returning(p))
	b.shell(0).print("three\r\n")
	q.sees("three")
	if got := q.text(); got != "two\r\nthree\r\n" {
		t.Errorf("came back to %q", got)
	}
	if n := b.count("open"); n != 1 {
		t.Errorf("%d opens for one shell", n)
	}
}

func TestWhatTheRingHasLostIsSaidAsAGap(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *terminal.Config) { c.RingBytes = 4 << 10 })
	p := b.open("ann.owner.home")
	b.shell(0).print("begin")
	p.sees("begin")
	p.vanish()
	lost := strings.Repeat("x", 10<<10)
	b.shell(0).print(lost + "end")
	b.shell(0).taken()
	q := b.dial("ann.owner.home", returning(p))
	q.sees("end")
	gap := q.has("gap", func(f frame.Server) bool { return f.Type == frame.TypeGap })
	if gap.Bytes == nil || *gap.Bytes+int64(len(q.text())) != int64(len(lost)+3) {
		t.Errorf("gap of %v with %d bytes sent, want %d together", gap.Bytes, len(q.text()), len(lost)+3)
	}
}

func TestANewViewerGetsHistoryInBracketsThenLive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open("ann.owner.home")
	b.shell(0).print("history\r\n")
	q := b.dial("bob.viewer.home")
	q.has("phase live", func(f frame.Server) bool { return f.Phase == frame.PhaseLive })
	q.mu.Lock()
	defer q.mu.Unlock()
	if string(q.out) != "history\r\n" {
		t.Errorf("before live there was %q", q.out)
	}
}

// case 64: in place, an attachment that drops and comes back shows nothing twice and misses nothing.
func TestCase64ReattachInPlaceShowsExactlyWhatIsNew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	want := ""
	for round := range 20 {
		line := fmt.Sprintf("line %d %s\r\n", round, strings.Repeat("~", round*40))
		b.shell(0).print(line)
		want += line
		b.shell(0).drop()
		if round%2 == 1 {
			line = fmt.Sprintf("while away %d\r\n", round)
			b.shell(0).print(line)
			want += line
		}
		b.shell(0).until(func(s *shell) bool { return len(s.ptys) == 1 })
	}
	b.shell(0).print("the end")
	p.sees("the end")
	if got := p.text(); got != want+"the end" {
		t.Errorf("saw\n%q\nwant\n%q", got, want)
	}
}

// case 64: a replay that cannot be aligned is shown whole, and the gap before it said.
func TestCase64AnUnalignableReplayIsShownBehindAGap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	b.shell(0).print(strings.Repeat("something ", 50))
	p.sees("something")
	b.set(func(w *world) { w.replay = func([]byte) []byte { return []byte("\x1b[2J\x1b[Hscreen drawn anew") } })
	b.shell(0).drop()
	p.sees("screen drawn anew")
	gap := p.has("gap", func(f frame.Server) bool { return f.Type == frame.TypeGap })
	if gap.Bytes != nil {
		t.Errorf("a number was invented: %d", *gap.Bytes)
	}
	b.shell(0).print("live again")
	p.sees("live again")
}

// case 63: 45 s of silence are nothing; idle for long, the attachment is let go and a key brings it back.
func TestCase63AnIdleShellIsLetGoAndComesBackOnAKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	b.shell(0).print("$ ")
	p.sees("$ ")
	b.pass(45 * time.Second)
	b.shell(0).until(func(s *shell) bool { return len(s.ptys) == 1 })
	b.pass(15 * time.Minute)
	b.shell(0).until(func(s *shell) bool { return len(s.ptys) == 0 })
	calls := b.count("attach") + b.count("wake")
	b.pass(time.Minute)
	b.pass(time.Minute)
	if n := b.count("attach") + b.count("wake"); n != calls {
		t.Errorf("%d calls to a sandbox that may sleep", n-calls)
	}
	p.types("x")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "x" })
	b.shell(0).print("x")
	p.sees("$ x")
	if p.text() != "$ x" {
		t.Errorf("saw %q", p.text())
	}
}

// case 66: what is typed while the shell is away arrives once, in order, with the latest size.
func TestCase66KeysTypedWhileTheShellIsAwayArriveOnceInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	gate := make(chan struct{})
	b.set(func(w *world) { w.replay = func(h []byte) []byte { <-gate; return h } })
	b.shell(0).drop()
	b.until(func(w *world) bool { return w.calls["attach"] == 1 })
	for _, k := range "echo hello\r" {
		p.types(string(k))
	}
	p.resizes(100, 30)
	p.resizes(120, 40)
	p.says(frame.Client{Type: frame.TypeAck}) // answered by nothing; the next error proves that all before was read
	p.send(1, []byte(`{"type":"nonsense"}`))
	p.errored(frame.CodeBadFrame)
	close(gate)
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "echo hello\r" })
	b.shell(0).until(func(s *shell) bool { return s.size == frame.Size{Cols: 120, Rows: 40} })
	p.until("all acked", func(p *peer) bool { return p.input == 11 })
}

// case 66: a client that lost its socket sends the rest again, and no key arrives twice.
func TestCase66UnackedInputIsSentAgainOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	p.types("abc")
	p.until("ack", func(p *peer) bool { return p.input == 3 })
	b.shell(0).set(func(s *shell) { s.deaf = true })
	p.types("d") // on its way into the shell
	p.types("e") // waits
	p.types("f")
	p.send(1, []byte(`{"type":"nonsense"}`))
	p.errored(frame.CodeBadFrame)
	p.vanish()
	q := b.open("ann.owner.home", returning(p))
	arrived := q.has("ack", func(f frame.Server) bool { return f.Type == frame.TypeAck })
	sent := "abcdef"
	q.types(sent[*arrived.Input:])
	b.shell(0).set(func(s *shell) { s.deaf = false })
	q.until("all acked", func(q *peer) bool { return q.input == 6 })
	if got := b.shell(0).input(); got != "abcdef" {
		t.Errorf("the shell was typed %q", got)
	}
}

// case 67: too large a frame is refused whole by an error that names the terminal and is not fatal; the next key works.
func TestCase67AnOversizedPasteIsRefusedAndTheNextKeyWorks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	for _, paste := range []string{strings.Repeat("é", frame.MaxInput/2+1), strings.Repeat("x", 200<<10)} {
		p.types(paste)
	}
	p.types("k")
	p.until("three frames settled", func(p *peer) bool { return p.input == int64(frame.MaxInput+2+(200<<10)+1) })
	e := p.errored(frame.CodeInputTooLarge)
	if *e.Fatal || e.Terminal != "home" {
		t.Errorf("error %+v", e)
	}
	if got := b.shell(0).input(); got != "k" {
		t.Errorf("the shell was typed %.20q", got)
	}
}

func TestAFatalErrorSaysFatal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set(func(w *world) { w.fail["open"] = &terminal.Refused{Reason: "no_edit_access"} })
	p := b.dial("ann.owner.home")
	e := p.errored("no_edit_access")
	if !*e.Fatal || e.Terminal != "home" || e.Message == "" {
		t.Errorf("error %+v", e)
	}
	p.closes(frame.StatusDenied)
}

func TestTheQueueIsBoundedAndOverflowIsSaid(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *terminal.Config) { c.QueueBytes = 8 << 10 })
	p := b.open("ann.owner.home")
	b.shell(0).set(func(s *shell) { s.deaf = true })
	chunk := strings.Repeat("z", frame.MaxInput)
	for range 5 {
		p.types(chunk)
	}
	p.until("two overflows", func(p *peer) bool {
		n := 0
		for _, f := range p.frames {
			if f.Code == frame.CodeInputOverflow && !*f.Fatal {
				n++
			}
		}
		return n >= 2
	})
	b.shell(0).set(func(s *shell) { s.deaf = false })
	p.until("all settled", func(p *peer) bool { return p.input == 5*frame.MaxInput })
	if n := len(b.shell(0).input()); n > 3*frame.MaxInput {
		t.Errorf("%d bytes arrived, of which at most 12288 could wait", n)
	}
}

func TestAShellsExitIsToldWithItsCode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	b.shell(0).print("bye\r\n")
	b.shell(0).exit(3)
	end := p.closes(frame.StatusEnded)
	if end.Reason != frame.ReasonExited || end.ExitCode == nil || *end.ExitCode != 3 || p.text() != "bye\r\n" {
		t.Errorf("ended with %+v after %q", end, p.text())
	}
	b.until(func(w *world) bool { return w.liveLocked() == 0 && w.calls["release"] == 1 })
}

// case 72: a client that does not read gets a gap and stalls nobody; the shell survives.
func TestCase72ASlowViewerGetsAGapAndStallsNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *terminal.Config) { c.RingBytes, c.OutputRate, c.PaceHold = 64<<10, 1<<30, 2*time.Second })
	slow := b.open("bob.viewer.home", flow)
	fast := b.open("ann.owner.home")
	line := bytes.Repeat([]byte("flood "), 1000)
	total := 0
	for range 200 {
		b.shell(0).print(string(line))
		total += len(line)
	}
	b.shell(0).print("END")
	fast.sees("END")
	if got := len(fast.text()); got != total+3 {
		t.Errorf("the fast viewer got %d of %d bytes", got, total+3)
	}
	// The slow one shows nothing, so its window stays shut; then it catches up.
	slow.until("its window is used up", func(p *peer) bool { return len(p.out) >= 100<<10 })
	slow.mu.Lock()
	at := slow.offset
	slow.mu.Unlock()
	slow.says(frame.Client{Type: frame.TypeAck, Output: at})
	slow.has("gap", func(f frame.Server) bool { return f.Type == frame.TypeGap && f.Bytes != nil && *f.Bytes > 0 })
	fast.types("\x03")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "\x03" })
}

func TestOutputIsCountedTheSameByBothSides(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.open("ann.owner.home")
	for i := range 100 {
		b.shell(0).print(fmt.Sprintf("%d\r\n", i))
	}
	p.sees("99\r\n")
	q := b.open("ann.owner.home", returning(p))
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.offset != p.offset || len(q.out) != 0 {
		t.Errorf("offset %d, then %d with %q", p.offset, q.offset, q.out)
	}
}
