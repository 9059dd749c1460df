package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/sethvargo/go-retry"
)

// build makes an event's record and body from the record before it.
type build func(Record) (Record, []byte, error)

// storeState publishes until the event is stored or somebody else's is. The caller has the turn. The body is built anew
// for each try, because a late event of ours may have moved the record.
func (c *Chain) storeState(ctx context.Context, kind EventKind, owner string, make build) error {
	return c.persist(ctx, func(ctx context.Context) error {
		record, data, err := make(c.Record())
		if err != nil {
			return err
		}
		c.mu.Lock()
		expect, event := c.stateSeq, c.event(kind, owner, data)
		c.mu.Unlock()
		stored, err := c.bus.publishAt(ctx, encodeEvent(event), expect)
		switch {
		case err == nil:
		case isConflict(err):
			if stored, err = c.judgeState(ctx, event, expect); err != nil {
				return err
			}
		default:
			return c.judgeFailure(err)
		}
		c.commitState(kind, record, event.Seq, stored)
		return nil
	})
}

// judgeState reads the last state event after a conflict: it is this very event (its answer was lost), an older one of
// ours that arrived late (go on after it), or somebody else's (fenced).
func (c *Chain) judgeState(ctx context.Context, tried *Event, expect uint64) (uint64, error) {
	last, err := c.bus.lastEvent(ctx, StreamJobs, c.key.StateReplySubject())
	if errors.Is(err, errNoMessage) {
		if expect == 0 {
			return 0, retry.RetryableError(errLateEvent)
		}
		// Retention took the run from the journal; anybody may claim it anew.
		return 0, c.fence(nil)
	}
	if err != nil {
		return 0, c.judgeFailure(err)
	}
	first := tried.Kind == EventAccepted || tried.Kind == EventTakenOver
	switch {
	case same(last, tried):
		return last.StreamSeq, nil
	case last.StreamSeq == expect:
		// With replicas a publish that is still being agreed on refuses the next one.
		return 0, retry.RetryableError(errLateEvent)
	case !first && last.Owner == string(c.owner) && last.StreamSeq > expect:
		return 0, c.adoptState(last)
	}
	return 0, c.fence(last)
}

// adoptState goes on after an event of ours that was given up and stored all the same.
func (c *Chain) adoptState(last *Event) error {
	record, err := last.Record()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.record, c.stateSeq, c.seq = record, last.StreamSeq, max(c.seq, last.Seq)
	c.mu.Unlock()
	if last.Kind == EventResult {
		c.end(ErrEnded)
		return ErrEnded
	}
	return retry.RetryableError(errLateEvent)
}

// errLateEvent: an earlier publish of this owner was stored after we had given up on it.
var errLateEvent = fmt.Errorf("an earlier event of this owner came late: %w", ErrUnreachable)

func same(a, b *Event) bool {
	return a.Owner == b.Owner && a.Seq == b.Seq && a.Kind == b.Kind && bytes.Equal(a.Data, b.Data)
}

// judgeFailure decides whether a publish is worth another try. A full journal is: retention makes room.
func (c *Chain) judgeFailure(err error) error {
	if isAmbiguous(err) || isFull(err) {
		c.bus.met.ambiguous.Inc()
		return retry.RetryableError(classify(err))
	}
	return classify(err)
}

// persist runs attempt until it succeeds, fails for good, or ctx or the chain ends.
func (c *Chain) persist(ctx context.Context, attempt func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	defer stop()
	var last error
	err := retry.Do(ctx, patience(), func(ctx context.Context) error {
		last = attempt(ctx)
		return last
	})
	if err == nil {
		return nil
	}
	if ended := c.ctx.Err(); ended != nil {
		return context.Cause(c.ctx)
	}
	if ctx.Err() != nil && last != nil {
		return fmt.Errorf("%w: %w", ctxErr(ctx), last)
	}
	return err
}
