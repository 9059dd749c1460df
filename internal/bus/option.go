package bus

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

// options are chosen for long-lived processes: reconnecting never ends, and a dead peer is noticed within 40 s
// (nats.go's defaults give up after 60 tries and ping every 2 minutes).
func (b *Bus) options(ctx context.Context) ([]nats.Option, error) {
	cfg := b.cfg
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.CustomInboxPrefix(cfg.InboxPrefix),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 500*time.Millisecond),
		nats.PingInterval(20 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.Timeout(connectTimeout(ctx)),
		nats.PermissionErrOnSubscribe(true),
	}
	opts = append(opts, b.handlers()...)
	if cfg.InProcess != nil {
		opts = append(opts, nats.InProcessServer(cfg.InProcess.inner))
		if u, err := url.Parse(cfg.InProcess.URL()); err == nil && u.User != nil {
			password, _ := u.User.Password()
			opts = append(opts, nats.UserInfo(u.User.Username(), password))
		}
	}
	return appendFiles(opts, cfg)
}

func (b *Bus) handlers() []nats.Option {
	return []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.met.connected.Set(0)
			if b.closing.Load() {
				return // our own doing
			}
			b.log.Warn().Err(err).Msg("nats connection lost")
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.noteReconnect()
			b.met.connected.Set(1)
			b.met.reconnects.Inc()
			b.log.Info().Str("server", nc.ConnectedServerName()).Msg("nats connection is back")
		}),
		nats.ConnectHandler(func(*nats.Conn) { b.met.connected.Set(1) }),
		nats.ClosedHandler(func(*nats.Conn) {
			b.met.connected.Set(0)
			b.eraMu.Lock()
			b.endEra()
			b.eraMu.Unlock()
			close(b.closed)
		}),
		// A call that the permissions forbid is seen only here; the caller just waits for its time-out.
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				b.permission.forbidden(err)
			}
			event := b.log.Error().Err(err)
			if sub != nil {
				event = event.Str("subject", sub.Subject)
			}
			event.Msg("nats reported an error")
		}),
	}
}

func appendFiles(opts []nats.Option, cfg Config) ([]nats.Option, error) {
	if err := readable(cfg.Creds, cfg.NKey, cfg.CA, cfg.Cert, cfg.Key); err != nil {
		return nil, err
	}
	if cfg.Creds != "" {
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	}
	if cfg.NKey != "" {
		nkey, err := nats.NkeyOptionFromSeed(cfg.NKey)
		if err != nil {
			return nil, fmt.Errorf("%w: read the nkey file: %w", ErrInvalid, err)
		}
		opts = append(opts, nkey)
	}
	if cfg.CA != "" {
		opts = append(opts, nats.RootCAs(cfg.CA))
	}
	if cfg.Cert != "" {
		opts = append(opts, nats.ClientCert(cfg.Cert, cfg.Key))
	}
	return opts, nil
}

// readable says which of the files cannot be read: a wrong name is a wrong setting, not a broker that is away.
func readable(paths ...string) error {
	var errs []error
	for _, path := range paths {
		if path == "" {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrInvalid, err))
			continue
		}
		_ = f.Close() // nothing was written
	}
	return errors.Join(errs...)
}

func connectTimeout(ctx context.Context) time.Duration {
	const most = 5 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left < most {
			return max(left, time.Millisecond)
		}
	}
	return most
}
