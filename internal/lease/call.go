package lease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// call runs one script within CallTimeout. ran says, on an error, whether the
// server may have executed it all the same. What ended by ctx itself is not an
// ErrUnavailable.
func (m *Manager) call(ctx context.Context, by *courier, name op, keys []string, args []any) (reply []string, ran bool, err error) {
	err = m.ask(ctx, name, func(ctx context.Context) error {
		reply, err = by.run(ctx, m.scripts[name], keys, args)
		ran = err != nil && mayHaveRun(err)
		if err == nil && len(reply) == 0 {
			return errEmptyReply
		}
		return err
	})
	return reply, ran, err
}

var errEmptyReply = errors.New("empty reply")

// ask bounds, times and classifies one exchange with Redis.
func (m *Manager) ask(ctx context.Context, name op, do func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, m.cfg.CallTimeout)
	defer cancel()
	began := m.cfg.Now()
	err := do(bounded)
	m.metrics.calls.WithLabelValues(string(name)).Observe(m.cfg.Now().Sub(began).Seconds())
	if err == nil {
		m.answered()
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("lease %s: %w", name, context.Cause(ctx))
	}
	if errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("lease %s: %w", name, ErrClosed)
	}
	class := classify(err)
	m.away.Store(true)
	m.metrics.unavailable.WithLabelValues(string(name), string(class)).Inc()
	return &Unavailable{Op: string(name), Class: class, cause: err}
}

// answered notes a word of Redis; after an outage every lease renews at once
// instead of at its next beat.
func (m *Manager) answered() {
	m.last.Store(int64(m.elapsed()))
	if m.away.CompareAndSwap(true, false) {
		m.poke("")
	}
}

func (m *Manager) ping(ctx context.Context) error {
	return m.ask(ctx, opPing, func(ctx context.Context) error { return m.beats.Ping(ctx).Err() })
}

// watch asks Redis when nobody else does, so that Admit knows, and hands the
// gate's counts on.
func (m *Manager) watch(ctx context.Context) error {
	every := min(time.Second, m.cfg.Renew)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		quiet := m.elapsed()-time.Duration(m.last.Load()) >= m.cfg.Renew
		if m.away.Load() || quiet {
			if err := m.ping(ctx); err != nil && ctx.Err() == nil {
				m.log.Warn().Err(err).Msg("lease store does not answer")
			}
		}
		m.unconfirmed()
		m.gate.flush(ctx)
	}
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func span(s string) time.Duration { return time.Duration(number(s)) * time.Millisecond }

// field reads a reply's element; a missing one is empty.
func field(reply []string, i int) string {
	if i < len(reply) {
		return reply[i]
	}
	return ""
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// keyTTL outlives every lease in the key, and lets idle keys vanish.
func (m *Manager) keyTTL() string { return ms(2*m.cfg.TTL + time.Minute) }

// tombstone is how long late bytes of a given-up call are refused.
const tombstone = time.Minute

// revokedFor is how long a lease freed by an operator stays refused.
const revokedFor = 10 * time.Minute
