package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

// sweepLeases bounds how many leases a sweep reads; more are an error, because a lease that was not read may name any
// Sprite.
const sweepLeases = 100_000

// usage is who has which Sprite, by name.
type usage struct {
	links  map[string]session.Snapshot
	leased map[string]bool
}

// use reads every link and lease. One that cannot be read is an error: it may name any Sprite.
func (s *Sweeper) use(ctx context.Context) (*usage, error) {
	u := &usage{links: map[string]session.Snapshot{}, leased: map[string]bool{}}
	err := s.deps.Links.Walk(ctx, s.deps.Bus.Links(), "", func(snap session.Snapshot, err error) error {
		if err == nil && snap.Link.Sandbox != "" {
			u.links[snap.Link.Sandbox] = snap
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read session links: %w", err)
	}
	held, err := s.deps.Leases.List(ctx, lease.Filter{Max: sweepLeases})
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	for _, l := range held {
		u.leased[l.Sandbox] = true
	}
	return u, nil
}

// inUse reports whether somebody has the Sprite or may want it back. A page's link keeps its Sprite for ever; a
// conversation's does so until its hard expiry has passed.
func (s *Sweeper) inUse(ctx context.Context, sp sprites.Sprite, u *usage) (bool, error) {
	if u.leased[sp.Name] || sp.Status == sprites.StatusRunning {
		return true, nil
	}
	snap, linked := u.links[sp.Name]
	if !linked {
		return false, nil
	}
	l := snap.Link
	switch {
	case snap.State() != plan.LinkLive, l.Kind == plan.KindTerminal, l.PTY != nil:
		return true, nil
	case snap.Idle(s.cfg.Clock.Now()) < s.cfg.HardExpiry:
		return true, nil
	}
	return s.hasJobs(ctx, l.Tenant, l.ID)
}

// hasJobs reports whether a job of the conversation runs or waits, or whether that cannot be told.
func (s *Sweeper) hasJobs(ctx context.Context, tenant, conversation string) (bool, error) {
	for _, state := range []bus.JobState{bus.JobRunning, bus.JobQueued} {
		jobs, err := s.deps.Bus.JobsList(ctx, tenant, bus.JobsRequest{ConversationID: conversation, State: state, Limit: 1})
		if err != nil {
			return false, fmt.Errorf("list jobs of %s: %w", conversation, err)
		}
		if len(jobs.Jobs) > 0 || jobs.Partial {
			return true, nil
		}
	}
	return false, nil
}

// remove deletes one Sprite, after looking again at everything that its verdict rests on.
func (s *Sweeper) remove(ctx context.Context, row *Swept) error {
	sp, err := s.deps.Sprites.Get(ctx, row.Sandbox)
	if sprites.ClassOf(err) == sprites.ClassNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	u, err := s.use(ctx)
	if err != nil {
		return err
	}
	used, err := s.inUse(ctx, sp, u)
	if err != nil {
		return err
	}
	if used || sp.Instance != row.instance {
		// The name may have been made anew since the listing: only what was judged is deleted.
		row.Verdict, row.Why = plan.SweepKeep, "it is in use by now"
		return nil
	}
	if snap, linked := u.links[row.Sandbox]; linked {
		return s.removeLinked(ctx, row, snap)
	}
	return s.removeSprite(ctx, row)
}

// removeLinked takes the link to tearing_down first, so that no run counts on the Sprite while it goes.
func (s *Sweeper) removeLinked(ctx context.Context, row *Swept, snap session.Snapshot) error {
	hold := session.Hold{Run: dutyHolder("sweep"), Seq: snap.Link.HolderSeq}
	snap, err := s.deps.Links.BeginTeardown(ctx, snap, hold, row.Sandbox, false)
	if errors.Is(err, session.ErrConflict) {
		row.Verdict, row.Why = plan.SweepKeep, "it is in use by now"
		return nil
	}
	if err != nil {
		return err
	}
	// A run that had read the link before it changed is in the journal by now.
	used, err := s.hasJobs(ctx, snap.Key.Tenant, snap.Key.ID)
	if err == nil && used {
		row.Verdict, row.Why = plan.SweepKeep, "it is in use by now"
		return s.deps.Links.Forget(ctx, snap, hold) // the run, or the next, adopts the Sprite by its name
	}
	if err == nil {
		err = s.removeSprite(ctx, row)
	}
	if err != nil {
		_, saveErr := s.deps.Links.Unconfirmed(ctx, snap, hold, string(sprites.ClassOf(err)))
		return errors.Join(err, saveErr)
	}
	// Of a session that was revived after an end the link kept the order of the two. No request is as old as that end by
	// now: the Sprite was idle for longer than a day, and a request waits for twelve hours at most.
	return s.deps.Links.Forget(ctx, snap, hold)
}

func (s *Sweeper) removeSprite(ctx context.Context, row *Swept) error {
	if err := deleteAndWait(ctx, s.deps.Sprites, s.cfg.Clock, row.Sandbox, gonePatience); err != nil {
		return err
	}
	row.Deleted = true
	s.cfg.Log.Warn().Str("sandbox", row.Sandbox).Msg("an unused sandbox was deleted")
	s.deps.Audit(ctx, audit.Record{Kind: audit.KindTeardown, Tenant: plan.NoTenant, ID: "sweep-" + randomWord(), Action: "sandboxes sweep",
		Sandbox: row.Sandbox, Detail: row.Why, Actor: audit.Actor{Operator: "sweep"}})
	return nil
}

// deleteAndWait deletes by name and waits until the name reads 404, for at most patience in all. Never two deletes at
// once: who deletes a linked Sprite holds its link in tearing_down.
func deleteAndWait(ctx context.Context, client *sprites.Client, clock Clock, name string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := client.Delete(ctx, name); err != nil {
		return err
	}
	for {
		_, err := client.Get(ctx, name)
		if sprites.ClassOf(err) == sprites.ClassNotFound {
			return nil
		}
		t := clock.Timer(pollEvery)
		select {
		case <-t.C():
		case <-ctx.Done():
			t.Stop()
			if err == nil {
				err = fmt.Errorf("sprite %s still exists after its delete", name)
			}
			return err
		}
	}
}
