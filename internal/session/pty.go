package session

import (
	"context"

	"github.com/wakebus/wakebus/internal/plan"
)

// SetPTY records a terminal's live session, by revision: of two gateways that open for one page one wins. Errors:
// *Forbidden (the link is not live), ErrConflict.
func (s *Store) SetPTY(ctx context.Context, snap Snapshot, pty PTYRecord) (Snapshot, error) {
	if snap.State() != plan.LinkLive {
		return snap, &Forbidden{Change: "set the terminal of", State: snap.State()}
	}
	now, next := s.cfg.Now(), snap.Link
	pty.RenewedAt = now
	if pty.OpenedAt.IsZero() {
		pty.OpenedAt = now
	}
	next.PTY, next.LastActive = &pty, now
	return s.save(ctx, "set the terminal of", snap, next)
}

// ClearPTY removes the record of a session that has ended, if it is still that session's: the lease and the session
// are compared. Another's record, or none, is left alone without an error. Errors: ErrConflict.
func (s *Store) ClearPTY(ctx context.Context, snap Snapshot, lease, session string) (Snapshot, error) {
	pty := snap.Link.PTY
	if pty == nil || pty.Lease != lease || pty.Session != session {
		return snap, nil
	}
	next := snap.Link
	next.PTY, next.LastActive = nil, s.cfg.Now()
	return s.save(ctx, "clear the terminal of", snap, next)
}

// Touch stores that a live session is active, at most once per Config.TouchEvery. It is best effort: any error means
// only that it was not stored, and must deny nobody.
func (s *Store) Touch(ctx context.Context, snap Snapshot) (Snapshot, error) {
	now := s.cfg.Now()
	if snap.State() != plan.LinkLive || now.Sub(snap.Link.LastActive) < s.cfg.TouchEvery {
		return snap, nil
	}
	next := snap.Link
	next.LastActive = now
	return s.save(ctx, "touch", snap, next)
}
