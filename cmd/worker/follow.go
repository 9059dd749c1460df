package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
)

// The ways in which following a job ends without its result.
var (
	// errLeft: a second interrupt, or no result for long after the first.
	errLeft = errors.New("left before the result")
	// errNoTaker: its deadline has passed and nobody has claimed it.
	errNoTaker = errors.New("no worker took it")
)

// cancelTimeout bounds the mark that the first interrupt publishes.
const cancelTimeout = 10 * time.Second

// farewell is cli.farewell outside tests: a stop takes a few seconds, and a worker that died while it stopped the command
// is succeeded in ten.
const farewell = time.Minute

// events is a job's events in order; io.EOF ends them.
type events interface {
	Next(ctx context.Context) (bus.Event, error)
}

var _ events = (*bus.Reader)(nil)

// follow shows events until they end.
func (s *show) follow(ctx context.Context, source events) error {
	return followWith(ctx, source, s.event)
}

// followWith gives each event to take until they end, or take fails.
func followWith(ctx context.Context, source events, take func(bus.Event) error) error {
	for {
		ev, err := source.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if errors.Is(context.Cause(ctx), errLeft) {
				return errLeft
			}
			return err
		}
		if err := take(ev); err != nil {
			return err
		}
	}
}

// withPatience gives up on a job that nobody has claimed by a time: where no worker runs, nobody would ever say
// `expired`. After the first event it waits for as long as it takes.
type withPatience struct {
	events
	until   time.Time
	now     func() time.Time
	started bool
}

func (p *withPatience) Next(ctx context.Context) (bus.Event, error) {
	if p.started {
		return p.events.Next(ctx)
	}
	first, cancel := context.WithTimeoutCause(ctx, p.until.Sub(p.now()), errNoTaker)
	defer cancel()
	ev, err := p.events.Next(first)
	if err != nil && errors.Is(context.Cause(first), errNoTaker) {
		return ev, errNoTaker
	}
	p.started = err == nil
	return ev, err
}

// cancelOnSignal calls mark at the first interrupt and goes on; the second, or the end of the farewell, ends the returned
// context with errLeft. The returned function ends the watching.
func (c *cli) cancelOnSignal(ctx context.Context, mark func(context.Context) error) (context.Context, func()) {
	signals, unnotify := c.interrupts()
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{}) // closed when the watcher has ended
	go func() {
		defer close(done)
		var late <-chan time.Time // fires once, when the farewell after the first interrupt is over
		for {
			select {
			case <-ctx.Done():
				return
			case <-late:
				cancel(errLeft)
				return
			case <-signals:
			}
			if late != nil {
				cancel(errLeft)
				return
			}
			late = time.After(c.farewell)
			// The mark must not keep a second interrupt waiting, so it has an owner of its own.
			marked, stop := context.WithTimeout(ctx, cancelTimeout)
			sent := make(chan struct{}) // closed when mark has returned
			go func() {
				defer close(sent)
				if err := mark(marked); err != nil && ctx.Err() == nil {
					c.say("worker: %v", err)
				}
			}()
			defer func() { stop(); <-sent }()
		}
	}()
	return ctx, func() {
		unnotify()
		cancel(nil)
		<-done
	}
}
