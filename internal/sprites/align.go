package sprites

import (
	"bytes"
	"time"
)

// AlignmentKind says how sure an attach is of where the output goes on.
type AlignmentKind string

// The kinds.
const (
	AlignExact  AlignmentKind = "exact"  // the server honoured our output offset, and its first bytes are ours
	AlignProven AlignmentKind = "proven" // our last bytes stand exactly once in the replay
	AlignGap    AlignmentKind = "gap"    // neither: something may be missing before what comes next
)

// Alignment tells what an attach knows about the output between what was delivered and what Next gives out.
type Alignment struct {
	// Kind is how it was found.
	Kind AlignmentKind
	// Bytes is the size of the gap, or nil when nobody can tell.
	Bytes *int64
}

// part is a piece of replayed output.
type part struct {
	stream Stream
	data   []byte
}

const (
	// TailMax is how much of the delivered output's end is compared with a replay.
	TailMax = 4 << 10
	// replayKeep bounds the replay that is held until it is aligned.
	replayKeep = 4 << 20
)

// aligner finds the place in a replay that follows what was delivered, in bounded memory: it keeps what came after the
// last occurrence of tail, and at most replayKeep of it. Feed it the replay, then ask result.
type aligner struct {
	tail     []byte
	whole    bool   // tail is all that was delivered, so it can only stand at the very beginning
	joined   []byte // the last len(tail)-1 bytes before what is scanned next
	kept     []part
	size     int
	matches  int
	fed      int64
	atStart  bool // the first occurrence is at the very beginning
	overflow bool
}

func newAligner(tail []byte, delivered int64) *aligner {
	return &aligner{tail: tail, whole: int64(len(tail)) == delivered}
}

// feed takes in the next piece of the replay. It copies data.
func (a *aligner) feed(stream Stream, data []byte) {
	if len(a.tail) == 0 {
		a.keep(stream, data)
		a.fed += int64(len(data))
		return
	}
	for len(data) > 0 {
		window := append(append([]byte(nil), a.joined...), data...)
		at := bytes.Index(window, a.tail)
		if at < 0 {
			a.keep(stream, data)
			a.advance(window, len(data))
			return
		}
		end := at + len(a.tail)     // in window
		used := end - len(a.joined) // of data; > 0, since joined is shorter than tail
		start := a.fed - int64(len(a.joined)) + int64(at)
		if a.matches == 0 && start == 0 {
			a.atStart = true
		}
		a.matches++
		a.kept, a.size, a.overflow = nil, 0, false
		// An occurrence that overlaps this one counts as well: go on from its second byte.
		a.advance(window[:end], used)
		data = data[used:]
	}
}

// patience is how long a silence ends the replay: longer while the tail is still expected, since the rest of a slow
// replay would be taken for new.
func (a *aligner) patience(quiet time.Duration) time.Duration {
	if len(a.tail) > 0 && a.matches == 0 {
		return 4 * quiet
	}
	return quiet
}

// advance notes that used more bytes were scanned, which window ends with.
func (a *aligner) advance(window []byte, used int) {
	a.fed += int64(used)
	keep := min(len(window), len(a.tail)-1)
	a.joined = append(a.joined[:0], window[len(window)-keep:]...)
}

func (a *aligner) keep(stream Stream, data []byte) {
	if len(data) == 0 {
		return
	}
	a.kept = append(a.kept, part{stream: stream, data: append([]byte(nil), data...)})
	a.size += len(data)
	for a.size > replayKeep {
		a.overflow = true
		a.size -= len(a.kept[0].data)
		a.kept = a.kept[1:]
	}
}

// result returns the output to go on with. ok is false when that is not proven: then the caller says a gap first. What is
// returned never repeats delivered bytes: after the last of several occurrences all is new, and where there is none at
// all, the longest beginning that could still be ours is left out.
func (a *aligner) result() (rest []part, ok bool) {
	switch {
	case a.matches == 1 && !a.overflow && (a.atStart || !a.whole):
		return a.kept, true
	case a.matches > 0:
		return a.kept, false
	case len(a.tail) == 0:
		// Nothing to compare: the replay is whole when it is shorter than what any scrollback must hold for a tail to be
		// found in it.
		return a.kept, a.fed <= TailMax
	case a.overflow:
		return a.kept, false
	}
	return skip(a.kept, overlap(a.tail, a.kept)), false
}

// overlap is the length of the longest end of tail that the replay begins with: a replay whose head is lost may begin
// inside what was delivered.
func overlap(tail []byte, replay []part) int {
	var head []byte
	for _, p := range replay {
		head = append(head, p.data[:min(len(p.data), len(tail)-len(head))]...)
		if len(head) == len(tail) {
			break
		}
	}
	for n := min(len(tail), len(head)); n > 0; n-- {
		if bytes.Equal(tail[len(tail)-n:], head[:n]) {
			return n
		}
	}
	return 0
}

// skip drops the first n bytes.
func skip(parts []part, n int) []part {
	for len(parts) > 0 && n > 0 {
		if n < len(parts[0].data) {
			parts[0].data = parts[0].data[n:]
			return parts
		}
		n -= len(parts[0].data)
		parts = parts[1:]
	}
	return parts
}
