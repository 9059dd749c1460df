package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sethvargo/go-retry"

	"github.com/wakebus/wakebus/internal/plan"
)

// maxOutputBuffer is how much output may wait for the publish in flight; then Write blocks.
const maxOutputBuffer = 2 * maxOutputChunk

// headroom is what an event's headers may take of the broker's payload limit.
const headroom = 4 << 10

// Write hands output over; kind is EventStdout or EventStderr. The data is copied. While one event is in flight the
// next one collects, up to 256 KiB each; when 512 KiB wait, Write blocks, which is the back-pressure on the sandbox.
// A nil error means that the data waits its turn; Flush says that it is stored. Errors: ErrPhase before dialing,
// ErrFenced, ErrEnded, ErrClosed, or ctx's.
func (c *Chain) Write(ctx context.Context, kind EventKind, data []byte) error {
	if kind != EventStdout && kind != EventStderr {
		return fmt.Errorf("write %s of run %s: %w: not an output stream", kind, c.key, ErrInvalid)
	}
	for len(data) > 0 {
		n, err := c.enqueue(ctx, kind, data)
		if err != nil {
			return fmt.Errorf("write %s of run %s: %w", kind, c.key, err)
		}
		data = data[n:]
	}
	return nil
}

// Gap says that bytes are missing at this place of the output, and waits until that is stored.
func (c *Chain) Gap(ctx context.Context, gap GapBody) error {
	data, err := json.Marshal(gap)
	if err != nil {
		return fmt.Errorf("write gap of run %s: %w", c.key, err)
	}
	if _, err := c.enqueue(ctx, EventGap, data); err != nil {
		return fmt.Errorf("write gap of run %s: %w", c.key, err)
	}
	return c.Flush(ctx)
}

// enqueue takes as much as fits, at least one byte, and starts the pump if none runs.
func (c *Chain) enqueue(ctx context.Context, kind EventKind, data []byte) (int, error) {
	for {
		c.mu.Lock()
		if err := c.writable(); err != nil {
			c.mu.Unlock()
			return 0, err
		}
		room := maxOutputBuffer - c.buf.size
		if kind == EventGap && room > 0 {
			room = len(data) // a gap is small and cannot be cut
		}
		if room > 0 {
			n := min(room, len(data))
			c.buf.add(kind, data[:n], c.maxChunk())
			if !c.pumping {
				c.pumping = true
				c.pumps.Add(1)
				go c.pump()
			}
			c.mu.Unlock()
			return n, nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctxErr(ctx)
		}
	}
}

// writable is why no output may be added. The caller holds mu.
func (c *Chain) writable() error {
	switch {
	case c.ended != nil:
		return c.ended
	case c.outErr != nil:
		return c.outErr
	case c.sealed:
		return ErrEnded
	case c.record.Phase.Before(plan.PhaseDialing):
		// A taker seams the output chain from dialing on; before, a former owner's chunk would get in.
		return fmt.Errorf("%w: output in phase %s", ErrPhase, c.record.Phase)
	}
	return nil
}

func (c *Chain) maxChunk() int { return max(1, min(maxOutputChunk, c.bus.MaxPayload()-headroom)) }

// Flush waits until everything that was written is stored.
func (c *Chain) Flush(ctx context.Context) error {
	for {
		c.mu.Lock()
		err := c.ended
		if err == nil {
			err = c.outErr
		}
		idle, changed := !c.pumping, c.changed
		c.mu.Unlock()
		if err != nil {
			return fmt.Errorf("flush output of run %s: %w", c.key, err)
		}
		if idle {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("flush output of run %s: %w", c.key, ctxErr(ctx))
		}
	}
}

// pump publishes what is buffered and ends when nothing is left, so that a quiet run costs no goroutine. The chain
// owns it; at most one runs.
func (c *Chain) pump() {
	defer c.pumps.Done()
	for {
		if err := c.lock(c.ctx); err != nil {
			c.stopPump(err)
			return
		}
		c.mu.Lock()
		chunk, ok := c.buf.pop()
		if !ok {
			c.pumping = false
		}
		c.signal()
		c.mu.Unlock()
		var err error
		if ok {
			err = c.storeOutput(c.ctx, chunk.kind, chunk.data)
			chunk.recycle() // the publish copied it
		}
		c.unlock()
		if !ok {
			return
		}
		if err != nil {
			c.stopPump(err)
			return
		}
	}
}

func (c *Chain) stopPump(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pumping = false
	if c.outErr == nil {
		c.outErr = err
	}
	c.buf.drop()
	c.signal()
}

// storeOutput publishes one output event until it is stored. The caller has the turn.
func (c *Chain) storeOutput(ctx context.Context, kind EventKind, data []byte) error {
	attempt := func(ctx context.Context) error {
		c.mu.Lock()
		expect, event := c.outSeq, c.event(kind, string(c.owner), data)
		c.mu.Unlock()
		stored, err := c.bus.publishAt(ctx, encodeEvent(event), expect)
		switch {
		case err == nil:
		case isConflict(err):
			if stored, err = c.judgeOutput(ctx, event, expect); err != nil {
				return err
			}
		default:
			return c.judgeFailure(err)
		}
		event.StreamSeq = stored
		c.bus.met.events.WithLabelValues(string(kind)).Inc()
		if kind != EventGap {
			c.bus.met.outBytes.Add(float64(len(data)))
		}
		c.mu.Lock()
		c.adoptOutput(event)
		c.mu.Unlock()
		return nil
	}
	return c.persist(ctx, attempt)
}

// adoptOutput makes e the end of the output chain. The caller holds mu, or is alone.
func (c *Chain) adoptOutput(e *Event) {
	c.outSeq = e.StreamSeq
	c.seq = max(c.seq, e.Seq)
	c.stdout, c.stderr = e.End()
}

// judgeOutput decides after a conflict on the output chain. Unlike on the journal, another's event there proves nothing:
// retention may have taken our last chunk, or a taker that then lost may have put its seam. So the owner proves itself
// by a state event, and goes on from what the chain holds.
func (c *Chain) judgeOutput(ctx context.Context, tried *Event, expect uint64) (uint64, error) {
	last, err := c.bus.lastEvent(ctx, StreamOutput, c.key.OutputReplySubject())
	switch {
	case err != nil && !errors.Is(err, errNoMessage):
		return 0, c.judgeFailure(err)
	case err == nil && same(last, tried):
		return last.StreamSeq, nil
	case err == nil && last.StreamSeq == expect:
		return 0, retry.RetryableError(errLateEvent)
	}
	beat := func(r Record) any { return c.heartbeat(HeartbeatBody{}, r) }
	if err := c.state(ctx, EventHeartbeat, string(c.owner), beat, nil); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if last == nil {
		c.outSeq = 0
	} else {
		c.adoptOutput(last)
	}
	return 0, retry.RetryableError(errReanchored)
}

// errReanchored: the output chain goes on from another place.
var errReanchored = fmt.Errorf("the output chain was re-anchored: %w", ErrUnreachable)
