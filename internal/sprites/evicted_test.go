package sprites_test

import (
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// Output that repeats itself looks the same wherever a replay begins: what the scrollback has lost is a gap by the
// server's own word, of just so many bytes, and nothing is given out twice.
func TestWhatTheScrollbackLostIsAGapHoweverAlikeTheOutputIs(t *testing.T) {
	t.Parallel()
	const total, line = 200_000, "y\n"
	for name, delivered := range map[string]int64{"nothing was delivered": 0, "a part was delivered": 20_000} {
		b := newBox(t, func(c *emulator.Config) { c.Offset, c.Scrollback = true, 64<<10 })
		p := b.start(b.script("y", "yes | head -c 200000; sleep 30"))
		for got := 0; got < total; {
			part, err := p.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got += len(part.Data)
		}
		session := p.Session()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		tail := strings.Repeat(line, int(min(delivered, sprites.TailMax))/len(line))
		q, found, err := b.Attach(t.Context(), sprites.AttachRequest{Sprite: "box", Session: session, Delivered: delivered, Tail: []byte(tail)})
		if err != nil {
			t.Fatal(err)
		}
		if found.Kind != sprites.AlignGap || found.Bytes == nil {
			t.Fatalf("%s: aligned as %+v", name, found)
		}
		var rest int64
		for want := total - delivered - *found.Bytes; rest < want; {
			part, err := q.Next(t.Context())
			if err != nil {
				t.Fatalf("%s: %d of %d bytes, then %v", name, rest, want, err)
			}
			rest += int64(len(part.Data))
		}
		if delivered+*found.Bytes+rest != total {
			t.Errorf("%s: %d delivered, %d missing, %d replayed of %d", name, delivered, *found.Bytes, rest, total)
		}
		_ = q.Close()
	}
}
