package terminal_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// showing acks what a flow-controlled client has shown, as docs/terminal-protocol.md asks: by offsets, gaps included.
func (p *peer) showing() {
	p.mu.Lock()
	offset := p.offset
	p.mu.Unlock()
	p.says(frame.Client{Type: frame.TypeAck, Output: offset})
}

// A client that acks only what it was sent must see the end of a flood, however wide the gap before it: a gap takes no
// room in the window.
func TestAFloodWiderThanTheWindowLeavesAFlowControlledViewerAlive(t *testing.T) {
	t.Parallel()
	const window = 8 << 10
	b := setup(t, func(c *terminal.Config) {
		c.RingBytes, c.WindowBytes, c.ChunkBytes = 16<<10, window, 4<<10
		c.OutputRate, c.PaceHold = 1<<30, 1 // a shell that is waited for by nobody leaves gaps
	})
	p := b.open("ann.owner.home", flow)
	for round := range 3 {
		for i := range 40 { // ten rings while nothing is acked
			b.shell(0).print(strings.Repeat(fmt.Sprintf("flood %d.%02d\r\n", round, i), 400))
		}
		p.until("the window full", func(p *peer) bool { return p.offset > 0 })
		b.shell(0).print(fmt.Sprintf("end of round %d\r\n", round))
		before := len(p.text())
		for !strings.Contains(p.text(), fmt.Sprintf("end of round %d", round)) {
			p.showing()
			had := before
			p.until("output after an ack", func(p *peer) bool {
				before = len(p.out)
				return before > had || strings.Contains(string(p.out), fmt.Sprintf("end of round %d", round))
			})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	gaps := 0
	for _, f := range p.frames {
		if f.Type == frame.TypeGap {
			gaps++
		}
	}
	if gaps == 0 || gaps > 60 {
		t.Errorf("%d gaps were said; they must not pile up", gaps)
	}
}

// Whatever is sent, skipped and acked in whatever order: no more is under way than the window holds, and a viewer that
// acks all it was sent is owed nothing.
func TestAWindowCountsWhatWasSentAndNothingElse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f terminal.Flow
		start := rapid.Int64Range(0, 1<<40).Draw(t, "start")
		f.Begin(start)
		cursor, sent := start, []int64{} // numbers of the bytes under way
		ends := []int64{start}           // where a client may stand
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				for range rapid.IntRange(1, 20).Draw(t, "bytes") {
					sent = append(sent, cursor)
					cursor++
				}
			case 1:
				if n := rapid.Int64Range(1, 1000).Draw(t, "gap"); f.Skip(cursor, n) {
					cursor += n
				}
			case 2:
				at := ends[rapid.IntRange(0, len(ends)-1).Draw(t, "ack")]
				f.Ack(at, cursor)
				for len(sent) > 0 && sent[0] < at {
					sent = sent[1:]
				}
			}
			ends = append(ends, cursor)
			if got := f.Ahead(cursor); got != int64(len(sent)) {
				t.Fatalf("%d bytes ahead, want %d", got, len(sent))
			}
		}
		f.Ack(cursor, cursor)
		if got := f.Ahead(cursor); got != 0 {
			t.Fatalf("%d bytes ahead after all was acked", got)
		}
	})
}

// What a hostile client acks opens nothing that it was not sent.
func TestAnAckOfWhatWasNotSentOpensNothing(t *testing.T) {
	t.Parallel()
	var f terminal.Flow
	f.Begin(10)
	f.Skip(20, 100)
	for _, offset := range []int64{-1, 0, 10, 131, 1 << 62} {
		if f.Ack(offset, 130) {
			t.Errorf("an ack of %d opened the window", offset)
		}
	}
	if !f.Ack(50, 130) || f.Ahead(130) != 10 {
		t.Errorf("an ack within a gap: %d ahead, want the 10 behind it", f.Ahead(130))
	}
}
