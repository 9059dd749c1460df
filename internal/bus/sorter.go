package bus

import (
	"encoding/json"
	"maps"
	"slices"
)

// The bounds of a Sorter. When one is passed the event with the highest number is let go; it is missing then, and
// history has it.
const (
	maxSorterEvents = 4096
	maxSorterBytes  = 32 << 20
)

// SeqRange is a run of missing numbers, both ends included.
type SeqRange struct{ From, To uint64 }

// Sorter puts the events of one run into the order of Wb-Seq. State and output reach a live reader by two streams, so
// that result may overtake the last output; it is held, like every event, until all below it are in. A Sorter does no I/O
// and is not safe for concurrent use. Make one with NewSorter.
type Sorter struct {
	next    uint64             // the number to come
	high    uint64             // the highest number seen, kept or not
	pending map[uint64][]Event // two at one number when a fenced owner's output met its taker's first event
	size    int
	events  int
	// Where the delivered output ends; known from the start of a run, or from the first event delivered.
	known          bool
	stdout, stderr int64
}

// NewSorter starts at a number, 1 for a whole run.
func NewSorter(from uint64) *Sorter {
	from = max(from, 1)
	return &Sorter{next: from, high: from - 1, pending: map[uint64][]Event{}, known: from == 1}
}

// Next is the number that the sorter waits for.
func (s *Sorter) Next() uint64 { return s.next }

// Push takes one event, known ones and repeats too, and returns those whose turn has come, in order.
func (s *Sorter) Push(e Event) []Event {
	if e.Seq < s.next {
		return s.late(e)
	}
	for _, have := range s.pending[e.Seq] {
		if have.Kind.IsOutput() == e.Kind.IsOutput() {
			return nil
		}
	}
	s.high = max(s.high, e.Seq)
	s.pending[e.Seq] = append(s.pending[e.Seq], e)
	s.size += len(e.Data)
	s.events++
	if e.Seq == s.next {
		return s.release()
	}
	for s.size > maxSorterBytes || s.events > maxSorterEvents {
		s.dropHighest()
	}
	return nil
}

// late lets an output event through whose number has passed but whose bytes go on exactly where the delivered ones end.
// A worker that is being taken over may still get a chunk in under the number that its taker then uses; a repeat never
// fits, because its bytes have been counted.
func (s *Sorter) late(e Event) []Event {
	if (e.Kind != EventStdout && e.Kind != EventStderr) || len(e.Data) == 0 || !s.known || e.StdoutOffset != s.stdout || e.StderrOffset != s.stderr {
		return nil
	}
	s.stdout, s.stderr = e.End()
	return []Event{e}
}

func (s *Sorter) release() []Event {
	var out []Event
	for {
		events, ok := s.pending[s.next]
		if !ok {
			return out
		}
		delete(s.pending, s.next)
		for _, e := range events {
			s.size -= len(e.Data)
			s.events--
			s.stdout, s.stderr = e.End()
			s.known = true
			out = append(out, e)
		}
		s.next++
	}
}

func (s *Sorter) dropHighest() {
	top := uint64(0)
	for seq := range s.pending {
		top = max(top, seq)
	}
	for _, e := range s.pending[top] {
		s.size -= len(e.Data)
		s.events--
	}
	delete(s.pending, top)
}

// Missing lists the numbers below the highest seen that are not in, in order; nil when there is no hole.
func (s *Sorter) Missing() []SeqRange {
	var out []SeqRange
	at := s.next
	for _, seq := range slices.Sorted(maps.Keys(s.pending)) {
		if seq > at {
			out = append(out, SeqRange{From: at, To: seq - 1})
		}
		at = seq + 1
	}
	if at <= s.high {
		out = append(out, SeqRange{From: at, To: s.high})
	}
	return out
}

// Skip gives the first hole up and returns what follows it. When bytes are missing there it begins with a gap of
// retention that counts them; when only numbers are missing, as after a worker's death, nothing is said. It returns nil
// when no event follows.
func (s *Sorter) Skip() []Event {
	if len(s.pending) == 0 {
		return nil
	}
	hole := s.next
	s.next = slices.Min(slices.Collect(maps.Keys(s.pending)))
	first := s.pending[s.next][0]
	var out []Event
	if s.known {
		out = s.gap(hole, first)
	}
	return append(out, s.release()...)
}

func (s *Sorter) gap(seq uint64, first Event) []Event {
	stdout, stderr := max(0, first.StdoutOffset-s.stdout), max(0, first.StderrOffset-s.stderr)
	body := GapBody{Why: GapWhyRetention}
	switch {
	case stdout+stderr == 0:
		return nil
	case stderr == 0:
		body.Stream = GapStdout
	case stdout == 0:
		body.Stream = GapStderr
	default:
		body.Stream = GapBoth
	}
	total := stdout + stderr
	body.Bytes = &total
	data, err := json.Marshal(body)
	if err != nil { // three plain fields always marshal
		return nil
	}
	return []Event{{Kind: EventGap, Key: first.Key, Seq: seq, Owner: NoOwner, Request: first.Request,
		StdoutOffset: s.stdout, StderrOffset: s.stderr, Time: first.Time, Data: data}}
}
