package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// flightsMax are the round trips whose return later calls wait for: while
	// the server works on one batch, the next is written.
	flightsMax = 2
	// batchMax bounds the calls of one write: all of them wait for the last one's answer.
	batchMax = 16
	// queueMax bounds the calls that wait; beyond it each goes by itself, and
	// the pool bounds those.
	queueMax = 4096
)

// courier carries script calls to Redis. A call goes at once while fewer than
// flightsMax are on their way; those that come meanwhile go together in one
// write when one returns. So a process that is busy pays one system call for
// many leases, and one that is not waits for nothing.
//
// A call that leaves before it was sent was never made; one that leaves later
// takes nobody along.
type courier struct {
	client  redis.UniversalClient
	timeout time.Duration // of one flight
	flights sync.WaitGroup

	mu     sync.Mutex // protects all below
	flying int
	queue  []*parcel
	closed bool
}

type parcel struct {
	script *redis.Script
	keys   []string
	args   []any
	answer *redis.Cmd    // set by the flight before it closes done
	done   chan struct{} // closed once, by the flight
}

func newCourier(client redis.UniversalClient, timeout time.Duration) *courier {
	return &courier{client: client, timeout: timeout}
}

// unsent is the end of a call whose bytes never left this process.
type unsent struct{ cause error }

func (u *unsent) Error() string { return fmt.Sprintf("not sent: %v", u.cause) }
func (u *unsent) Unwrap() error { return u.cause }

// run executes one script. Errors are the client's, ctx's, or an *unsent.
func (c *courier) run(ctx context.Context, script *redis.Script, keys []string, args []any) ([]string, error) {
	c.mu.Lock()
	if c.flying < flightsMax {
		c.flying++
		c.mu.Unlock()
		defer c.land()
		return c.alone(ctx, script, keys, args)
	}
	if c.closed || len(c.queue) >= queueMax {
		c.mu.Unlock()
		return c.alone(ctx, script, keys, args)
	}
	p := &parcel{script: script, keys: keys, args: args, done: make(chan struct{})}
	c.queue = append(c.queue, p)
	c.mu.Unlock()
	return c.await(ctx, p)
}

func (c *courier) alone(ctx context.Context, script *redis.Script, keys []string, args []any) ([]string, error) {
	return script.Run(ctx, c.client, keys, args...).StringSlice()
}

// await waits for a queued call's answer. A connection that hangs must not hold
// up those behind it: whoever waited for a quarter of a call's time, or half of
// its own, goes by itself.
func (c *courier) await(ctx context.Context, p *parcel) ([]string, error) {
	most := c.timeout / 4
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)/2)
	}
	patience := time.NewTimer(most)
	defer patience.Stop()
	for {
		select {
		case <-p.done:
			if redis.HasErrorPrefix(p.answer.Err(), "NOSCRIPT") {
				return p.script.Eval(ctx, c.client, p.keys, p.args...).StringSlice()
			}
			return p.answer.StringSlice()
		case <-ctx.Done():
			if c.withdraw(p) {
				return nil, &unsent{cause: ctx.Err()}
			}
			return nil, ctx.Err()
		case <-patience.C:
			if c.withdraw(p) {
				return c.alone(ctx, p.script, p.keys, p.args)
			}
		}
	}
}

// withdraw takes a call out of the queue; false when it has been sent.
func (c *courier) withdraw(p *parcel) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.queue {
		if other == p {
			c.queue = append(c.queue[:i:i], c.queue[i+1:]...)
			return true
		}
	}
	return false
}

// land ends a caller's own flight; what has collected meanwhile flies at once.
func (c *courier) land() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if batch := c.takeLocked(); batch != nil {
		c.flights.Add(1)
		go c.fly(batch)
	}
}

// takeLocked takes the next batch, or gives the flight's place up.
func (c *courier) takeLocked() []*parcel {
	n := min(len(c.queue), batchMax)
	if n == 0 || c.closed {
		c.flying--
		return nil
	}
	batch := c.queue[:n:n]
	c.queue = c.queue[n:]
	return batch
}

// fly sends batches until nobody waits. It ends within timeout of the client's
// close.
func (c *courier) fly(batch []*parcel) {
	defer c.flights.Done()
	for batch != nil {
		c.send(batch)
		c.mu.Lock()
		batch = c.takeLocked()
		c.mu.Unlock()
	}
}

func (c *courier) send(batch []*parcel) {
	// Not a caller's context: who leaves must not cut the others' answers.
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	pipe := c.client.Pipeline()
	for _, p := range batch {
		p.answer = pipe.EvalSha(ctx, p.script.Hash(), p.keys, p.args...)
	}
	// Each call has its own error.
	_, _ = pipe.Exec(ctx)
	for _, p := range batch {
		close(p.done)
	}
}

// close starts no more flights and waits for those under way, which the closed
// client ends. Who still waits for one finds the client closed.
func (c *courier) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.flights.Wait()
}
