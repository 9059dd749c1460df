package bus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/plan"
)

// Tap hears a tenant's live events, of all its jobs, over one subscription. It catches nothing up and sorts nothing:
// it is for measuring and watching, where a Reader for each job would cost more than the job.
type Tap struct{ sub *nats.Subscription }

// Tap subscribes. hear is called for one event at a time, on a goroutine of the client library's, and must not block;
// the event's data is its own. The context is for the call only. Close ends it.
func (b *Bus) Tap(ctx context.Context, tenant string, hear func(Event)) (*Tap, error) {
	if !plan.ValidToken(tenant) {
		return nil, fmt.Errorf("tap: %w: tenant %q", ErrInvalid, tenant)
	}
	sub, err := b.nc.Subscribe(SubjectReply+"."+tenant+".>", func(msg *nats.Msg) {
		if e, err := DecodeEvent(msg.Subject, Header(msg.Header), msg.Data); err == nil {
			hear(*e)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("tap tenant %s: %w", tenant, classify(err))
	}
	t := &Tap{sub: sub}
	// More than this is dropped by the client library, and Dropped counts it.
	err = sub.SetPendingLimits(1<<20, 256<<20)
	if err == nil {
		tctx, cancel := b.try(ctx)
		defer cancel()
		err = b.nc.FlushWithContext(tctx) // the broker knows of us before the caller publishes
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("tap tenant %s: %w", tenant, classify(err))
	}
	return t, nil
}

// Dropped is how many events came faster than they were heard, and were lost.
func (t *Tap) Dropped() int {
	n, err := t.sub.Dropped()
	if err != nil {
		return 0 // closed
	}
	return n
}

// Close ends the subscription. It may be called more than once.
func (t *Tap) Close() { _ = t.sub.Unsubscribe() } // fails only when it was closed before, or its connection was
