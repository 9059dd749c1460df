package bus

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// Bus is one connection to the broker and everything that is said over it. All methods may be called concurrently.
type Bus struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	cfg Config
	log zerolog.Logger
	met *metrics

	reconnectedAt atomic.Int64 // unix nanoseconds of the last reconnect, 0 for none
	closeOnce     sync.Once
	closing       atomic.Bool     // Close was called
	permission    permission      // ends calls that the broker forbids
	eraMu         sync.Mutex      // protects era and endEra
	era           context.Context // ends with the next reconnect
	endEra        context.CancelFunc
	closed        chan struct{} // closed by nats.go's closed handler
}

// Connect opens the connection. It blocks until the broker has answered or refused, at most 5 s or until ctx ends.
// Errors are ErrInvalid for the configuration, ErrUnreachable and ErrUnauthorized. Later interruptions are mended
// without an end of attempts; Ready tells of them.
func Connect(ctx context.Context, cfg Config) (*Bus, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	b := &Bus{cfg: cfg, log: cfg.Logger.With().Str("part", "bus").Logger(), closed: make(chan struct{})}
	b.era, b.endEra = context.WithCancel(context.Background())
	met, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	b.met = met
	opts, err := b.options(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	b.nc, err = nats.Connect(cfg.URL, opts...)
	if err != nil {
		// The address may hold a password, and nats.go's own errors do not repeat it.
		return nil, fmt.Errorf("connect to nats: %w", classify(err))
	}
	if err := b.probeInbox(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	b.js, err = jetstream.New(b.nc, jetstream.WithDefaultTimeout(cfg.PublishTimeout))
	if err != nil {
		b.nc.Close()
		return nil, fmt.Errorf("open jetstream: %w", classify(err))
	}
	return b, nil
}

// Close flushes what was published, at most 2 s, and closes the connection. Everything that still waits on the Bus
// ends with ErrClosed. It may be called more than once.
func (b *Bus) Close() {
	b.closeOnce.Do(func() {
		if b.nc.IsConnected() {
			// Acks are only buffered; they must leave before the connection does.
			if err := b.nc.FlushTimeout(2 * time.Second); err != nil {
				b.log.Warn().Err(err).Msg("flush before close failed")
			}
		}
		b.closing.Store(true)
		b.nc.Close()
		<-b.closed
	})
}

// Ready returns nil while the broker is connected, else ErrUnreachable or ErrClosed. It does not block.
func (b *Bus) Ready() error {
	status := b.nc.Status()
	if status == nats.CONNECTED {
		return nil
	}
	if status == nats.CLOSED {
		return fmt.Errorf("nats connection: %w", ErrClosed)
	}
	return fmt.Errorf("nats connection is %s: %w", status, ErrUnreachable)
}

// Status is the connection's state in one word, for people.
func (b *Bus) Status() string { return b.nc.Status().String() }

// Server is the name and version of the server that the connection is on now, for people.
func (b *Bus) Server() string {
	return b.nc.ConnectedServerName() + " " + b.nc.ConnectedServerVersion()
}

// MaxPayload is the largest message that the broker takes, headers included, in bytes.
func (b *Bus) MaxPayload() int { return int(b.nc.MaxPayload()) }

// ReconnectedAt is when the connection last came back; the zero time when it was never lost.
func (b *Bus) ReconnectedAt() time.Time {
	ns := b.reconnectedAt.Load()
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// connection gives a context that ends when the connection comes back after a loss, or is closed for good.
func (b *Bus) connection() context.Context {
	b.eraMu.Lock()
	defer b.eraMu.Unlock()
	return b.era
}

// noteReconnect is called by nats.go once the subscriptions have been made again.
func (b *Bus) noteReconnect() {
	b.reconnectedAt.Store(b.now().UnixNano())
	b.eraMu.Lock()
	defer b.eraMu.Unlock()
	b.endEra()
	b.era, b.endEra = context.WithCancel(context.Background())
}

// AckWait is how long a delivered request may stay silent before another worker gets it.
func (b *Bus) AckWait() time.Duration { return b.cfg.AckWait }

func (b *Bus) now() time.Time { return b.cfg.Now() }

// try bounds one call to the broker.
func (b *Bus) try(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.cfg.PublishTimeout)
}
