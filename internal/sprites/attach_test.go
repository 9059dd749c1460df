package sprites_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/sprites"
)

func attachTo(f *fake, c *sprites.Client, delivered string) (*sprites.Process, sprites.Alignment, error) {
	f.t.Helper()
	tail := delivered[max(0, len(delivered)-sprites.TailMax):]
	return c.Attach(f.t.Context(), sprites.AttachRequest{
		Sprite: "box", Session: sprites.Session{ID: "41", Created: 7}, Guard: "dev.job.0",
		Delivered: int64(len(delivered)), Tail: []byte(tail),
	})
}

// unlike returns n bytes in which no 16 repeat.
func unlike(n int, seed uint64) string {
	var b strings.Builder
	for x := seed*2654435761 + 1; b.Len() < n; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b.WriteByte(byte('!' + x%90))
	}
	return b.String()
}

func TestCase38AttachUsesThePathFormAndTheTTYModeOfSessionInfo(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec/41", f.accept(func(p *peer) {
		p.text(map[string]any{"type": "debug", "msg": "session_created"})
		p.text(map[string]any{"type": "session_info", "session_id": 41, "created": 7, "tty": true})
		p.binary([]byte("\x01raw")...) // a terminal's bytes carry no stream id
		p.text(map[string]any{"type": "exit", "exit_code": 3})
		_ = p.conn.Close(websocket.StatusNormalClosure, "") // who has not understood the exit would wait for one
	}))
	pty, err := f.client().AttachPTY(t.Context(), "box", sprites.Session{ID: "41", Created: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer pty.Close()
	out, err := io.ReadAll(pty)
	if exit, ok := pty.Exit(); string(out) != "\x01raw" || err != nil || !ok || exit.Code != 3 {
		t.Errorf("got %q, %v, %+v", out, err, exit)
	}
	if _, _, err := attachTo(f, f.client(), ""); sprites.ClassOf(err) != sprites.ClassInvalid {
		t.Errorf("a terminal was attached to as a command: %v", err)
	}
	f.allClosed()
}

func TestCase38AReplyWithoutSessionInfoIsAnError(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]func(p *peer){
		"closed": func(p *peer) { _ = p.conn.Close(websocket.StatusNormalClosure, "") },
		"output": func(p *peer) { p.out(sprites.Stdout, "x"); p.wait() },
	} {
		f := newFake(t)
		f.on("GET /box/exec/41", f.accept(script))
		c := f.client()
		if _, _, err := attachTo(f, c, ""); !errors.Is(err, sprites.ErrNoSessionInfo) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := c.AttachPTY(t.Context(), "box", sprites.Session{ID: "41"}); !errors.Is(err, sprites.ErrNoSessionInfo) {
			t.Errorf("%s: got %v", name, err)
		}
		f.allClosed()
	}
}

func TestCase38AnUnknownSessionIsNotFoundAndAFlakyListingIsNot(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec/41", respond(http.StatusNotFound, "session not found: 41"))
	f.on("GET /box/exec", respond(http.StatusServiceUnavailable, ""))
	c := f.client()
	if _, _, err := attachTo(f, c, ""); sprites.ClassOf(err) != sprites.ClassNotFound || f.count("GET /v1/sprites/box/exec/41") != 1 {
		t.Errorf("got %v", err)
	}
	if _, err := c.Sessions(t.Context(), "box"); sprites.ClassOf(err) != sprites.ClassUnavailable {
		t.Errorf("got %v", err)
	}
}

func TestCase38AttachRefusesTheProcessThatGotTheSessionsID(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec/41", f.accept(func(p *peer) {
		p.info("41", 7000)
		p.out(sprites.Stdout, "another's output")
		p.wait()
	}))
	if _, _, err := attachTo(f, f.client(), ""); !errors.Is(err, sprites.ErrReplaced) || sprites.ClassOf(err) != sprites.ClassNotFound {
		t.Errorf("got %v", err)
	}
	f.allClosed()
}

func TestAttachGoesOnWhereTheReplayProvesIt(t *testing.T) {
	t.Parallel()
	old, fresh := unlike(20_000, 1), unlike(9_000, 2)
	for name, tt := range map[string]struct {
		delivered string
		replay    string
		offsets   bool
		kind      sprites.AlignmentKind
		want      string
	}{
		"whole replay":      {old, old + fresh, false, sprites.AlignProven, fresh},
		"bounded replay":    {old, old[14_000:] + fresh, false, sprites.AlignProven, fresh},
		"nothing new":       {old, old, false, sprites.AlignProven, ""},
		"short":             {"tick", "tick tock", false, sprites.AlignProven, " tock"},
		"head lost":         {old, old[18_000:] + fresh, false, sprites.AlignGap, fresh},
		"all lost":          {old, fresh, false, sprites.AlignGap, fresh},
		"repeats":           {strings.Repeat("y\n", 4000), strings.Repeat("y\n", 5000), false, sprites.AlignGap, ""},
		"nothing delivered": {"", fresh, false, sprites.AlignGap, fresh},
		"nothing delivered, and little to deliver": {"", fresh[:2000], false, sprites.AlignProven, fresh[:2000]},
		"nothing at all":       {"", "", false, sprites.AlignProven, ""},
		"offset":               {old, old[20_000-sprites.TailMax:] + fresh, true, sprites.AlignExact, fresh},
		"offset, repeats":      {strings.Repeat("y\n", 4000), strings.Repeat("y\n", (sprites.TailMax+500)/2), true, sprites.AlignExact, strings.Repeat("y\n", 250)},
		"offset, from nothing": {"", fresh, true, sprites.AlignExact, fresh},
		"offset not honoured":  {old, old + fresh, true, sprites.AlignProven, fresh},
		"offset evicted":       {old, fresh, true, sprites.AlignGap, fresh},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.on("GET /box/exec/41", func(w http.ResponseWriter, r *http.Request) {
				if tt.offsets {
					w.Header().Set("X-Sprite-Capabilities", "signal, output_offset")
				}
				f.accept(func(p *peer) {
					p.info("41", 7)
					for rest := tt.replay; len(rest) > 0; {
						n := min(1000, len(rest))
						p.out(sprites.Stdout, rest[:n])
						rest = rest[n:]
					}
					_, _, _ = p.conn.Read(p.ctx) // until the client leaves
				})(w, r)
			})
			proc, alignment, err := attachTo(f, f.client(), tt.delivered)
			if err != nil {
				t.Fatal(err)
			}
			if alignment.Kind != tt.kind {
				t.Errorf("alignment %s, want %s", alignment.Kind, tt.kind)
			}
			var got strings.Builder
			for got.Len() < len(tt.want) {
				chunk, err := proc.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got.Write(chunk.Data)
			}
			if got.String() != tt.want {
				t.Errorf("got %d bytes, want %d", got.Len(), len(tt.want))
			}
			_ = proc.Close()
			f.allClosed()
		})
	}
}

func TestAttachToASessionThatEndsInItsReplayKeepsBoth(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec/41", f.accept(func(p *peer) {
		p.info("41", 7)
		p.out(sprites.Stdout, "seen and new")
		p.exit(6)
		p.wait()
	}))
	proc, alignment, err := attachTo(f, f.client(), "seen")
	if err != nil || alignment.Kind != sprites.AlignProven {
		t.Fatalf("got %+v, %v", alignment, err)
	}
	out, _, err := collect(t.Context(), proc)
	if exit, _ := proc.Exit(); out != " and new" || err != io.EOF || exit.Code != 6 {
		t.Errorf("got %q, %v, %+v", out, err, exit)
	}
	_ = proc.Close()
	f.allClosed()
}

// A replay is any end of the stream that holds at least what is new, cut anywhere. What is given out must be an end of
// the new output, and all of it when that is said to be proven.
func TestAlignmentNeverRepeatsAndNeverClaimsTooMuch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]int{1, 2, 200}).Draw(t, "alphabet") // few letters repeat, many do not
		stream := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, alphabet-1), func(i int) byte { return byte(i) }), 0, 12_000).Draw(t, "stream")
		delivered := rapid.IntRange(0, len(stream)).Draw(t, "delivered")
		tail := stream[max(0, delivered-sprites.TailMax):delivered]
		from := rapid.SampledFrom([]int{0, 0, delivered / 2, delivered, len(stream)}).Draw(t, "from")
		replay := stream[min(from, len(stream)):]
		var cut [][]byte
		for len(replay) > 0 {
			n := rapid.IntRange(1, len(replay)).Draw(t, "piece")
			cut = append(cut, replay[:n])
			replay = replay[n:]
		}
		got, proven := sprites.Align(tail, int64(delivered), cut)
		fresh := stream[delivered:]
		if from == 0 && !bytes.HasSuffix(fresh, got) {
			t.Fatalf("a whole replay repeated delivered bytes: %d given out, %d new", len(got), len(fresh))
		}
		if proven && from <= max(0, delivered-sprites.TailMax) && !bytes.Equal(got, fresh) {
			t.Fatalf("said to be proven, but %d bytes of %d", len(got), len(fresh))
		}
		if len(got) > len(stream)-min(from, len(stream)) {
			t.Fatal("more than the replay")
		}
	})
}
