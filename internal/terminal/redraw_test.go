package terminal_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

func TestModesAreThoseThatWereSetLast(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]string{
		"plain":                                   "",
		"\x1b[?1049h":                             "\x1b[?1049h",
		"\x1b[?1049hx\x1b[?1049l":                 "",
		"\x1b[?2004h\x1b[?1;1006h":                "\x1b[?2004h\x1b[?1h\x1b[?1006h",
		"\x1b[?1049h\x1bc":                        "",
		"\x1b[?25l\x1b[?99999999999999999999h":    "",
		"\x1b[1049h":                              "",
		"\x1b\x1b[?1h":                            "\x1b[?1h",
		"\x1b[?" + strings.Repeat("1;", 40) + "h": "",
		"\x1b[?1049":                              "",
	} {
		if got := terminal.ModesAfter(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

// Output comes in any pieces.
func TestModesDoNotDependOnWhereOutputIsCut(t *testing.T) {
	t.Parallel()
	word := rapid.SampledFrom([]string{"\x1b[?1049h", "\x1b[?1049l", "\x1b[?1;2004h", "\x1b[?2004l", "\x1bc", "text", "\x1b", "[", "?", "1", "h", "\r\n"})
	rapid.Check(t, func(t *rapid.T) {
		all := strings.Join(rapid.SliceOfN(word, 0, 30).Draw(t, "words"), "")
		cut := rapid.IntRange(0, len(all)).Draw(t, "cut")
		if got, want := terminal.ModesAfter(all[:cut], all[cut:]), terminal.ModesAfter(all); got != want {
			t.Fatalf("%q cut at %d: %q, want %q", all, cut, got, want)
		}
	})
}

// A full-screen program whose beginning the ring has lost: a new viewer gets its screen, and it is asked to draw anew.
func TestANewViewerOfALostHistoryGetsItsModesAndARedraw(t *testing.T) {
	t.Parallel()
	const ring = 8 << 10
	b := setup(t, func(c *terminal.Config) { c.RingBytes = ring })
	p := b.open("ann.owner.home")
	b.shell(0).print("$ vim\r\n\x1b[?1049h\x1b[?2004h" + strings.Repeat("a line of vim's screen\r\n", 2*ring/20) + "END")
	p.sees("END")
	q := b.open("bob.owner.home")
	q.sees("END")
	if got := q.text(); !strings.HasPrefix(got, "\x1b[?1049h\x1b[?2004ha line") {
		t.Errorf("the history begins with %.60q", got)
	}
	smaller, own := frame.Size{Cols: 80, Rows: 23}, frame.Size{Cols: 80, Rows: 24}
	b.shell(0).until(func(s *shell) bool { return slices.Contains(s.sizes, smaller) && s.size == own })
	q.vanish()
	b.shell(0).print("more")
	r := b.open("bob.owner.home", returning(q))
	r.sees("more")
	if got := r.text(); got != "more" {
		t.Errorf("came back to %q", got)
	}
}

// What a gap hides may have switched the terminal: who comes back too late, or falls behind, is brought into the modes
// that hold, and a full-screen program draws its screen anew. The bytes for it are counted, so that offsets stay true.
func TestAGapThatHidesAChangeOfModesBringsThem(t *testing.T) {
	t.Parallel()
	const ring = 16 << 10
	const renewed = "\x1b[?1;1000;1002;1003;1006;1015;2004l"
	screen := strings.Repeat("a line of vim's screen\r\n", 3*ring/20)
	fall := map[string]func(b *bench, p *peer, during string) *peer{
		"away": func(b *bench, p *peer, during string) *peer {
			p.vanish()
			b.shell(0).print(during)
			b.shell(0).taken()
			return b.dial("ann.owner.home", returning(p))
		},
		"slow": func(b *bench, p *peer, during string) *peer {
			b.shell(0).print(during)
			b.shell(0).taken()
			p.showing()
			return p
		},
	}
	for name, fall := range fall {
		for _, c := range []struct{ before, during, want string }{
			{"$ vim\r\n", "\x1b[?1049h\x1b[?2004h", renewed + "\x1b[?1049h\x1b[?2004h"},
			{"\x1b[?1049hvim", "\x1b[?1049l$ ", renewed + "\x1b[?1047l"},
			{"\x1b[?1049hvim", "", ""},
		} {
			t.Run(name+fmt.Sprintf(" %q", c.during), func(t *testing.T) {
				t.Parallel()
				b := setup(t, func(c *terminal.Config) {
					c.RingBytes, c.WindowBytes, c.ChunkBytes, c.OutputRate, c.PaceHold = ring, 8<<10, 4<<10, 1<<30, 1
				})
				p := b.open("ann.owner.home", flow)
				b.shell(0).print(c.before)
				p.sees(c.before)
				during := screen + c.during + screen + "END"
				q := fall(b, p, during)
				for !strings.Contains(q.text(), "END") {
					had := len(q.text())
					q.showing()
					q.until("output after an ack", func(p *peer) bool { return len(p.out) > had || strings.Contains(string(p.out), "END") })
				}
				if _, after, _ := strings.Cut(q.text(), renewed); c.want == "" && after != "" || !strings.Contains(q.text(), c.want) {
					t.Errorf("after a gap %q, want %q in it", q.text(), c.want)
				}
				q.has("gap", func(f frame.Server) bool { return f.Type == frame.TypeGap && *f.Bytes > 0 })
				q.mu.Lock()
				defer q.mu.Unlock()
				if all := int64(len(c.before + during)); q.offset != all {
					t.Errorf("at offset %d after %d bytes", q.offset, all)
				}
			})
		}
	}
}

// A shell at its prompt is not touched: it has nothing to draw anew.
func TestANewViewerOfAPromptCausesNoRedraw(t *testing.T) {
	t.Parallel()
	const ring = 8 << 10
	b := setup(t, func(c *terminal.Config) { c.RingBytes = ring })
	p := b.open("ann.owner.home")
	b.shell(0).print(strings.Repeat("a line of a build's output\r\n", 2*ring/20) + "$ ")
	p.sees("$ ")
	q := b.open("bob.owner.home")
	q.sees("$ ")
	q.types("x")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "x" })
	b.shell(0).set(func(s *shell) {
		if len(s.sizes) > 1 {
			t.Errorf("told the sizes %v", s.sizes)
		}
	})
}
