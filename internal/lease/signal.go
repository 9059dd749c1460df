package lease

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Freed calls one parked request: a slot of its scope is kept for it for
// Config.GiveWay.
type Freed struct {
	// Scope is the scope's kind and name, "exec:u:acme:ann".
	Scope string
	// ID is the lease id the waiter asked with.
	ID string
}

// Freed gives the calls this process has won; each goes to one process of those
// that have asked for them by Freed. It is an accelerator only: at most 256 are
// kept, later ones are dropped and counted, a lost one costs the waiter's own
// next look. Never closed.
func (m *Manager) Freed() <-chan Freed {
	m.takes.Store(true)
	return m.freed
}

// listen follows the signals of the scripts. The client reconnects by itself.
func (m *Manager) listen(ctx context.Context) error {
	sub := m.beats.Subscribe(ctx, m.keys.signals())
	defer func() {
		if err := sub.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			m.log.Debug().Err(err).Msg("close signal subscription")
		}
	}()
	messages := sub.Channel(redis.WithChannelSize(256))
	for {
		select {
		case <-ctx.Done():
			return nil
		case msg, ok := <-messages:
			if !ok {
				return nil
			}
			m.heard(ctx, strings.Fields(msg.Payload))
		}
	}
}

func (m *Manager) heard(ctx context.Context, words []string) {
	switch {
	case len(words) == 2 && words[0] == "revoked":
		m.poke(words[1])
	case len(words) == 4 && words[0] == "freed" && m.takes.Load():
		scope, ok := strings.CutPrefix(words[1], m.keys.line(""))
		if ok && m.claim(ctx, words[2]+":"+words[3]) {
			m.tell(Freed{Scope: scope, ID: words[2]})
		}
	}
}

// claim makes one process of the fleet answer a call, which the id and the time
// of the call name.
func (m *Manager) claim(ctx context.Context, call string) bool {
	var won bool
	err := m.ask(ctx, opClaim, func(ctx context.Context) error {
		err := m.calls.SetArgs(ctx, m.keys.claim(call), m.cfg.Owner, redis.SetArgs{Mode: "NX", TTL: m.cfg.GiveWay}).Err()
		won = err == nil
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	return err == nil && won
}

func (m *Manager) tell(f Freed) {
	select {
	case m.freed <- f:
	default:
		m.metrics.signalsDropped.Inc()
	}
}
