package bus

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Queue is how full one queue of a kind is, over all tenants.
type Queue struct {
	State QueueState
	Kind  Kind // empty for parked requests, which are counted over all kinds
	// Waiting is how many no worker has taken; InHand how many workers have and have not acked.
	Waiting, InHand uint64
	// Oldest is when the first of those that wait was stored; zero when none does.
	Oldest time.Time
}

// Queues measures every queue: fresh and due by kind, and what is parked. It costs a few round trips whatever stands in
// them. Errors: ErrUnreachable, ErrUnauthorized, ErrNotSetUp.
func (b *Bus) Queues(ctx context.Context) ([]Queue, error) {
	var out []Queue
	for _, kind := range Kinds() {
		for i, src := range queueSources(kind) {
			q := Queue{State: [...]QueueState{QueueFresh, QueueDue}[i], Kind: kind}
			if err := b.measure(ctx, src, &q); err != nil {
				return nil, fmt.Errorf("measure the queue %s of %s: %w", src.consumer, src.stream, err)
			}
			out = append(out, q)
		}
	}
	counts, err := b.subjectCounts(ctx, StreamRetry, SubjectRetryAt+".>")
	if err != nil {
		return nil, fmt.Errorf("measure what is parked: %w", err)
	}
	parked := Queue{State: QueueParked, Waiting: uint64(len(counts))}
	if len(counts) > 0 {
		if parked.Oldest, err = b.storedAt(ctx, StreamRetry, SubjectRetryAt+".>", 1); err != nil {
			return nil, fmt.Errorf("measure what is parked: %w", err)
		}
	}
	return append(out, parked), nil
}

func (b *Bus) measure(ctx context.Context, src queueSource, q *Queue) error {
	tctx, cancel := b.try(ctx)
	defer cancel()
	cons, err := b.js.Consumer(tctx, src.stream, src.consumer)
	if err != nil {
		return classify(err)
	}
	info := cons.CachedInfo()
	q.Waiting, q.InHand = info.NumPending, uint64(info.NumAckPending)
	if q.Waiting == 0 {
		return nil
	}
	for _, filter := range src.filters {
		at, err := b.storedAt(ctx, src.stream, filter, info.Delivered.Stream+1)
		if err != nil {
			return err
		}
		q.Oldest = older(q.Oldest, at)
	}
	return nil
}

// storedAt is when the first message of a filter at or after seq was stored; the zero time when there is none.
func (b *Bus) storedAt(ctx context.Context, stream, filter string, seq uint64) (time.Time, error) {
	m, err := b.nextOn(ctx, stream, filter, seq)
	if errors.Is(err, errNoMessage) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return m.Time, nil
}

// older is the earlier of two times; a zero one is none.
func older(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
