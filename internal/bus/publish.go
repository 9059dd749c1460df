package bus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/plan"
)

// Publish queues a request and returns its stream sequence once it is stored. The tenant may be empty or plan.NoTenant
// for the untenanted subjects, which sandbox.end does not have. Errors: *Refused when the tenant's backlog or the queue
// is full, ErrTooLarge, ErrInvalid, ErrNotSetUp, and ErrUnreachable when the answer did not come in time: publishing the
// same job id again is then safe, and the way to go on.
func (b *Bus) Publish(ctx context.Context, kind Kind, tenant string, hdr Header, body []byte) (uint64, error) {
	untenanted := tenant == "" || tenant == plan.NoTenant
	if !kind.Valid() || !untenanted && !plan.ValidToken(tenant) || untenanted && kind == KindEnd {
		return 0, fmt.Errorf("publish %s: %w: tenant %q", kind, ErrInvalid, tenant)
	}
	msg := nats.NewMsg(RequestSubject(kind, tenant))
	msg.Header, msg.Data = nats.Header(hdr.withoutBroker()), body
	if size := len(body); size > MaxRequestBytes {
		return 0, fmt.Errorf("publish %s: %w: %d bytes, at most %d", kind, ErrTooLarge, size, MaxRequestBytes)
	}
	tctx, cancel := b.try(ctx)
	defer cancel()
	ack, err := b.js.PublishMsg(tctx, msg, jetstream.WithRetryAttempts(2))
	switch {
	case err == nil:
		return ack.Sequence, nil
	case apiCode(err) == codeStreamStoreFailed:
		return 0, fmt.Errorf("publish %s: %w", kind, &Refused{Reason: plan.ReasonRateLimited, Tenant: tenant,
			Message: "too many requests are queued", cause: err})
	default:
		return 0, fmt.Errorf("publish %s: %w", kind, classify(err))
	}
}
