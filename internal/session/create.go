package session

import (
	"context"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// Live is what is known of a Sprite once it is ready for use.
type Live struct {
	// Sandbox replaces the planned name when an older Sprite was adopted. Empty = as planned.
	Sandbox    string
	Instance   string
	Generation int
	PolicyHash string
	SetupDone  bool
	HasBash    bool
}

// BeginCreate takes the link from none to creating, before anything is created. With fresh the run is a fresh start,
// which later makes an older end too late. By the run that holds creating already it changes nothing. Errors: *Busy,
// ErrEnded (see Revive), *Forbidden, ErrConflict.
func (s *Store) BeginCreate(ctx context.Context, snap Snapshot, by Hold, sandbox string, fresh bool) (Snapshot, error) {
	if err := snap.Busy(by.Run); err != nil {
		return snap, err
	}
	switch snap.State() {
	case plan.LinkCreating:
		return snap, nil
	case plan.LinkNone:
		next := s.creating(Link{}, by, sandbox)
		if fresh {
			next.RevivedSeq = by.Seq
		}
		return s.save(ctx, "begin", snap, next)
	case plan.LinkEnded:
		return snap, ErrEnded
	case plan.LinkLive, plan.LinkTearingDown:
	}
	return snap, &Forbidden{Change: "begin create", State: snap.State()}
}

// Revive takes the link from ended to creating for a fresh start that was queued after the end, else ErrEnded. Other
// errors: *Forbidden, ErrConflict.
func (s *Store) Revive(ctx context.Context, snap Snapshot, by Hold, sandbox string) (Snapshot, error) {
	if snap.State() != plan.LinkEnded {
		return snap, &Forbidden{Change: "revive", State: snap.State()}
	}
	if by.Seq < snap.Link.EndedSeq {
		return snap, ErrEnded
	}
	next := s.creating(Link{EndedSeq: snap.Link.EndedSeq}, by, sandbox)
	next.RevivedSeq = by.Seq
	return s.save(ctx, "revive", snap, next)
}

// Recreate takes the link from live to creating after the control plane said that its Sprite is gone. The key stays;
// sandbox may be another name. Errors: *Busy, *Forbidden, ErrConflict.
func (s *Store) Recreate(ctx context.Context, snap Snapshot, by Hold, sandbox string) (Snapshot, error) {
	if err := snap.Busy(by.Run); err != nil {
		return snap, err
	}
	if snap.State() != plan.LinkLive {
		return snap, &Forbidden{Change: "recreate", State: snap.State()}
	}
	return s.save(ctx, "recreate", snap, s.creating(snap.Link.ordered(), by, sandbox))
}

// CreateAgain takes the link from tearing_down to creating, by the run that holds it and once the name reads 404. It
// passes through no other state, so that nobody creates in between. With fresh the run is a fresh start; without it an
// ending session stays ended (ErrEnded). Other errors: *Busy, *Forbidden, ErrConflict.
func (s *Store) CreateAgain(ctx context.Context, snap Snapshot, by Hold, sandbox string, fresh bool) (Snapshot, error) {
	if err := snap.Busy(by.Run); err != nil {
		return snap, err
	}
	if snap.State() != plan.LinkTearingDown {
		return snap, &Forbidden{Change: "create again", State: snap.State()}
	}
	if snap.Link.ending() && (!fresh || by.Seq < snap.Link.EndedSeq) {
		return snap, ErrEnded
	}
	next := s.creating(snap.Link.ordered(), by, sandbox)
	if fresh {
		next.RevivedSeq = by.Seq
	}
	return s.save(ctx, "create again", snap, next)
}

// Commit takes the link from creating to live, by the run that holds it. Errors: *Busy, *Forbidden, ErrConflict.
func (s *Store) Commit(ctx context.Context, snap Snapshot, by Hold, live Live) (Snapshot, error) {
	if err := snap.Busy(by.Run); err != nil {
		return snap, err
	}
	if snap.State() != plan.LinkCreating {
		return snap, &Forbidden{Change: "commit", State: snap.State()}
	}
	now := s.cfg.Now()
	next := snap.Link.released()
	next.State, next.CreatedAt, next.LastActive = plan.LinkLive, now, now
	next.prove(live)
	return s.save(ctx, "commit", snap, next)
}

// Amend stores what was proved about a live Sprite anew: after a lockdown was applied again, or a restore. Errors:
// *Forbidden, ErrConflict.
func (s *Store) Amend(ctx context.Context, snap Snapshot, live Live) (Snapshot, error) {
	if snap.State() != plan.LinkLive {
		return snap, &Forbidden{Change: "amend", State: snap.State()}
	}
	next := snap.Link
	next.LastActive = s.cfg.Now()
	next.prove(live)
	return s.save(ctx, "amend", snap, next)
}

// Proves reports whether the link proves that this instance is locked down with this policy. An unknown instance
// proves nothing (case 24).
func (l Link) Proves(instance, policyHash string) bool {
	return instance != "" && policyHash != "" && l.SetupDone && l.Instance == instance && l.PolicyHash == policyHash
}

func (l *Link) prove(live Live) {
	if live.Sandbox != "" {
		l.Sandbox = live.Sandbox
	}
	l.Instance, l.Generation, l.PolicyHash = live.Instance, live.Generation, live.PolicyHash
	l.SetupDone, l.HasBash = live.SetupDone, live.HasBash
}

func (s *Store) creating(l Link, by Hold, sandbox string) Link {
	l.State, l.Sandbox = plan.LinkCreating, sandbox
	l.Holder, l.HolderSeq, l.HeldAt = by.Run, by.Seq, s.cfg.Now()
	return l
}

// ordered keeps of a link only what orders ends and fresh starts.
func (l Link) ordered() Link { return Link{EndedSeq: l.EndedSeq, RevivedSeq: l.RevivedSeq} }

// released is the link with nobody holding it.
func (l Link) released() Link {
	l.Holder, l.HolderSeq, l.HeldAt = "", 0, time.Time{}
	return l
}

// ending reports whether the tear-down is that of an end.
func (l Link) ending() bool { return l.EndedSeq > 0 && l.EndedSeq >= l.RevivedSeq }
