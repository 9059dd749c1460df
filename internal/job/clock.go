package job

import "time"

// Clock is where a worker's time comes from. Its methods may be called concurrently.
type Clock interface {
	// Now is the time.
	Now() time.Time
	// Timer fires once after d; at once when d is not positive.
	Timer(d time.Duration) Timer
}

// Timer fires once unless it was stopped.
type Timer interface {
	// C carries the time at which it fired.
	C() <-chan time.Time
	// Stop keeps it from firing. It reports whether it did.
	Stop() bool
}

type realClock struct{}

var _ Clock = realClock{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) Timer(d time.Duration) Timer { return realTimer{time.NewTimer(max(d, 0))} }

type realTimer struct{ t *time.Timer }

func (t realTimer) C() <-chan time.Time { return t.t.C }
func (t realTimer) Stop() bool          { return t.t.Stop() }

func (w *Worker) now() time.Time { return w.clock.Now() }

// timer fires at a time; at once when that has passed.
func (w *Worker) timer(at time.Time) Timer { return w.clock.Timer(at.Sub(w.now())) }

// jitter adds up to a fifth, so that what failed together does not come back together.
func (w *Worker) jitter(d time.Duration) time.Duration {
	return d + time.Duration(w.random()*float64(d)/5)
}
