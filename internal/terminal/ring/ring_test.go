package ring_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/terminal/ring"
)

// Whatever is written in whatever pieces, a replay from any offset held is exactly the output's tail from there.
func TestReplayFromAnOffsetIsTheTailFromThere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 9000).Draw(t, "limit")
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		r := ring.New(limit, base)
		var all []byte
		for range rapid.IntRange(0, 30).Draw(t, "writes") {
			p := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "p")
			r.Write(p)
			all = append(all, p...)
			held := min(len(all), limit)
			if got, want := r.End(), base+int64(len(all)); got != want {
				t.Fatalf("end %d, want %d", got, want)
			}
			if got, want := r.Start(), r.End()-int64(held); got != want {
				t.Fatalf("start %d, want %d", got, want)
			}
			from := rapid.IntRange(0, held).Draw(t, "from")
			got := make([]byte, held+1)
			n := r.CopyAt(got, r.Start()+int64(from))
			if want := all[len(all)-held+from:]; !bytes.Equal(got[:n], want) {
				t.Fatalf("replay from %d differs from the tail", from)
			}
			if !bytes.Equal(r.Tail(from), all[len(all)-from:]) {
				t.Fatalf("tail(%d) differs", from)
			}
		}
	})
}

func TestAnOffsetOutsideTheRingCopiesNothing(t *testing.T) {
	t.Parallel()
	r := ring.New(4, 0)
	r.Write([]byte("abcdefgh"))
	buf := make([]byte, 8)
	for _, off := range []int64{-1, 0, 3, 8, 9} {
		if n := r.CopyAt(buf, off); n != 0 {
			t.Errorf("offset %d copied %d bytes", off, n)
		}
	}
}

// A limit that no machine could allocate proves that memory is taken as output comes.
func TestAnEmptyRingTakesNoMemoryForItsLimit(t *testing.T) {
	t.Parallel()
	r := ring.New(1<<60, 0)
	r.Write([]byte("$ "))
	if got := string(r.Tail(9)); got != "$ " {
		t.Errorf("tail is %q", got)
	}
}
