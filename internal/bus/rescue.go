package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/plan"
)

// runReserve looks for runs that another worker left, while no ordinary slot is free (or the journal is too full for new
// runs). A request that is new is given back at once, for whoever has a slot.
func (u *puller) runReserve(pulling, work context.Context) error {
	pause := max(50*time.Millisecond, u.lane.pool.bus.cfg.AckWait/18)
	failures := 0
	for pulling.Err() == nil {
		full, changed := u.lane.slots.full()
		if !full && !u.lane.pool.full.Load() {
			u.silent.Store(0)
			waitFor(pulling, changed, time.Second)
			continue
		}
		if u.lane.pool.cfg.Paused(u.lane.kind) {
			wait(pulling, pause)
			continue
		}
		if err := u.rescue(pulling, work); err != nil {
			if errors.Is(err, nats.ErrConnectionClosed) {
				return fmt.Errorf("pull %s requests: %w", u.lane.kind, ErrClosed)
			}
			failures++
			u.mend(pulling, err, failures)
			continue
		}
		failures = 0
		wait(pulling, pause)
	}
	return nil
}

func waitFor(ctx context.Context, signal <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-signal:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// rescue looks at up to three messages of each queue. The broker hands out redeliveries first, so a run that was left comes
// before requests that only wait.
func (u *puller) rescue(pulling, work context.Context) error {
	for _, q := range []*binding{&u.first, &u.queue} {
		for range 3 {
			if !u.lane.reserve.acquire(pulling, 0) {
				return nil
			}
			d, err := u.glance(pulling, q)
			if d == nil {
				u.lane.reserve.release()
				if err != nil {
					return err
				}
				break
			}
			if pulling.Err() == nil && u.left(pulling, d) {
				d.Reserve = true
				u.lane.pool.start(work, d, u.lane.reserve.release)
				continue
			}
			u.handBack(d)
			u.lane.reserve.release()
		}
	}
	return nil
}

// left reports whether the delivery's run was begun and has nobody, as far as its redelivery and its journal tell. A run
// whose result is stored only needs its last steps repeated, which is quick.
func (u *puller) left(ctx context.Context, d *Delivery) bool {
	key, ok := d.Key()
	if !ok {
		return false
	}
	last, record, err := u.lane.pool.bus.LastState(ctx, key)
	if err != nil {
		return false
	}
	return last.Owner != NoOwner || last.Kind == EventResult || !record.Phase.Before(plan.PhaseDialing)
}
