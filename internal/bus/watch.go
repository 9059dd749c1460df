package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// watchBuffer is how many live messages may wait for their watcher; more are dropped and found by catching up.
	watchBuffer = 1024
	// watchEvery is how often a watcher catches up although nothing seems to have happened.
	watchEvery = 30 * time.Second
	// watchRetry is how soon a failed catching up is tried again.
	watchRetry = time.Second
)

// Watch is a running subscription with one goroutine, which ends with the context it was made with or by Close.
type Watch struct {
	cancel context.CancelFunc
	done   chan struct{} // closed by the goroutine when it ends
}

// Close ends the watch and waits until its function has returned for the last time. It may be called more than once,
// but not from within that function.
func (w *Watch) Close() {
	w.cancel()
	<-w.done
}

// watch joins a core subscription, which is quick but forgets, with reading the stream, which is slow but complete:
// catchUp runs whenever live messages may have been lost, and never beside live.
func (b *Bus) watch(ctx context.Context, subject string, live func(*nats.Msg), catchUp func(context.Context) error) (*Watch, error) {
	msgs := make(chan *nats.Msg, watchBuffer) // nats.go sends and never closes it
	sub, err := b.nc.ChanSubscribe(subject, msgs)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", subject, classify(err))
	}
	tctx, cancelTry := b.try(ctx)
	defer cancelTry()
	// Without the flush a message could be published before the broker knows of the subscription.
	if err := b.nc.FlushWithContext(tctx); err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("watch %s: %w", subject, classify(err))
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &Watch{cancel: cancel, done: make(chan struct{})}
	status := b.nc.StatusChanged(nats.CONNECTED)
	go func() {
		defer close(w.done)
		defer cancel()
		defer b.nc.RemoveStatusListener(status)
		defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection, which has no subscriptions
		b.watchLoop(ctx, subject, msgs, status, live, catchUp)
	}()
	return w, nil
}

func (b *Bus) watchLoop(ctx context.Context, subject string, msgs <-chan *nats.Msg, status <-chan nats.Status,
	live func(*nats.Msg), catchUp func(context.Context) error) {
	timer := time.NewTimer(0) // what was stored between the last read and the subscription
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.closed:
			return
		case msg := <-msgs:
			live(msg)
			continue
		case <-status:
		case <-timer.C:
		}
		next := watchEvery
		if err := catchUp(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn().Err(err).Str("subject", subject).Msg("catching up failed")
			next = watchRetry
		}
		timer.Reset(next)
	}
}
