package job

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
)

// settleWithin bounds how long a shutdown waits, after the grace period, for runs to be handed over.
const settleWithin = 15 * time.Second

// errDraining is the cause with which a drained worker's contexts end.
var errDraining = errors.New("the worker shuts down")

// Run takes requests until ctx ends, then drains: it stops pulling, gives back what was not begun, lets running jobs
// finish for DrainGrace, hands over what is left, and returns nil. It is called once.
func (w *Worker) Run(ctx context.Context) error {
	// What serves running jobs must outlive ctx by the grace period.
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errDraining)
	g, base := errgroup.WithContext(base)
	var cancels *bus.Watch
	err := w.insist(ctx, "watch cancels", func() (err error) {
		cancels, err = w.bus.WatchCancels(base, w.hearCancel)
		return err
	})
	if ctx.Err() != nil && cancels == nil {
		return nil // nothing was begun
	}
	if err != nil {
		return fmt.Errorf("watch cancels: %w", err)
	}
	defer cancels.Close()
	pooled := make(chan struct{}) // closed when the pool has ended
	g.Go(func() error {
		defer close(pooled)
		return w.pool.Run(base)
	})
	g.Go(func() error { return w.serveEndpoints(base) })
	g.Go(func() error { return w.wakeParked(base) })
	for name, role := range w.roles() {
		g.Go(func() error { return w.lead(base, name, role) })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			w.drain(base, pooled)
		case <-base.Done():
			w.depart()
		}
		stop(errDraining)
		return nil
	})
	err = g.Wait()
	w.group.Wait()
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errDraining) {
		return fmt.Errorf("worker %s: %w", w.cfg.WorkerID, err)
	}
	return nil
}

// serveEndpoints answers request and reply until ctx ends.
func (w *Worker) serveEndpoints(ctx context.Context) error {
	cfg := bus.EndpointConfig{
		Version: semantic(w.cfg.Version), Metadata: map[string]string{"worker": w.cfg.WorkerID, "slots": strconv.Itoa(w.cfg.Slots)},
		Stats: func() any {
			s := bus.WorkerState{ID: w.cfg.WorkerID, Version: w.cfg.Version, Slots: w.cfg.Slots, Running: w.hub.count(), Draining: w.draining.Load()}
			if last := w.lastFailure.Load(); last != nil {
				s.LastProviderError, s.LastProviderAt = last.Step+": "+last.Class, last.At
			}
			return s
		},
	}
	if w.sprites != nil {
		cfg.Files = files{w}
	}
	return w.insist(ctx, "serve requests", func() error { return w.bus.Serve(ctx, cfg) })
}

// insist does again what an absent broker kept from being done, until ctx ends: a worker that starts, or goes on, while the
// broker is away waits for it (case 54).
func (w *Worker) insist(ctx context.Context, what string, f func() error) error {
	for {
		err := f()
		if !errors.Is(err, bus.ErrUnreachable) || ctx.Err() != nil {
			return err
		}
		w.log.Warn().Err(err).Str("what", what).Msg("the broker is away; tried again")
		if w.sleep(ctx, brokerRetry) != nil {
			return err
		}
	}
}

// brokerRetry spaces the tries while the broker is away.
const brokerRetry = time.Second

// semantic is the version as service lists want it; a build that has none is 0.0.0.
func semantic(version string) string {
	v := strings.TrimPrefix(version, "v")
	if !semver.MatchString(v) {
		return "0.0.0"
	}
	return v
}

var semver = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// drain is a shutdown in bounded time (case 56).
func (w *Worker) drain(ctx context.Context, pooled <-chan struct{}) {
	w.draining.Store(true)
	w.log.Info().Int("running", w.hub.count()).Msg("draining: no new requests")
	w.pool.Drain()
	ended := w.await(ctx, pooled, w.cfg.DrainGrace)
	w.depart()
	if ended {
		return
	}
	w.log.Info().Int("running", w.hub.count()).Msg("draining: handing over what still runs")
	if !w.await(ctx, pooled, settleWithin) {
		w.log.Warn().Int("running", w.hub.count()).Msg("draining: runs are left to their ack wait")
	}
}

// await reports whether done was closed within d.
func (w *Worker) await(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	t := w.timer(w.now().Add(d))
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C():
	case <-ctx.Done():
	}
	return false
}

// lead runs a background role while this worker is its leader; the fleet has one.
func (w *Worker) lead(ctx context.Context, name string, role func(context.Context) error) error {
	for ctx.Err() == nil {
		err := w.leases.Lead(ctx, name, role)
		if ctx.Err() != nil || errors.Is(err, lease.ErrClosed) {
			return nil
		}
		if err != nil {
			w.log.Warn().Err(err).Str("role", name).Msg("background role ended; it is taken up again")
		}
		if w.sleep(ctx, roleRetry) != nil {
			return nil
		}
	}
	return nil
}

// roleRetry spaces the tries to lead a role.
const roleRetry = 5 * time.Second

// sleep waits by the worker's clock.
func (w *Worker) sleep(ctx context.Context, d time.Duration) error {
	t := w.timer(w.now().Add(d))
	defer t.Stop()
	select {
	case <-t.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
