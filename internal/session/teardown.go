package session

import (
	"context"

	"github.com/wakebus/wakebus/internal/plan"
)

// BeginTeardown takes a live link to tearing_down, before anything is deleted. With end it is the session's end, and
// by's sequence the tombstone's. From none it records a Sprite that was found by name without a link; sandbox is that
// name, otherwise it is not looked at. A link that this run holds already, in creating or tearing_down, moves on too;
// an end sets its mark on it. Errors: *Busy, ErrEnded (there is nothing left to tear down), *Forbidden (an end older
// than the fresh start that made this Sprite), ErrConflict.
func (s *Store) BeginTeardown(ctx context.Context, snap Snapshot, by Hold, sandbox string, end bool) (Snapshot, error) {
	if err := snap.Busy(by.Run); err != nil {
		return snap, err
	}
	next := snap.Link
	switch snap.State() {
	case plan.LinkEnded:
		return snap, ErrEnded
	case plan.LinkNone:
		next = Link{Sandbox: sandbox}
	case plan.LinkTearingDown:
		if !end || next.EndedSeq >= by.Seq {
			return snap, nil
		}
	case plan.LinkCreating, plan.LinkLive:
	}
	if end && by.Seq < next.RevivedSeq {
		return snap, &Forbidden{Change: "a late end", State: snap.State()}
	}
	next.State, next.PTY = plan.LinkTearingDown, nil
	next.Holder, next.HolderSeq, next.HeldAt = by.Run, by.Seq, s.cfg.Now()
	if end {
		next.EndedSeq = max(next.EndedSeq, by.Seq)
	}
	return s.save(ctx, "begin tear-down of", snap, next)
}

// FinishEnd takes the link from tearing_down to ended once the name reads 404, by the run that holds it. Errors:
// *Busy, *Forbidden (not tearing down, or not for an end), ErrConflict.
func (s *Store) FinishEnd(ctx context.Context, snap Snapshot, by Hold) (Snapshot, error) {
	if err := snap.Busy(by.Run); err != nil {
		return snap, err
	}
	if snap.State() != plan.LinkTearingDown || !snap.Link.ending() {
		return snap, &Forbidden{Change: "finish end", State: snap.State()}
	}
	return s.save(ctx, "end", snap, s.tombstone(snap.Link.EndedSeq))
}

// Tombstone marks a session as ended that has no Sprite, so that a request queued before its end cannot make one. On
// an ended session it moves the mark to the later of the two ends. Errors: *Busy, *Forbidden (use BeginTeardown),
// ErrConflict.
func (s *Store) Tombstone(ctx context.Context, snap Snapshot, by Hold) (Snapshot, error) {
	if err := snap.Busy(by.Run); err != nil {
		return snap, err
	}
	switch snap.State() {
	case plan.LinkNone:
		return s.save(ctx, "end", snap, s.tombstone(by.Seq))
	case plan.LinkEnded:
		if by.Seq <= snap.Link.EndedSeq {
			return snap, nil
		}
		return s.save(ctx, "end", snap, s.tombstone(by.Seq))
	case plan.LinkCreating, plan.LinkLive, plan.LinkTearingDown:
	}
	return snap, &Forbidden{Change: "end without a tear-down", State: snap.State()}
}

// Unconfirmed notes that a tear-down was tried and not confirmed; class is the failure's class. The link stays
// tearing_down and is the record by which the Sprite is reclaimed. Errors: *Busy, *Forbidden, ErrConflict.
func (s *Store) Unconfirmed(ctx context.Context, snap Snapshot, by Hold, class string) (Snapshot, error) {
	if err := snap.Busy(by.Run); err != nil {
		return snap, err
	}
	if snap.State() != plan.LinkTearingDown {
		return snap, &Forbidden{Change: "note an unconfirmed tear-down", State: snap.State()}
	}
	now, next := s.cfg.Now(), snap.Link
	r := Reclaim{Since: now}
	if next.Reclaim != nil {
		r = *next.Reclaim
	}
	r.Tries, r.Last, r.Class = r.Tries+1, now, class
	next.Reclaim = &r
	return s.save(ctx, "keep", snap, next)
}

// TakeHold moves a hold to by, whose caller has seen that the holder's journal has ended. By the holder itself it
// changes nothing. Decide first: a request that will be denied takes no hold. Errors: *Forbidden (nobody holds the link), ErrConflict.
func (s *Store) TakeHold(ctx context.Context, snap Snapshot, by Hold) (Snapshot, error) {
	if !held(snap.State()) {
		return snap, &Forbidden{Change: "take hold", State: snap.State()}
	}
	if snap.HeldBy(by.Run) {
		return snap, nil
	}
	next := snap.Link
	next.Holder, next.HolderSeq, next.HeldAt = by.Run, by.Seq, s.cfg.Now()
	return s.save(ctx, "take", snap, next)
}

// Drop removes a link by revision when nothing stands behind it: by the run that holds it, after a create that made
// nothing or an expiry's tear-down that will not be followed by a create; or a tombstone that has run out. Where an
// earlier end must be remembered its tombstone stays. Errors: *Busy, *Forbidden, ErrConflict.
func (s *Store) Drop(ctx context.Context, snap Snapshot, by Hold) error {
	if err := snap.Busy(by.Run); err != nil {
		return err
	}
	state := snap.State()
	switch {
	case state == plan.LinkNone && snap.Revision == 0:
		return nil
	case state == plan.LinkTearingDown && snap.Link.ending():
		return &Forbidden{Change: "drop", State: state}
	case held(state) && snap.Link.EndedSeq > 0:
		_, err := s.save(ctx, "end", snap, s.tombstone(snap.Link.EndedSeq))
		return err
	case held(state), state == plan.LinkNone:
		if err := s.links.Delete(ctx, snap.Key.String(), snap.Revision); err != nil {
			return wrap("drop", snap.Key, err)
		}
		return nil
	}
	return &Forbidden{Change: "drop", State: state}
}

// Forget removes a link whose Sprite is gone together with what it kept of an earlier end and the fresh start after it,
// by the run that holds its tear-down: for when no request can be as old as that end. Errors: *Busy, *Forbidden,
// ErrConflict.
func (s *Store) Forget(ctx context.Context, snap Snapshot, by Hold) error {
	if err := snap.Busy(by.Run); err != nil {
		return err
	}
	if snap.State() != plan.LinkTearingDown || snap.Link.ending() {
		return &Forbidden{Change: "forget", State: snap.State()}
	}
	if err := s.links.Delete(ctx, snap.Key.String(), snap.Revision); err != nil {
		return wrap("forget", snap.Key, err)
	}
	return nil
}

func (s *Store) tombstone(seq uint64) Link {
	return Link{State: plan.LinkEnded, EndedSeq: seq, EndedAt: s.cfg.Now()}
}
