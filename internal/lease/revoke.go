package lease

import (
	"context"
	"fmt"
	"strings"
)

// noMark stands where a record bears no operator's mark: no escaped text has
// this byte.
const noMark = "="

// markMax bounds why and by, which travel with every renewal of a marked lease.
const markMax = 512

// mark is what an operator writes into a record: one word.
func mark(why, by string) string {
	return escape(why[:min(len(why), markMax)]) + ":" + escape(by[:min(len(by), markMax)])
}

func revokedBy(id, mark string) *Lost {
	why, by, _ := strings.Cut(mark, ":")
	return &Lost{ID: id, Reason: Revoked, Why: unescape(why), By: unescape(by)}
}

// Revoke wants a lease's run to end. By default it marks: the holder's Context
// ends at its next heartbeat (at once where signals arrive), and the slot
// counts until it has stopped. With now the slot is freed at once, while the
// holder may run on for up to a heartbeat, and the id is refused for 10 min.
// Only a command's and a terminal's lease can be revoked: no other holder ends
// for it. Errors: ErrNotFound, ErrNotRevocable, an ErrUnavailable. Blocks for
// two calls at most.
func (m *Manager) Revoke(ctx context.Context, id, why, by string, now bool) error {
	if !tokenSafe(id, 300) {
		return fmt.Errorf("revoke: id %q is not valid: %w", id, ErrNotFound)
	}
	or(&why, "no reason given")
	or(&by, "unknown")
	held, err := m.record(ctx, id)
	if err != nil {
		return fmt.Errorf("revoke %s: %w", id, err)
	}
	if len(held.Scopes) == 0 {
		return fmt.Errorf("revoke %s: %w", id, ErrNotFound)
	}
	if held.Kind != KindExec && held.Kind != KindTerminal {
		return fmt.Errorf("revoke %s, a lease of kind %s: %w", id, held.Kind, ErrNotRevocable)
	}
	args := []any{id, mark(why, by), flag(now), m.keyTTL(), ms(revokedFor), ms(m.cfg.GiveWay), m.keys.signals(), len(held.Scopes)}
	reply, _, err := m.call(ctx, m.requests, opRevoke, m.keys.scoped([]string{m.keys.record(id)}, held.Scopes), args)
	if err != nil {
		return fmt.Errorf("revoke %s: %w", id, err)
	}
	if reply[0] != "ok" {
		return fmt.Errorf("revoke %s: %w", id, ErrNotFound)
	}
	m.metrics.revoked.Inc()
	m.log.Info().Str("lease", id).Str("why", why).Str("by", by).Bool("now", now).Msg("lease revoked")
	return nil
}
