package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// The bounds of one page of history, as the history endpoint promises them.
const (
	MaxHistoryEvents = 256
	MaxHistoryBytes  = 4 << 20
)

// History reads a run's stored events with Wb-Seq fromSeq and above, in order, at most maxEvents and about maxBytes of
// data (0, or more than MaxHistoryEvents and MaxHistoryBytes, stands for these). lastSeq is the number of the last
// one, or fromSeq-1 when there is none; more says that a page from lastSeq+1 has others. Numbers that are missing
// were removed by retention. A run nobody claimed has no events and no error. It needs the right to read the streams;
// roles without it ask the history endpoint.
func (b *Bus) History(ctx context.Context, key RunKey, fromSeq uint64, maxEvents, maxBytes int) (events []Event, lastSeq uint64, more bool, err error) {
	if !key.Valid() {
		return nil, 0, false, fmt.Errorf("read history: %w: run %q", ErrInvalid, key)
	}
	fromSeq = max(fromSeq, 1)
	if maxEvents <= 0 || maxEvents > MaxHistoryEvents {
		maxEvents = MaxHistoryEvents
	}
	if maxBytes <= 0 || maxBytes > MaxHistoryBytes {
		maxBytes = MaxHistoryBytes
	}
	state, moreState, err := b.chainFrom(ctx, StreamJobs, key.StateReplySubject(), fromSeq, maxEvents, maxBytes)
	if err != nil {
		return nil, 0, false, fmt.Errorf("read the journal of %s: %w", key, err)
	}
	var out []*Event
	var moreOut bool
	if len(state) > 0 || fromSeq > 1 { // without accepted there is no output
		out, moreOut, err = b.chainFrom(ctx, StreamOutput, key.OutputReplySubject(), fromSeq, maxEvents, maxBytes)
		if err != nil {
			return nil, 0, false, fmt.Errorf("read the output of %s: %w", key, err)
		}
	}
	merged := mergePages(state, moreState, out, moreOut)
	more = moreState || moreOut || len(merged) < len(state)+len(out)
	size := 0
	lastSeq = fromSeq - 1
	for i, e := range merged {
		size += len(e.Data)
		if i > 0 && (i >= maxEvents || size > maxBytes) {
			return events, lastSeq, true, nil
		}
		events, lastSeq = append(events, *e), e.Seq
	}
	return events, lastSeq, more, nil
}

// mergePages sorts two pages into one. A page that has others after it says nothing beyond its own last number, so the
// other one is cut there.
func mergePages(a []*Event, moreA bool, b []*Event, moreB bool) []*Event {
	limit := ^uint64(0)
	if moreA && len(a) > 0 {
		limit = a[len(a)-1].Seq
	}
	if moreB && len(b) > 0 {
		limit = min(limit, b[len(b)-1].Seq)
	}
	merged := slices.Concat(a, b)
	slices.SortStableFunc(merged, func(x, y *Event) int {
		switch {
		case x.Seq < y.Seq:
			return -1
		case x.Seq > y.Seq:
			return 1
		}
		return 0
	})
	for len(merged) > 0 && merged[len(merged)-1].Seq > limit {
		merged = merged[:len(merged)-1]
	}
	return merged
}

// chainFrom reads one subject's events from a Wb-Seq on.
func (b *Bus) chainFrom(ctx context.Context, stream, subject string, fromSeq uint64, maxEvents, maxBytes int) ([]*Event, bool, error) {
	start, err := b.locate(ctx, stream, subject, fromSeq)
	if errors.Is(err, errNoMessage) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	msgs, more, err := b.batch(ctx, stream, batchQuery{Subject: subject, Seq: start, Batch: maxEvents, MaxBytes: maxBytes})
	if err != nil {
		return nil, false, err
	}
	events := make([]*Event, 0, len(msgs))
	for _, m := range msgs {
		e, err := m.event()
		if err != nil {
			b.log.Error().Err(err).Str("stream", stream).Uint64("stream_seq", m.Seq).Msg("a stored message is no event")
			continue
		}
		if e.Seq >= fromSeq {
			events = append(events, e)
		}
	}
	return events, more, nil
}

// locate finds the stream sequence from which the subject's Wb-Seq is fromSeq or above. Streams know no Wb-Seq, but both
// numbers rise together along a chain, so it is found by halving.
func (b *Bus) locate(ctx context.Context, stream, subject string, fromSeq uint64) (uint64, error) {
	if fromSeq <= 1 {
		return 1, nil
	}
	last, err := b.lastEvent(ctx, stream, subject)
	if err != nil {
		return 0, err
	}
	if last.Seq < fromSeq {
		return 0, errNoMessage
	}
	low, high := uint64(1), last.StreamSeq
	for low < high {
		middle := low + (high-low)/2
		m, err := b.nextOn(ctx, stream, subject, middle)
		if errors.Is(err, errNoMessage) { // evicted while we looked
			return low, nil
		}
		if err != nil {
			return 0, err
		}
		e, err := m.event()
		switch {
		case err != nil || e.Seq < fromSeq:
			low = m.Seq + 1
		default:
			high = middle
		}
	}
	return low, nil
}

// OutputTail reads the last n bytes of a run's stored output, both streams in the order they arrived, and where the two
// streams end. A taker finds its place in what the sandbox replays by them. The tail never reaches over a gap.
func (b *Bus) OutputTail(ctx context.Context, key RunKey, n int) (tail []byte, stdout, stderr int64, err error) {
	last, err := b.lastEvent(ctx, StreamOutput, key.OutputReplySubject())
	if errors.Is(err, errNoMessage) {
		return nil, 0, 0, nil
	}
	if err != nil {
		return nil, 0, 0, fmt.Errorf("read the output's end of %s: %w", key, err)
	}
	stdout, stderr = last.End()
	// There is no way to read a chain backwards, so ever longer stretches before its end are read. The first is what an
	// otherwise idle stream needs.
	for back := uint64(16); ; back *= 8 {
		start := uint64(1)
		if last.StreamSeq > back {
			start = last.StreamSeq - back
		}
		events, err := b.stretch(ctx, key, start, last.StreamSeq)
		if err != nil {
			return nil, 0, 0, fmt.Errorf("read the output's end of %s: %w", key, err)
		}
		tail, whole := tailOf(events, n)
		if whole || start == 1 || back > 1<<20 {
			return tail, stdout, stderr, nil
		}
	}
}

// stretch reads a run's output between two stream sequences, both included. Only the last 1 MiB is kept.
func (b *Bus) stretch(ctx context.Context, key RunKey, start, end uint64) ([]*Event, error) {
	var events []*Event
	for start <= end {
		msgs, more, err := b.batch(ctx, StreamOutput, batchQuery{Subject: key.OutputReplySubject(), Seq: start, Batch: MaxHistoryEvents, MaxBytes: MaxHistoryBytes})
		if err != nil {
			return nil, err
		}
		for _, m := range msgs {
			if e, err := m.event(); err == nil && m.Seq <= end {
				events = append(events, e)
			}
		}
		size := 0
		for i := len(events) - 1; i >= 0; i-- {
			if size += len(events[i].Data); size > 1<<20 {
				events = events[i:]
				break
			}
		}
		if !more || len(msgs) == 0 {
			break
		}
		start = msgs[len(msgs)-1].Seq + 1
	}
	return events, nil
}

// tailOf joins the last n bytes. whole says that reading further back would add nothing.
func tailOf(events []*Event, n int) (tail []byte, whole bool) {
	parts, size := [][]byte{}, 0
	for i := len(events) - 1; i >= 0 && size < n; i-- {
		e := events[i]
		if e.Kind == EventGap {
			if e.IsSeam() {
				continue
			}
			whole = true
			break
		}
		parts = append(parts, e.Data)
		size += len(e.Data)
		if e.StdoutOffset == 0 && e.StderrOffset == 0 {
			whole = true
		}
	}
	slices.Reverse(parts)
	tail = slices.Concat(parts...)
	if len(tail) >= n {
		return tail[len(tail)-n:], true
	}
	return tail, whole
}
