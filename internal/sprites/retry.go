package sprites

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sethvargo/go-retry"
)

// rule is one row of the retry table.
type rule struct {
	tries int           // in all, the first included
	base  time.Duration // the first wait; it doubles
	cap   time.Duration // the longest wait. A hint above it is not waited for here: the caller re-queues
	on    []Class
}

// weather is what passes by itself.
var weather = []Class{ClassRateLimited, ClassUnavailable, ClassTimeout, ClassTransport}

// outage is weather without the provider's own request to come later.
var outage = []Class{ClassUnavailable, ClassTimeout, ClassTransport}

// retryTable says which operation retries on which class. Reads and idempotent writes retry on weather. Create does so
// only because Provision reads the name back between tries. Exec's and attach's rows hold before open only; after it
// there is exactly one attempt. Probes are ours and repeatable, so theirs hold after open, too. Nothing retries on
// unauthorized, invalid, not_found, conflict, concurrent_limit or canceled.
var retryTable = map[Operation]rule{
	OpGet:         {tries: 4, base: 200 * time.Millisecond, cap: 5 * time.Second, on: weather},
	OpList:        {tries: 4, base: 200 * time.Millisecond, cap: 5 * time.Second, on: weather},
	OpCreate:      {tries: 3, base: 500 * time.Millisecond, cap: 5 * time.Second, on: outage},
	OpDelete:      {tries: 4, base: 200 * time.Millisecond, cap: 5 * time.Second, on: weather},
	OpExec:        {tries: 3, base: 250 * time.Millisecond, cap: 5 * time.Second, on: weather},
	OpProbe:       {tries: 3, base: 250 * time.Millisecond, cap: 5 * time.Second, on: weather},
	OpAttach:      {tries: 3, base: 250 * time.Millisecond, cap: 5 * time.Second, on: weather},
	OpKill:        {tries: 4, base: 200 * time.Millisecond, cap: 5 * time.Second, on: weather},
	OpSessions:    {tries: 4, base: 200 * time.Millisecond, cap: 5 * time.Second, on: weather},
	OpFiles:       {tries: 2, base: 100 * time.Millisecond, cap: 5 * time.Second, on: weather},
	OpPolicy:      {tries: 4, base: 200 * time.Millisecond, cap: 5 * time.Second, on: weather},
	OpCheckpoint:  {tries: 1},
	OpCheckpoints: {tries: 4, base: 200 * time.Millisecond, cap: 5 * time.Second, on: weather},
}

// schedule yields a rule's waits: doubling up to the cap, spread by a fifth either way so that workers that failed
// together do not come back together.
func (r rule) schedule(rand func() float64) retry.Backoff {
	if r.tries <= 1 {
		return retry.BackoffFunc(func() (time.Duration, bool) { return 0, true })
	}
	b := retry.WithCappedDuration(r.cap, retry.NewExponential(r.base))
	spread := retry.BackoffFunc(func() (time.Duration, bool) {
		d, stop := b.Next()
		return time.Duration(float64(d) * (0.8 + 0.4*rand())), stop
	})
	return retry.WithMaxRetries(uint64(r.tries-1), spread)
}

// retrying runs fn as often as op's rule allows, asking the gate before each try and telling it after. fn gets the
// number of the try, from 1. An error that is no *Error ends it at once.
func (c *Client) retrying(ctx context.Context, op Operation, tenant string, fn func(ctx context.Context, try int) error) error {
	r := retryTable[op]
	waits := r.schedule(c.cfg.Rand)
	var last error
	for try := 1; ; try++ {
		pass, err := c.enter(ctx, op, tenant)
		if err != nil {
			if last != nil {
				// What the service said tells more than that it is asked no more.
				return fmt.Errorf("after %d tries: %w", try-1, last)
			}
			return err
		}
		err = fn(ctx, try)
		last = err
		e := c.report(ctx, op, pass, err)
		if err == nil {
			return nil
		}
		if e == nil || ctx.Err() != nil || !r.retries(e) {
			return err
		}
		wait, stop := waits.Next()
		if stop {
			return fmt.Errorf("after %d tries: %w", try, err)
		}
		wait = max(wait, e.RetryAfter)
		c.log.Debug().Str("op", string(op)).Str("class", string(e.Class)).Int("try", try).Dur("wait", wait).Msg("sprites call will be tried again")
		if serr := c.cfg.Sleep(ctx, wait); serr != nil {
			return err
		}
	}
}

// retries tells whether the row allows another try after e.
func (r rule) retries(e *Error) bool {
	if e.Opened && e.Op != OpProbe {
		return false
	}
	return slices.Contains(r.on, e.Class) && e.RetryAfter <= r.cap
}

// report counts a try and tells the gate. It returns the try's Error, or nil when err is none.
func (c *Client) report(ctx context.Context, op Operation, pass Pass, err error) *Error {
	var e *Error
	var outcome Outcome
	if errors.As(err, &e) {
		outcome = Outcome{Class: e.Class, RetryAfter: e.RetryAfter}
	} else if err != nil {
		outcome = Outcome{Class: ClassCanceled} // the caller stopped it: says nothing about the service
	}
	c.metrics.tried(op, outcome.Class)
	if outcome.Class == ClassUnauthorized {
		c.log.Error().Str("op", string(op)).Int("status", e.Status).Msg("the Sprites API refuses our token")
	}
	if op.gated() {
		c.gate.Report(context.WithoutCancel(ctx), op, pass, outcome)
	}
	return e
}
