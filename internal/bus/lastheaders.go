package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// lastHeaders calls see with the last message of each subject that the filter matches, without its data, in the
// stream's order. It uses a short-lived consumer: a direct get would bring the bodies along, which for results and
// sealed requests are a thousand times as large. A walk that cannot be finished is an error.
func (b *Bus) lastHeaders(ctx context.Context, stream, filter string, see func(*storedMsg)) error {
	tctx, cancel := b.try(ctx)
	defer cancel()
	cons, err := b.js.CreateConsumer(tctx, stream, jetstream.ConsumerConfig{
		FilterSubject: filter, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: 30 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("open a walk over %s: %w", stream, classify(err))
	}
	name := cons.CachedInfo().Name
	defer func() {
		dctx, cancel := b.try(context.WithoutCancel(ctx))
		defer cancel()
		if err := b.js.DeleteConsumer(dctx, stream, name); err != nil {
			b.log.Debug().Err(err).Str("stream", stream).Msg("a walk's consumer is left to expire")
		}
	}()
	for left := cons.CachedInfo().NumPending; left > 0; {
		if err := ctx.Err(); err != nil {
			return ctxErr(ctx)
		}
		if left, err = b.fetchHeaders(cons, left, see); err != nil {
			return fmt.Errorf("walk over %s: %w", stream, err)
		}
	}
	return nil
}

func (b *Bus) fetchHeaders(cons jetstream.Consumer, left uint64, see func(*storedMsg)) (uint64, error) {
	batch, err := cons.Fetch(int(min(left, 1000)), jetstream.FetchMaxWait(b.cfg.PublishTimeout))
	if err != nil {
		return left, classify(err)
	}
	got := false
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			return left, fmt.Errorf("read a message's place: %w", err)
		}
		got, left = true, meta.NumPending
		see(&storedMsg{Subject: msg.Subject(), Seq: meta.Sequence.Stream, Time: meta.Timestamp, Header: Header(msg.Headers())})
	}
	if err := batch.Error(); err != nil && !errors.Is(err, jetstream.ErrNoMessages) {
		return left, classify(err)
	}
	if !got {
		// Everything that was pending can have gone by retention meanwhile; but then the rest is gone too.
		return left, fmt.Errorf("%w: %d messages did not come", ErrUnreachable, left)
	}
	return left, nil
}
