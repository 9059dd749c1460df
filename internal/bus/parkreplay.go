package bus

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Replay says when and until when an operator's replay may start, and by whose word.
type Replay struct {
	// At is when the run is due; a time that has passed is now.
	At time.Time
	// Deadline is when it must have started.
	Deadline time.Time
	// Grant is the operator's grant for this job.
	Grant string
	// Traceparent is the operator's trace context. May be empty.
	Traceparent string
}

// ParkReplay parks the run that MarkReplaying made an entry for. Its body stays in the dead letter, from which the
// worker opens it. The request keeps its first place in the queue's order, so that an end of its session that came
// later still holds. Parking it again is harmless. Errors as Park.
func (b *Bus) ParkReplay(ctx context.Context, entry *Letter, r Replay) error {
	if entry == nil || entry.Run < 1 {
		return fmt.Errorf("park replay: %w: there is no entry for it", ErrInvalid)
	}
	h := Header{}
	h.Set(HeaderReplayOf, entry.Job)
	h.Set(HeaderDeadline, r.Deadline.UTC().Format(time.RFC3339Nano))
	h.Set(HeaderQueued, strconv.FormatUint(entry.Queued, 10))
	h.Set(HeaderQueuedAt, b.now().UTC().Format(time.RFC3339Nano))
	if r.Grant != "" {
		h.Set(HeaderGrant, r.Grant)
	}
	if r.Traceparent != "" {
		h.Set(HeaderTraceparent, r.Traceparent)
	}
	return b.Park(ctx, RunKey{Tenant: entry.Tenant, Job: entry.Job, Run: entry.Run}, entry.Kind, r.At, h, nil)
}

// ReplayDeadline is the deadline that an operator gave a replay; the zero time for none.
func (d *Delivery) ReplayDeadline() time.Time {
	at, err := time.Parse(time.RFC3339Nano, d.Header.Get(HeaderDeadline))
	if err != nil || !d.Replay {
		return time.Time{}
	}
	return at
}
