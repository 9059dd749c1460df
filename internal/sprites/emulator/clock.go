package emulator

import (
	"context"
	"time"
)

// Clock is where the emulator takes its time from.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after d, unless stopped before.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a call that AfterFunc has yet to make.
type Timer interface {
	// Stop says whether it came in time.
	Stop() bool
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// pause waits for d, or for the context.
func pause(ctx context.Context, c Clock, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	done := make(chan struct{})
	t := c.AfterFunc(d, func() { close(done) })
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
