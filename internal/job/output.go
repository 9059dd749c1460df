package job

import (
	"context"
	"fmt"

	"github.com/wakebus/wakebus/internal/bus"
)

const (
	// previewBytes is how much of each stream's head and tail the result repeats.
	previewBytes = 32 << 10
	// tailBytes is how much of the end is kept, both streams together, once the live stream has reached its cap.
	tailBytes = 64 << 10
)

// outputChain is where output goes: the run's output chain in the journal.
type outputChain interface {
	Write(ctx context.Context, kind bus.EventKind, data []byte) error
	Gap(ctx context.Context, gap bus.GapBody) error
}

// output applies a run's output limits and keeps what its result repeats. It is owned by the one goroutine that
// reads the process.
type output struct {
	chain outputChain
	limit int64 // bytes delivered live, both streams together
	hard  int64 // bytes produced, both streams together
	kill  bool  // stop the command at limit instead of trimming

	delivered, produced [2]int64
	previews            [2]preview
	trimmed             tail
	truncated           bool
}

const (
	stdout = 0
	stderr = 1
)

func eventKind(stream int) bus.EventKind {
	if stream == stderr {
		return bus.EventStderr
	}
	return bus.EventStdout
}

func gapStream(stream int) string {
	if stream == stderr {
		return bus.GapStderr
	}
	return bus.GapStdout
}

// add takes the next bytes of a stream. over is true once the command must be stopped for what it wrote. It blocks
// while the chain is behind, which is what slows the process down.
func (o *output) add(ctx context.Context, stream int, data []byte) (over bool, err error) {
	o.produced[stream] += int64(len(data))
	o.previews[stream].add(data)
	live := data
	if room := o.limit - o.delivered[stdout] - o.delivered[stderr]; int64(len(live)) > room {
		live = live[:max(room, 0)]
		o.truncated = true
	}
	if len(live) > 0 {
		if err := o.chain.Write(ctx, eventKind(stream), live); err != nil {
			return false, fmt.Errorf("write output: %w", err)
		}
		o.delivered[stream] += int64(len(live))
	}
	if rest := data[len(live):]; o.kill {
		o.trimmed.dropped[stream] += int64(len(rest))
	} else {
		o.trimmed.add(stream, rest)
	}
	return o.produced[stdout]+o.produced[stderr] > o.hard || o.kill && o.truncated, nil
}

// finish says what was cut and then delivers the tail.
func (o *output) finish(ctx context.Context) error {
	for _, s := range []int{stdout, stderr} {
		if n := o.trimmed.dropped[s]; n > 0 {
			if err := o.chain.Gap(ctx, bus.GapBody{Stream: gapStream(s), Bytes: &n, Why: bus.GapWhyCap}); err != nil {
				return fmt.Errorf("write gap: %w", err)
			}
		}
	}
	for _, c := range o.trimmed.chunks {
		if err := o.chain.Write(ctx, eventKind(c.stream), c.data); err != nil {
			return fmt.Errorf("write tail: %w", err)
		}
		o.delivered[c.stream] += int64(len(c.data))
	}
	o.trimmed = tail{}
	return nil
}

// outputPreviews is the heads and tails for the result.
func (o *output) outputPreviews() *bus.OutputPreviews {
	return &bus.OutputPreviews{Stdout: o.previews[stdout].preview(), Stderr: o.previews[stderr].preview()}
}

// stderrEnd is the last of stderr that was kept.
func (o *output) stderrEnd() []byte {
	if p := &o.previews[stderr]; len(p.tail) > 0 {
		return p.tail
	}
	return o.previews[stderr].head
}

// preview keeps the first and the last previewBytes of a stream.
type preview struct {
	head []byte
	tail []byte
	cut  bool // bytes between head and tail were dropped
}

func (p *preview) add(data []byte) {
	if room := previewBytes - len(p.head); room > 0 {
		n := min(room, len(data))
		p.head = append(p.head, data[:n]...)
		data = data[n:]
	}
	if len(data) >= previewBytes {
		p.cut = p.cut || len(p.tail) > 0 || len(data) > previewBytes
		p.tail = append(p.tail[:0], data[len(data)-previewBytes:]...)
		return
	}
	p.tail = append(p.tail, data...)
	if extra := len(p.tail) - previewBytes; extra > 0 {
		p.cut = true
		p.tail = append(p.tail[:0], p.tail[extra:]...)
	}
}

func (p *preview) preview() bus.Preview {
	return bus.Preview{Head: append([]byte(nil), p.head...), Tail: append([]byte(nil), p.tail...)}
}

// tail keeps the last tailBytes of both streams in arrival order and counts what it dropped of each.
type tail struct {
	chunks  []tailChunk
	size    int
	dropped [2]int64
}

type tailChunk struct {
	stream int
	data   []byte
}

func (t *tail) add(stream int, data []byte) {
	if len(data) == 0 {
		return
	}
	if extra := len(data) - tailBytes; extra > 0 {
		t.dropped[stream] += int64(extra)
		data = data[extra:]
	}
	if n := len(t.chunks); n > 0 && t.chunks[n-1].stream == stream {
		t.chunks[n-1].data = append(t.chunks[n-1].data, data...)
	} else {
		t.chunks = append(t.chunks, tailChunk{stream: stream, data: append([]byte(nil), data...)})
	}
	t.size += len(data)
	for t.size > tailBytes {
		first := &t.chunks[0]
		n := min(t.size-tailBytes, len(first.data))
		t.dropped[first.stream] += int64(n)
		t.size -= n
		if n == len(first.data) {
			t.chunks = t.chunks[1:]
			continue
		}
		first.data = first.data[n:]
	}
}
