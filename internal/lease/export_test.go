package lease

import (
	"context"
	"time"
)

// OpenEdited is Open with the scripts changed first: for mutants.
var OpenEdited = open

// RenewNow is one heartbeat on demand.
func (l *Lease) RenewNow() error { return l.renew(context.Background(), l.m.renewals, l.m.cfg.TTL) }

// Pending counts what waits to be given back.
func (m *Manager) Pending() int {
	m.pending.mu.Lock()
	defer m.pending.mu.Unlock()
	return len(m.pending.tasks)
}

// Settle works everything pending off now.
func (m *Manager) Settle(ctx context.Context) time.Duration { return m.settleDue(ctx, true) }

// Abandon gives a call up before its bytes arrive.
func (m *Manager) Abandon(ctx context.Context, r Request, nonce string) error {
	m.giveBack(r.ID, nonce, scopeKeys(r.Scopes))
	m.settleDue(ctx, true)
	return nil
}

// Queued counts the calls that wait to go together.
func (m *Manager) Queued() int {
	m.requests.mu.Lock()
	defer m.requests.mu.Unlock()
	return len(m.requests.queue)
}
