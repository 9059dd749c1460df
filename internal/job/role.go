package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

const (
	orphanEvery  = time.Minute
	orphanAge    = time.Minute
	orphansMost  = 100
	reclaimEvery = 30 * time.Second
)

// roles are the background duties of which the fleet needs one of each.
func (w *Worker) roles() map[string]func(context.Context) error {
	roles := map[string]func(context.Context) error{"orphans": w.requeueOrphans}
	if w.sprites != nil {
		roles["reclaim"] = w.reclaimSprites
		roles["sweep"] = w.sweepSprites
	}
	return roles
}

// requeueOrphans queues runs again that no message carries, once a minute.
func (w *Worker) requeueOrphans(ctx context.Context) error {
	for {
		if w.sleep(ctx, w.jitter(orphanEvery)) != nil {
			return nil
		}
		orphans, err := w.bus.Orphans(ctx, orphanAge, orphansMost)
		if err != nil {
			w.log.Warn().Err(err).Msg("runs without a message could not be looked for")
			continue
		}
		for _, o := range orphans {
			if err := w.bus.Requeue(ctx, o); err != nil {
				w.log.Warn().Err(err).Stringer("run", o.Key).Msg("run without a message not queued again")
				continue
			}
			w.met.requeued.Inc()
			w.log.Warn().Stringer("run", o.Key).Msg("a run that no message carried was queued again")
		}
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
		if snap.State() != plan.LinkTearingDown || snap.Link.Reclaim == nil {
			return nil
		}
		if err := w.reclaim(ctx, snap); err != nil {
			errs = append(errs, fmt.Errorf("reclaim %s: %w", snap.Link.Sandbox, err))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

func (w *Worker) reclaim(ctx context.Context, snap session.Snapshot) error {
	until, err := w.heldUntil(ctx, snap.Link.Holder)
	if err != nil || !until.IsZero() {
		return err
	}
	hold := session.Hold{Run: snap.Link.Holder, Seq: snap.Link.HolderSeq}
	if err := w.deleteSprite(ctx, snap.Link.Sandbox, gonePatience); err != nil {
		_, saveErr := w.links.Unconfirmed(ctx, snap, hold, string(sprites.ClassOf(err)))
		return errors.Join(err, saveErr)
	}
	if snap.Link.EndedSeq > 0 {
		_, err = w.links.FinishEnd(ctx, snap, hold)
		return err
	}
	return w.links.Drop(ctx, snap, hold)
}

// wakeParked wakes runs whose slot has become free.
func (w *Worker) wakeParked(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case freed, ok := <-w.leases.Freed():
			if !ok {
				return nil
			}
			w.wakeOne(ctx, freed)
		}
	}
}

func (w *Worker) wakeOne(ctx context.Context, freed lease.Freed) {
	key, ok := runOfLease(freed.ID)
	if !ok {
		return
	}
	if _, err := w.bus.Wake(ctx, key); err != nil && !errors.Is(err, bus.ErrUnreachable) {
		w.log.Debug().Err(err).Stringer("run", key).Msg("parked run not woken; its schedule wakes it")
	}
}
