package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// permission ends calls that the broker forbids. It says so beside the call, which would wait for its time-out.
type permission struct {
	mu    sync.Mutex // protects calls
	calls map[*context.CancelCauseFunc]struct{}
}

// until gives a context that also ends when the broker forbids something to this connection, with that as its cause.
func (p *permission) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		p.calls = map[*context.CancelCauseFunc]struct{}{}
	}
	p.calls[&cancel] = struct{}{}
	return ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, &cancel)
		cancel(nil)
	}
}

// forbidden ends the calls under way.
func (p *permission) forbidden(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for cancel := range p.calls {
		(*cancel)(err)
	}
}

// answered classifies what a call gave: where the broker forbade it, that is the error.
func answered(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: %w", ErrUnauthorized, cause)
	}
	return classify(err)
}

// probeInbox listens once where replies arrive: a prefix that is not the user's own would look like a broker that is away.
func (b *Bus) probeInbox(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout(ctx))
	defer cancel()
	sub, err := b.nc.SubscribeSync(b.nc.NewInbox())
	if err != nil {
		return classify(err)
	}
	// The broker answers in order: its refusal is here before the answer to the flush.
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return classify(err)
	}
	if _, err := sub.NextMsg(time.Microsecond); errors.Is(err, nats.ErrPermissionViolation) {
		return &InboxError{Prefix: b.cfg.InboxPrefix}
	}
	return classify(sub.Unsubscribe())
}
