package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// Chain is one owned run: the only way to say something about it. One goroutine may write state and another output
// at the same time. Numbers are given and events are published one at a time over both streams, so that Wb-Seq has
// no hole whenever a worker dies.
//
// A Chain ends by Result, Detach, Release, Close, or by being fenced; from then on every method fails at once.
type Chain struct {
	bus   *Bus
	key   RunKey
	owner Owner
	turn  chan struct{} // holds one token; whoever took it publishes

	request     string
	traceparent string

	ctx    context.Context // ends with the chain; the pump publishes under it
	cancel context.CancelCauseFunc
	fenced chan struct{} // closed once, under mu, when another owner was seen
	pumps  sync.WaitGroup

	mu        sync.Mutex // protects what follows
	record    Record
	seq       uint64 // the last stored Wb-Seq
	stateSeq  uint64 // the state stream's sequence of our last event
	outSeq    uint64 // the output stream's sequence of the last chunk, 0 for none
	stdout    int64
	stderr    int64
	ended     error // why nothing more may be said
	conflict  error
	outErr    error
	sealed    bool // a result is on its way: no more output
	buf       outputBuffer
	pumping   bool
	changed   chan struct{} // closed and replaced whenever the buffer or the pump changes
	lastState time.Time
}

func newChain(b *Bus, key RunKey, owner Owner) *Chain {
	c := &Chain{bus: b, key: key, owner: owner, turn: make(chan struct{}, 1), fenced: make(chan struct{}), changed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.turn <- struct{}{}
	return c
}

// Key is the run's name.
func (c *Chain) Key() RunKey { return c.key }

// Owner is who writes this chain.
func (c *Chain) Owner() Owner { return c.owner }

// Request is the hex SHA-256 of the request's body, as every event of the run carries it.
func (c *Chain) Request() string { return c.request }

// Traceparent is the run's trace context, as every event carries it.
func (c *Chain) Traceparent() string { return c.traceparent }

// Record is the run's state as last stored.
func (c *Chain) Record() Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record
}

// Seq is the last stored Wb-Seq.
func (c *Chain) Seq() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seq
}

// Offsets are the bytes of each stream that are stored.
func (c *Chain) Offsets() (stdout, stderr int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stdout, c.stderr
}

// StateAge is how long ago this owner stored its last state event.
func (c *Chain) StateAge() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bus.now().Sub(c.lastState)
}

// Fenced is closed when another owner was seen on the chain.
func (c *Chain) Fenced() <-chan struct{} { return c.fenced }

// Fence is nil while this owner holds the run, and afterwards the *ConflictError that showed another.
func (c *Chain) Fence() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conflict
}

// Close lets go without a word: for a fenced owner, or one that dies. Output that was not stored is dropped. It
// waits for a publish in flight to be given up. It may be called more than once and after any other ending.
func (c *Chain) Close() {
	c.end(ErrClosed)
	c.pumps.Wait()
}

// end makes err the answer to everything that follows; the first reason stays.
func (c *Chain) end(err error) {
	c.mu.Lock()
	if c.ended == nil {
		c.ended = err
	}
	c.buf.drop()
	c.signal()
	c.mu.Unlock()
	c.cancel(err)
}

func (c *Chain) fence(last *Event) error {
	conflict := &ConflictError{Key: c.key, Last: last}
	if last != nil && !last.Kind.IsOutput() {
		conflict.Record, _ = last.Record() // a record that cannot be read stays empty; the conflict is what matters
	}
	c.bus.met.conflicts.Inc()
	c.mu.Lock()
	if c.conflict == nil && c.ended == nil {
		c.conflict = conflict
		close(c.fenced)
	}
	c.mu.Unlock()
	c.end(conflict)
	return conflict
}

// signal wakes whoever waits for the buffer or the pump. The caller holds mu.
func (c *Chain) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// lock takes the turn to publish.
func (c *Chain) lock(ctx context.Context) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return ctxErr(ctx)
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	c.mu.Lock()
	err := c.ended
	c.mu.Unlock()
	if err != nil {
		c.unlock()
	}
	return err
}

func (c *Chain) unlock() { c.turn <- struct{}{} }

// ctxErr says why ctx ended, and keeps the plain error findable.
func ctxErr(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// kindPhase is the phase that an event of this kind brings; PhaseNone for kinds that repeat the present one.
func kindPhase(kind EventKind) plan.Phase {
	switch kind {
	case EventAccepted:
		return plan.PhaseAccepted
	case EventPlanned:
		return plan.PhasePlanned
	case EventDialing:
		return plan.PhaseDialing
	case EventStarted:
		return plan.PhaseStarted
	case EventStopping:
		return plan.PhaseStopping
	case EventResult:
		return plan.PhaseResult
	case EventWaiting, EventTakenOver, EventHeartbeat, EventStdout, EventStderr, EventGap:
		return plan.PhaseNone
	}
	return plan.PhaseNone
}

// State publishes one state event. mutate, which may be nil, changes the record; body makes the event's body from
// the changed record. It blocks until the event is stored, and tries for as long as ctx lives: what an interruption
// swallowed is published again, what it only hid is recognised as stored. Errors: ErrPhase when the phase would go
// back (nothing was published), ErrFenced when another owner holds the run, ctx's own with ErrUnreachable or ErrFull beside
// it when ctx ended first; calling again is then safe.
func (c *Chain) State(ctx context.Context, kind EventKind, body func(Record) any, mutate func(*Record)) error {
	if err := c.lock(ctx); err != nil {
		return fmt.Errorf("publish %s of run %s: %w", kind, c.key, err)
	}
	defer c.unlock()
	return c.state(ctx, kind, string(c.owner), body, mutate)
}

// state does what State says; the caller has the turn.
func (c *Chain) state(ctx context.Context, kind EventKind, owner string, body func(Record) any, mutate func(*Record)) error {
	err := c.storeState(ctx, kind, owner, func(record Record) (Record, []byte, error) {
		next, err := advance(kind, record, mutate)
		if err != nil {
			return record, nil, err
		}
		data, err := json.Marshal(body(next))
		return next, data, err
	})
	if err != nil {
		return fmt.Errorf("publish %s of run %s: %w", kind, c.key, err)
	}
	return nil
}

// advance makes the next record; the phase may stay or go forward.
func advance(kind EventKind, record Record, mutate func(*Record)) (Record, error) {
	before := record.Phase
	if mutate != nil {
		mutate(&record)
	}
	phase := kindPhase(kind)
	if kind.IsOutput() || !kind.Valid() || record.Phase.Before(before) || phase != plan.PhaseNone && phase.Before(record.Phase) {
		return record, fmt.Errorf("%w: %s in phase %s", ErrPhase, kind, before)
	}
	if phase != plan.PhaseNone {
		record.Phase = phase
	}
	return record, nil
}

// event is the next event. The caller holds mu.
func (c *Chain) event(kind EventKind, owner string, data []byte) *Event {
	return &Event{Kind: kind, Key: c.key, Seq: c.seq + 1, Owner: owner, Request: c.request, Traceparent: c.traceparent,
		StdoutOffset: c.stdout, StderrOffset: c.stderr, Data: data}
}

func (c *Chain) commitState(kind EventKind, record Record, seq, stored uint64) {
	c.bus.met.events.WithLabelValues(string(kind)).Inc()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record, c.seq, c.stateSeq, c.lastState = record, seq, stored, c.bus.now()
}
