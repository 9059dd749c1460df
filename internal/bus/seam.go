package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sethvargo/go-retry"
)

// seam takes the output chain for a new owner. The former one may still add chunks until it sees the seam; each try
// reads anew what the chain holds, and goes on from there.
func (c *Chain) seam(ctx context.Context) error {
	none := int64(0)
	data, err := json.Marshal(GapBody{Stream: GapBoth, Bytes: &none, Why: GapWhyTakeover})
	if err != nil {
		return fmt.Errorf("write the seam: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*c.bus.cfg.PublishTimeout)
	defer cancel()
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	if err := c.persist(ctx, func(ctx context.Context) error { return c.trySeam(ctx, data) }); err != nil {
		return fmt.Errorf("take the output chain: %w", err)
	}
	return nil
}

func (c *Chain) trySeam(ctx context.Context, data []byte) error {
	out, err := c.bus.lastEvent(ctx, StreamOutput, c.key.OutputReplySubject())
	if err != nil && !errors.Is(err, errNoMessage) {
		return c.judgeFailure(err)
	}
	c.mu.Lock()
	c.outSeq = 0
	if out != nil {
		c.adoptOutput(out)
	}
	expect, event := c.outSeq, c.event(EventGap, string(c.owner), data)
	c.mu.Unlock()
	stored, err := c.bus.publishAt(ctx, encodeEvent(event), expect)
	if isConflict(err) {
		return retry.RetryableError(errReanchored)
	}
	if err != nil {
		return c.judgeFailure(err)
	}
	event.StreamSeq = stored
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adoptOutput(event)
	return nil
}
