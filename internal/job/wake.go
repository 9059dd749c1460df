package job

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

const (
	// wakeAgain spaces the looks for a run that was called before it was parked.
	wakeAgain = 200 * time.Millisecond
	// wakeWithin ends them: by then the slot that was kept for it goes to the next in line.
	wakeWithin = 3 * time.Second
	// wakesMax bounds the runs looked for again; a further one waits for its own look.
	wakesMax = 256
)

// wakeup is a call for a run that was not parked yet.
type wakeup struct {
	lease string
	until time.Time
}

// wakeParked wakes runs whose slot has become free. A slot may be freed between a run's refusal and its parking, which
// another worker may be doing: then the run is looked for again.
func (w *Worker) wakeParked(ctx context.Context) error {
	ticker := time.NewTicker(wakeAgain)
	defer ticker.Stop()
	var early []wakeup
	for {
		again := ticker.C
		if len(early) == 0 {
			again = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case freed, ok := <-w.leases.Freed():
			if !ok {
				return nil
			}
			if !w.wakeOne(ctx, freed.ID) && len(early) < wakesMax {
				early = append(early, wakeup{freed.ID, w.now().Add(wakeWithin)})
			}
		case <-again:
			early = slices.DeleteFunc(early, func(e wakeup) bool { return w.wakeOne(ctx, e.lease) || w.now().After(e.until) })
		}
	}
}

// wakeOne makes a parked run due; false when it may still be about to be parked.
func (w *Worker) wakeOne(ctx context.Context, lease string) bool {
	key, ok := runOfLease(lease)
	if !ok {
		return true
	}
	woken, err := w.bus.Wake(ctx, key)
	if err != nil && !errors.Is(err, bus.ErrUnreachable) {
		w.log.Debug().Err(err).Stringer("run", key).Msg("parked run not woken; its schedule wakes it")
	}
	return woken
}

// runOfLease is the run that a lease id belongs to.
func runOfLease(id string) (key runKey, ok bool) {
	parts := strings.Split(id, ".")
	if len(parts) != 4 || !plan.ValidToken(parts[0]) || !plan.ValidToken(parts[1]) {
		return key, false
	}
	return parseRun(parts[0], parts[1], parts[2])
}
