package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sethvargo/go-retry"

	"github.com/wakebus/wakebus/internal/plan"
)

// Owner is who writes a run's events: <worker>.<epoch>, where the epoch tells a worker from its restarted self.
type Owner string

// Valid reports whether o may stand in Wb-Owner: 1 to 128 printable ASCII bytes, and not NoOwner.
func (o Owner) Valid() bool { return o != NoOwner && plan.ValidPrincipal(string(o)) }

// Claim is what a first owner says about a run.
type Claim struct {
	// Request is the hex SHA-256 of the request's body; it goes with every event.
	Request string
	// Record is the run's first record; its phase becomes accepted.
	Record Record
	// Traceparent is the W3C trace context; it goes with every event. May be empty.
	Traceparent string
}

// seqJump is left free in Wb-Seq by a taker that cannot see the numbers of output which retention has removed.
const seqJump = 1 << 20

// LastState reads the run's last state event and the record in it, from the stream's leader. ErrNoJournal when
// nobody has claimed the run, or it is older than JournalAge.
func (b *Bus) LastState(ctx context.Context, key RunKey) (*Event, Record, error) {
	if !key.Valid() {
		return nil, Record{}, fmt.Errorf("read the journal: %w: run %q", ErrInvalid, key)
	}
	event, err := b.lastEvent(ctx, StreamJobs, key.StateReplySubject())
	if errors.Is(err, errNoMessage) {
		return nil, Record{}, fmt.Errorf("read the journal of %s: %w", key, ErrNoJournal)
	}
	if err != nil {
		return nil, Record{}, fmt.Errorf("read the journal of %s: %w", key, err)
	}
	record, err := event.Record()
	return event, record, err
}

func (b *Bus) lastEvent(ctx context.Context, stream, subject string) (*Event, error) {
	msg, err := b.lastOn(ctx, stream, subject)
	if err != nil {
		return nil, err
	}
	return msg.event()
}

// Claim makes owner the first owner of the run by publishing accepted where nothing may stand. When somebody has the
// run already the error is a *ConflictError with its last event, also when that somebody is an earlier claim of the
// same owner. A lost answer is read back. It blocks until stored, refused, or ctx ends, at most three tries; then the
// error is ErrUnreachable, and claiming again is safe.
func (b *Bus) Claim(ctx context.Context, key RunKey, owner Owner, claim Claim) (*Chain, error) {
	if !key.Valid() || !owner.Valid() {
		return nil, fmt.Errorf("claim: %w: run %q, owner %q", ErrInvalid, key, owner)
	}
	c := newChain(b, key, owner)
	c.request, c.traceparent = claim.Request, claim.Traceparent
	c.record = claim.Record
	c.record.Phase = plan.PhaseAccepted
	body := AcceptedBody{Actor: c.record.Actor, Run: c.record}
	err := c.publishFirst(ctx, EventAccepted, body, c.record)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("claim run %s: %w", key, err)
	}
	return c, nil
}

// TakeOver makes owner the next owner of the run whose last state event is last, by compare-and-set on it. mutate
// may change the record, for example count a crash; the phase is kept. Wb-Seq and offsets go on from what both
// chains hold. The error is a *ConflictError when another was quicker, ErrEnded after a result. It blocks as Claim.
//
// From phase dialing on the output chain is taken too, by a seam (see Event.IsSeam): a former owner that wakes up
// late can then add nothing, even while the new one has nothing to print.
func (b *Bus) TakeOver(ctx context.Context, key RunKey, last *Event, owner Owner, mutate func(*Record)) (*Chain, error) {
	if !key.Valid() || !owner.Valid() || last == nil || last.Key != key {
		return nil, fmt.Errorf("take over: %w: run %q, owner %q", ErrInvalid, key, owner)
	}
	if last.Kind == EventResult {
		return nil, fmt.Errorf("take over run %s: %w", key, ErrEnded)
	}
	c, err := b.resume(ctx, key, last, owner)
	if err != nil {
		return nil, fmt.Errorf("take over run %s: %w", key, err)
	}
	record := c.record
	if mutate != nil {
		mutate(&record)
		record.Phase = c.record.Phase
	}
	err = c.publishFirst(ctx, EventTakenOver, TakenOverBody{From: last.Owner, Run: record}, record)
	if err == nil && !record.Phase.Before(plan.PhaseDialing) {
		err = c.seam(ctx)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("take over run %s: %w", key, err)
	}
	return c, nil
}

// resume rebuilds a chain from what both streams hold.
func (b *Bus) resume(ctx context.Context, key RunKey, last *Event, owner Owner) (*Chain, error) {
	record, err := last.Record()
	if err != nil {
		return nil, err
	}
	c := newChain(b, key, owner)
	c.record, c.request, c.traceparent = record, last.Request, last.Traceparent
	c.stateSeq, c.seq = last.StreamSeq, last.Seq
	c.stdout, c.stderr = last.StdoutOffset, last.StderrOffset
	out, err := b.lastEvent(ctx, StreamOutput, key.OutputReplySubject())
	switch {
	case err == nil:
		c.adoptOutput(out)
	case errors.Is(err, errNoMessage):
		if c.stdout+c.stderr > 0 {
			c.seq += seqJump
		}
	default:
		c.Close()
		return nil, fmt.Errorf("read the last output: %w", err)
	}
	return c, nil
}

// publishFirst stores an owner's first event; unlike later ones it gives up after three tries, because nothing is
// lost by giving the request back.
func (c *Chain) publishFirst(ctx context.Context, kind EventKind, body any, record Record) error {
	ctx, cancel := context.WithTimeout(ctx, 3*c.bus.cfg.PublishTimeout)
	defer cancel()
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return c.storeState(ctx, kind, string(c.owner), func(Record) (Record, []byte, error) { return record, data, nil })
}

// patience paces the tries of one publish: 25 ms, 50 ms … 1 s, each with up to 20 % of jitter, until ctx ends.
func patience() retry.Backoff {
	return retry.WithJitterPercent(20, retry.WithCappedDuration(time.Second, retry.NewExponential(25*time.Millisecond)))
}

// publishAt is one compare-and-set publish.
func (b *Bus) publishAt(ctx context.Context, msg *nats.Msg, expect uint64) (uint64, error) {
	tctx, cancel := b.try(ctx)
	defer cancel()
	ack, err := b.js.PublishMsg(tctx, msg, jetstream.WithExpectLastSequencePerSubject(expect), jetstream.WithRetryAttempts(1))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}
