package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

const (
	orphanEvery  = time.Minute
	orphansMost  = 100
	reclaimEvery = 30 * time.Second
)

// roles are the background duties of which the fleet needs one of each.
func (w *Worker) roles() map[string]func(context.Context) error {
	roles := map[string]func(context.Context) error{"orphans": w.requeueOrphans, "gauges": w.gaugeFleet}
	if w.sprites != nil && w.namer != nil {
		roles["canary"] = w.runCanary
	}
	if w.sprites != nil {
		roles["reclaim"] = w.reclaimSprites
		roles["sweep"] = w.sweepSprites
	}
	return roles
}

// requeueOrphans queues runs again that no message carries, once a minute. A look at several streams is not one moment,
// and a run whose message moved meanwhile only seems to be alone; so it must be found so twice, unchanged.
func (w *Worker) requeueOrphans(ctx context.Context) error {
	earlier := map[bus.RunKey]time.Time{}
	for {
		if err := w.sleep(ctx, w.jitter(orphanEvery)); err != nil {
			return nil
		}
		orphans, err := w.bus.Orphans(ctx, w.cfg.OrphanAge, orphansMost)
		if err != nil {
			w.log.Warn().Err(err).Msg("runs without a message could not be looked for")
			continue
		}
		seen := map[bus.RunKey]time.Time{}
		for _, o := range orphans {
			seen[o.Key] = o.Since
			if since, before := earlier[o.Key]; !before || !since.Equal(o.Since) {
				continue
			}
			queued, err := w.bus.Requeue(ctx, o)
			if err != nil {
				w.log.Warn().Err(err).Stringer("run", o.Key).Msg("run without a message not queued again")
			}
			if err != nil || !queued {
				continue
			}
			w.met.requeued.Inc()
			w.log.Warn().Stringer("run", o.Key).Msg("a run that no message carried was queued again")
		}
		earlier = seen
	}
}

// reclaimSprites tries unconfirmed tear-downs again until the name reads 404.
func (w *Worker) reclaimSprites(ctx context.Context) error {
	for {
		if w.sleep(ctx, w.jitter(reclaimEvery)) != nil {
			return nil
		}
		if err := w.ReclaimOnce(ctx); err != nil {
			w.log.Warn().Err(err).Msg("unconfirmed tear-downs remain")
		}
	}
}

// ReclaimOnce tries every tear-down again that was not confirmed. One that fails does not stop the rest; all failures
// are returned together. It blocks for at most gonePatience each.
func (w *Worker) ReclaimOnce(ctx context.Context) error {
	var errs []error
	err := w.links.Walk(ctx, w.keys, "", func(snap session.Snapshot, err error) error {
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		if snap.State() != plan.LinkTearingDown {
			return nil
		}
		if err := w.reclaim(ctx, snap); err != nil {
			errs = append(errs, fmt.Errorf("reclaim %s: %w", snap.Link.Sandbox, err))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// reclaim finishes one tear-down that its holder has left behind. It takes the hold first: two deletes at once could hit
// the Sprite that comes next.
func (w *Worker) reclaim(ctx context.Context, snap session.Snapshot) error {
	held, err := w.held(ctx, snap)
	if err != nil || held {
		return err
	}
	if snap.Link.EndedSeq > 0 && snap.Link.EndedSeq < snap.Link.RevivedSeq {
		if _, err := w.sprites.Get(ctx, snap.Link.Sandbox); sprites.ClassOf(err) == sprites.ClassNotFound {
			return nil // done already, see below
		}
	}
	hold := session.Hold{Run: dutyHolder("reclaim"), Seq: snap.Link.HolderSeq}
	snap, err = w.links.TakeHold(ctx, snap, hold)
	if errors.Is(err, session.ErrConflict) {
		return nil // somebody else finishes it
	}
	if err != nil {
		return err
	}
	err = w.deleteSprite(ctx, snap.Link.Sandbox, gonePatience)
	if err != nil {
		_, saveErr := w.links.Unconfirmed(ctx, snap, hold, string(sprites.ClassOf(err)))
		return errors.Join(err, saveErr)
	}
	w.auditReclaimed(ctx, snap)
	switch l := snap.Link; {
	case l.EndedSeq == 0:
		err = w.links.Drop(ctx, snap, hold) // it was no end that tore it down
	case l.EndedSeq >= l.RevivedSeq && l.EndedSeq > 0:
		_, err = w.links.FinishEnd(ctx, snap, hold)
	default:
		// Revived after an end, then expired: the link keeps the order of the two for the run that comes next.
	}
	if err == nil {
		w.log.Info().Str("sandbox", snap.Link.Sandbox).Msg("an unconfirmed tear-down was finished")
	}
	return err
}

// dutyHolder names the holder of a link that is no run: it parses as no run's key.
func dutyHolder(duty string) string { return duty + ":" + randomWord() }
