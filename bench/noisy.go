package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wakebus/wakebus/internal/bench"
)

// quietTenants is how many send a few jobs while one sends as many as it may.
const quietTenants = 10

// growNoisy measures ten quiet tenants alone and beside a noisy one, of two sorts.
func growNoisy(ctx context.Context, b *book) error {
	return withRig(ctx, bench.RigConfig{}, func(rig *bench.Rig) error {
		var callers []*bench.Caller
		for i := range quietTenants + 1 {
			c, err := bench.NewCaller(ctx, rig.Target().Bus, "tenant"+strconv.Itoa(i), "n")
			if err != nil {
				return err
			}
			defer c.Close()
			if _, err := c.Run(ctx, bench.Load{Jobs: 16, InFlight: 4, Conversations: 16}); err != nil {
				return err
			}
			callers = append(callers, c)
		}
		noisy, quiet := callers[0], callers[1:]
		each := b.n(60, 4)
		alone, err := quietJobs(ctx, quiet, each)
		if err != nil {
			return err
		}
		b.row("noisy", "alone", f2(alone.P50), f2(alone.P99), "1.00", "0")
		for _, sort := range []struct {
			row    string
			argv   []string
			figure *growthFigure
		}{
			{"beside commands of 200 ms (it takes slots)", []string{"sleep", "0.2"}, &b.Slots},
			{"beside no-op commands (it takes the processor)", []string{"true"}, &b.Busy},
		} {
			beside, rate, err := besideNoisy(ctx, noisy, quiet, each, sort.argv)
			if err != nil {
				return err
			}
			*sort.figure = growthFigure{Before: alone.P99, After: beside.P99}
			b.row("noisy", sort.row, f2(beside.P50), f2(beside.P99), ratio(beside.P99, alone.P99), f0(rate))
		}
		return nil
	})
}

// besideNoisy measures the quiet tenants while the noisy one keeps its whole backlog under way, and how much it got done.
func besideNoisy(ctx context.Context, noisy *bench.Caller, quiet []*bench.Caller, each int, argv []string) (bench.Distribution, float64, error) {
	const backlog = 100 // what a tenant may have waiting by default
	made, stop := context.WithCancel(ctx)
	defer stop()
	jobs, took := 0, time.Duration(0)
	busy := make(chan struct{})
	var g errgroup.Group
	g.Go(func() error {
		load := bench.Load{Jobs: backlog, InFlight: backlog, Conversations: 16, Argv: argv}
		for first := true; made.Err() == nil; first = false {
			// Its last jobs run to their end, so that none is left behind.
			s, err := noisy.Run(ctx, load)
			if first {
				close(busy)
				load.Jobs = 4 * backlog
			}
			if err != nil {
				return fmt.Errorf("the noisy tenant: %w", err)
			}
			jobs, took = jobs+len(s.Result), took+s.Took
		}
		return nil
	})
	select {
	case <-busy: // its first backlog has passed, and the next is under way
	case <-ctx.Done():
	}
	beside, err := quietJobs(ctx, quiet, each)
	stop()
	if werr := g.Wait(); err == nil {
		err = werr
	}
	return beside, float64(jobs) / max(took.Seconds(), 0.001), err
}

// quietJobs sends five jobs a second for each caller, not all at the same moment.
func quietJobs(ctx context.Context, callers []*bench.Caller, each int) (bench.Distribution, error) {
	const every = 200 * time.Millisecond
	took := make([][]time.Duration, len(callers))
	g, ctx := errgroup.WithContext(ctx)
	for i, c := range callers {
		g.Go(func() error {
			if err := pause(ctx, every*time.Duration(i)/time.Duration(len(callers))); err != nil {
				return err
			}
			tick := time.NewTicker(every)
			defer tick.Stop()
			for range each {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				s, err := c.Exec(ctx, bench.Job{Argv: []string{"true"}, Conversation: "c0", User: "u0"})
				if err != nil {
					return err
				}
				took[i] = append(took[i], s.Result)
			}
			return nil
		})
	}
	err := g.Wait()
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	return bench.Distribute(all), err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
