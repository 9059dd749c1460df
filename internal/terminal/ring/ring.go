// Package ring keeps the last bytes of an endless output and numbers every byte since its beginning.
package ring

// initial is the first allocation: an idle shell prints a prompt and little else, and there may be thousands.
const initial = 2 << 10

// Ring holds the newest bytes of an output, at most its limit. Byte n of the output keeps the number n for ever, so
// that a reader which knows its offset gets exactly what it has not seen. A Ring has one owner: it does no locking.
type Ring struct {
	buf   []byte
	limit int
	start int64 // number of the oldest byte held
	end   int64 // number of the next byte to come
}

// New returns an empty ring that holds at most limit bytes and begins its numbering at base. A limit below one
// is taken as one. Memory is taken as output comes, not before.
func New(limit int, base int64) *Ring {
	return &Ring{limit: max(limit, 1), start: base, end: base}
}

// Start is the number of the oldest byte held; it equals End when nothing is held.
func (r *Ring) Start() int64 { return r.start }

// End is the number that the next byte will get.
func (r *Ring) End() int64 { return r.end }

// Write appends p, forgetting the oldest bytes beyond the limit. It copies p.
func (r *Ring) Write(p []byte) {
	if over := len(p) - r.limit; over > 0 {
		r.end += int64(over)
		r.start = r.end
		p = p[over:]
	}
	r.grow(int(r.end-r.start) + len(p))
	if len(r.buf) == 0 {
		return
	}
	for len(p) > 0 {
		n := copy(r.buf[int(r.end%int64(len(r.buf))):], p)
		r.end += int64(n)
		p = p[n:]
	}
	if held := r.end - r.start; held > int64(len(r.buf)) {
		r.start = r.end - int64(len(r.buf))
	}
}

// CopyAt fills dst with the bytes from number off on and returns how many it copied. It copies nothing when off
// is not within [Start, End).
func (r *Ring) CopyAt(dst []byte, off int64) int {
	if off < r.start || off >= r.end {
		return 0
	}
	dst = dst[:min(int64(len(dst)), r.end-off)]
	n := copy(dst, r.buf[int(off%int64(len(r.buf))):])
	n += copy(dst[n:], r.buf)
	return n
}

// Tail returns a copy of the newest n bytes, or of all when fewer are held.
func (r *Ring) Tail(n int) []byte {
	n = int(min(int64(n), r.end-r.start))
	out := make([]byte, n)
	r.CopyAt(out, r.end-int64(n))
	return out
}

// grow makes room for need bytes, up to the limit. Positions are taken modulo the size, so the bytes move.
func (r *Ring) grow(need int) {
	need = min(need, r.limit)
	if need <= len(r.buf) {
		return
	}
	size := max(len(r.buf), min(initial, r.limit))
	for size < need {
		size = min(size*2, r.limit)
	}
	next := make([]byte, size)
	for off := r.start; off < r.end; {
		from := r.buf[int(off%int64(len(r.buf))):]
		from = from[:min(int64(len(from)), r.end-off)]
		n := copy(next[int(off%int64(size)):], from)
		off += int64(n)
	}
	r.buf = next
}
