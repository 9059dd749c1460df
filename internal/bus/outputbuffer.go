package bus

import "sync"

// smallChunk is how much a chunk holds before it takes a large buffer: most commands print less.
const smallChunk = 16 << 10

// largeChunks are shared by all runs, so that a run that prints much allocates nothing and a quiet one holds nothing.
var largeChunks = sync.Pool{New: func() any { b := make([]byte, 0, maxOutputChunk); return &b }}

// outputChunk is output of one kind that becomes one event.
type outputChunk struct {
	kind  EventKind
	data  []byte
	large *[]byte // the pool's buffer under data; nil while data is small
}

// grow adds data, which must fit most.
func (c *outputChunk) grow(data []byte) {
	if c.large == nil && len(c.data)+len(data) > smallChunk && len(c.data)+len(data) <= maxOutputChunk {
		if large, ok := largeChunks.Get().(*[]byte); ok {
			c.large, c.data = large, append((*large)[:0], c.data...)
		}
	}
	c.data = append(c.data, data...)
}

// recycle gives the buffer back. Nothing may keep the chunk's data.
func (c *outputChunk) recycle() {
	if c.large != nil {
		largeChunks.Put(c.large)
	}
	*c = outputChunk{}
}

// outputBuffer collects output in arrival order. Only neighbours of one stream are merged. It is guarded by the
// Chain's mu.
type outputBuffer struct {
	chunks []outputChunk
	size   int
}

// add appends data, cut into chunks of at most most bytes. A gap is an event of its own.
func (b *outputBuffer) add(kind EventKind, data []byte, most int) {
	b.size += len(data)
	for len(data) > 0 {
		last := len(b.chunks) - 1
		if last < 0 || b.chunks[last].kind != kind || kind == EventGap || len(b.chunks[last].data) >= most {
			b.chunks = append(b.chunks, outputChunk{kind: kind})
			last++
		}
		n := min(len(data), most-len(b.chunks[last].data))
		b.chunks[last].grow(data[:n])
		data = data[n:]
	}
}

func (b *outputBuffer) pop() (outputChunk, bool) {
	if len(b.chunks) == 0 {
		return outputChunk{}, false
	}
	chunk := b.chunks[0]
	b.chunks[0] = outputChunk{}
	b.chunks = b.chunks[1:]
	b.size -= len(chunk.data)
	return chunk, true
}

func (b *outputBuffer) drop() {
	for i := range b.chunks {
		b.chunks[i].recycle()
	}
	b.chunks, b.size = nil, 0
}
