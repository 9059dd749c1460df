package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sethvargo/go-retry"

	"github.com/wakebus/wakebus/internal/plan"
)

// Source is which queue a delivery came from.
type Source string

// The closed set of sources.
const (
	// SourceQueue: as its sender published it. Nothing in its headers but the grant is to be believed.
	SourceQueue Source = "queue"
	// SourceRetry: parked by a worker or an operator, on a subject that tenants may not publish to.
	SourceRetry Source = "retry"
)

// Delivery is one request in a worker's hands. The Pool keeps it in progress until it is settled or the handler returns;
// a handler that returns without settling, because it was fenced or knows no better, leaves it to be delivered again
// after AckWait.
type Delivery struct {
	Kind   Kind
	Source Source
	// Tenant is the subject's token as its sender wrote it, plan.NoTenant without one, and empty where the sender named
	// that reserved one.
	Tenant string
	// Job is the job's id where a worker or an operator wrote it (SourceRetry), else empty; see Key.
	Job string
	Run int
	// Replay is true for a run that an operator started; its body is in the dead letter.
	Replay bool
	Header Header
	Data   []byte
	// Queued is the request's first stream sequence, and QueuedAt when the broker stored it; both survive parking. They
	// tell a request delivered again from one published again.
	Queued   uint64
	QueuedAt time.Time
	// Delivered counts deliveries of this message, 1 for the first. Giving back counts too, so it counts no crashes.
	Delivered int
	// Reserve is true in a slot that is kept for take-overs.
	Reserve bool

	bus       *Bus
	streamSeq uint64

	mu      sync.Mutex // protects msg and settled
	msg     *nats.Msg
	settled bool // acked, given back or forgotten: not kept in progress any more
}

func newDelivery(b *Bus, kind Kind, source Source, msg *nats.Msg) (*Delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read a delivery's metadata: %w", err)
	}
	d := &Delivery{Kind: kind, Source: source, Tenant: plan.NoTenant, Header: Header(msg.Header), Data: msg.Data,
		Queued: meta.Sequence.Stream, QueuedAt: meta.Timestamp, Delivered: int(min(meta.NumDelivered, 1<<30)),
		bus: b, streamSeq: meta.Sequence.Stream, msg: msg}
	if d.Header == nil {
		d.Header = Header{}
	}
	parts := strings.Split(msg.Subject, ".")
	if source == SourceQueue {
		if len(parts) == 3 {
			if d.Tenant = parts[2]; d.Tenant == plan.NoTenant {
				d.Tenant = "" // reserved for requests that name no tenant: nobody may ask for it
			}
		}
		return d, nil
	}
	d.Tenant = parts[len(parts)-1]
	d.readParked()
	return d, nil
}

// readParked takes from the headers what a worker or an operator wrote.
func (d *Delivery) readParked() {
	d.Job = d.Header.Get(HeaderJob)
	if of := d.Header.Get(HeaderReplayOf); of != "" {
		d.Job, d.Replay = of, true
	}
	if run, err := strconv.Atoi(d.Header.Get(HeaderRun)); err == nil && run >= 0 {
		d.Run = run
	}
	if seq, err := strconv.ParseUint(d.Header.Get(HeaderQueued), 10, 64); err == nil {
		d.Queued = seq
	}
	if at, err := time.Parse(time.RFC3339Nano, d.Header.Get(HeaderQueuedAt)); err == nil {
		d.QueuedAt = at
	}
}

// Key is the run that the delivery asks for; false when the body has no usable id.
func (d *Delivery) Key() (RunKey, bool) {
	job := d.Job
	if job == "" {
		job, _ = RequestID(d.Data)
	}
	key := RunKey{Tenant: d.Tenant, Job: job, Run: d.Run}
	return key, key.Valid()
}

// ParkHeader is the delivery's headers with what keeps its identity through parking.
func (d *Delivery) ParkHeader() Header {
	h := d.Header.withoutBroker()
	h.Set(HeaderQueued, strconv.FormatUint(d.Queued, 10))
	h.Set(HeaderQueuedAt, d.QueuedAt.UTC().Format(time.RFC3339Nano))
	return h
}

// Ack takes the request off the queue and waits until the broker has confirmed it, three tries or until ctx ends. After
// an error the request may be delivered again, which the journal then answers.
func (d *Delivery) Ack(ctx context.Context) error {
	err := retry.Do(ctx, retry.WithMaxRetries(2, patience()), func(ctx context.Context) error {
		tctx, cancel := d.bus.try(ctx)
		defer cancel()
		err := d.handle().AckSync(nats.Context(tctx))
		if errors.Is(err, nats.ErrMsgAlreadyAckd) {
			return nil
		}
		if err = classify(err); errors.Is(err, ErrUnreachable) {
			return retry.RetryableError(err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ack %s request %d: %w", d.Kind, d.Queued, err)
	}
	d.Forget()
	return nil
}

// Nak gives the request back for delivery after delay, at once for 0. It does not wait for the broker. Long waits are
// for Park: what is given back with a delay counts as in flight.
func (d *Delivery) Nak(delay time.Duration) error {
	d.Forget()
	var err error
	if delay > 0 {
		err = d.handle().NakWithDelay(delay)
	} else {
		err = d.handle().Nak()
	}
	if err != nil {
		return fmt.Errorf("give back %s request %d: %w", d.Kind, d.Queued, classify(err))
	}
	return nil
}

// InProgress tells the broker that the request is being worked on. The Pool does it every third of AckWait.
func (d *Delivery) InProgress() error {
	if err := d.handle().InProgress(); err != nil {
		return fmt.Errorf("keep %s request %d: %w", d.Kind, d.Queued, classify(err))
	}
	return nil
}

// Forget says nothing more about the request: no ack, no giving back, not kept in progress. A fenced owner does so.
func (d *Delivery) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = true
}

func (d *Delivery) handle() *nats.Msg {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.msg
}

// adopt takes the handle of a later delivery of the same message; only that one's ack counts. It fails on a settled one.
func (d *Delivery) adopt(later *Delivery) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settled {
		return false
	}
	d.msg = later.msg
	return true
}

func (d *Delivery) open() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.settled
}
