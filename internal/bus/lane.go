package bus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// lane is everything that one kind of request needs: its slots, and the pullers that fill them.
type lane struct {
	pool    *Pool
	kind    Kind
	slots   *slots
	fair    *fairness
	reserve *slots
	fresh   *puller
	due     *puller
	extra   *puller // serves the reserve; nil for kinds that have none
}

func newLane(p *Pool, kind Kind) *lane {
	l := &lane{pool: p, kind: kind, slots: newSlots(p.Slots(kind)), fair: newFairness(p.Slots(kind), p.bus.cfg.Now)}
	src := queueSources(kind)
	l.fresh = &puller{lane: l, queue: binding{src: src[0], source: SourceQueue}, first: binding{src: src[1], source: SourceRetry}}
	l.due = &puller{lane: l, queue: binding{src: src[1], source: SourceRetry}, spare: 1}
	if kind != KindEnd {
		l.reserve = newSlots(p.cfg.Reserve)
		l.extra = &puller{lane: l, queue: binding{src: src[0], source: SourceQueue}, first: binding{src: src[1], source: SourceRetry}}
	}
	return l
}

func (l *lane) pullers() []*puller {
	if l.extra == nil {
		return []*puller{l.fresh, l.due}
	}
	return []*puller{l.fresh, l.due, l.extra}
}

// binding is a puller's own handle on a consumer; only its goroutine uses it.
type binding struct {
	src    queueSource
	source Source
	pull   *pull // nil until it is bound
}

// puller is one loop of "take a slot, then pull one". The due puller parks only while a second slot is free; below that
// the fresh one looks for due retries first, so that the last slot never waits at the wrong queue.
type puller struct {
	lane    *lane
	queue   binding
	first   binding // looked into before queue, without waiting
	spare   int
	asked   time.Time    // when the last pull began; owned by the loop
	glanced time.Time    // when first was last found empty; owned by the loop
	parked  atomic.Bool  // a pull waits at the broker
	idle    atomic.Bool  // waits for a slot, and so hears nothing
	silent  atomic.Int64 // since when the broker has not answered, unix nanoseconds; 0 while it does
}

// glanceEvery is how long a queue of retries that was found empty counts as empty. At full load no second slot comes free
// for the due puller, and looking before every pull would cost each job a round trip.
const glanceEvery = 20 * time.Millisecond

// silence is how long a puller may hear nothing before the pool counts as unhealthy.
const silence = 5 * time.Second

func (u *puller) health() error {
	if since := u.silent.Load(); since != 0 && !u.idle.Load() && time.Since(time.Unix(0, since)) > silence {
		return fmt.Errorf("consumer %s of %s has been silent since %s: %w", u.queue.src.consumer, u.queue.src.stream,
			time.Unix(0, since).UTC().Format(time.RFC3339), ErrUnreachable)
	}
	return nil
}

// run pulls until pulling ends; deliveries are handled under work.
func (u *puller) run(pulling, work context.Context) error {
	if u == u.lane.extra {
		return u.runReserve(pulling, work)
	}
	failures := 0
	for u.awake(pulling) && u.slot(pulling) {
		u.asked = u.lane.pool.bus.now()
		d, err := u.pull(pulling)
		if d != nil && pulling.Err() == nil {
			failures = 0
			u.takeOn(pulling, work, d)
			continue
		}
		if d != nil {
			u.handBack(d)
		}
		u.lane.slots.release()
		if err == nil {
			failures = 0
			continue
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return fmt.Errorf("pull %s requests: %w", u.lane.kind, ErrClosed)
		}
		failures++
		u.mend(pulling, err, failures)
	}
	return nil
}

func (u *puller) slot(ctx context.Context) bool {
	u.idle.Store(true)
	defer u.idle.Store(false)
	return u.lane.slots.acquire(ctx, u.spare)
}

// awake waits while pulling is paused; false when it has ended. What is paused is a state elsewhere that gives no signal,
// so it is looked at five times a second.
func (u *puller) awake(ctx context.Context) bool {
	for ctx.Err() == nil {
		if !u.lane.pool.full.Load() && !u.lane.pool.cfg.Paused(u.lane.kind) {
			return true
		}
		u.silent.Store(0)
		wait(ctx, 200*time.Millisecond)
	}
	return false
}

func wait(ctx context.Context, d time.Duration) { waitFor(ctx, nil, d) }

// pull takes one message: a due retry if one is there, else what comes within PullWait. nil and nil when none came.
func (u *puller) pull(ctx context.Context) (*Delivery, error) {
	if u.first.src.stream != "" && !u.lane.due.parked.Load() && time.Since(u.glanced) >= glanceEvery {
		if d, err := u.glance(ctx, &u.first); d != nil || err != nil {
			return d, err
		}
		u.glanced = time.Now()
	}
	p, err := u.bind(ctx, &u.queue)
	if err != nil {
		return nil, err
	}
	u.parked.Store(true)
	wait, began := u.lane.pool.cfg.PullWait, time.Now()
	msg, err := p.next(u.lane.pool.waiting, wait)
	u.parked.Store(false)
	return u.received(&u.queue, msg, err, time.Since(began)-wait)
}

// glance takes one message if one is there.
func (u *puller) glance(ctx context.Context, q *binding) (*Delivery, error) {
	p, err := u.bind(ctx, q)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	msg, err := p.next(glancing, 0)
	return u.received(q, msg, err, time.Since(began))
}

// unanswered is how much longer than asked a pull takes when the broker has not answered at all: pull waits one second
// more.
const unanswered = 950 * time.Millisecond

// received judges a pull's end; late is how much longer it took than it was to wait.
func (u *puller) received(q *binding, msg *nats.Msg, err error, late time.Duration) (*Delivery, error) {
	switch {
	case err == nil && msg != nil:
	case errors.Is(err, nats.ErrTimeout) && late < unanswered:
		// The broker itself said that nothing came.
		u.silent.Store(0)
		return nil, nil
	default:
		u.silent.CompareAndSwap(0, time.Now().UnixNano())
		if lostConsumer(err) {
			q.close()
		}
		return nil, err
	}
	u.silent.Store(0)
	d, err := newDelivery(u.lane.pool.bus, u.lane.kind, q.source, msg)
	if err != nil {
		return nil, err
	}
	u.lane.pool.bus.met.pulled.WithLabelValues(string(u.lane.kind), string(q.source)).Inc()
	return d, nil
}

func lostConsumer(err error) bool {
	return errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrConsumerDoesNotExist) || errors.Is(err, nats.ErrNoResponders)
}

// bind gets the consumer, and makes it anew when somebody deleted it.
func (u *puller) bind(ctx context.Context, q *binding) (*pull, error) {
	if q.pull == nil {
		_, err := u.lane.pool.bus.setupConsumer(ctx, q.src)
		if err == nil {
			q.pull, err = u.lane.pool.bus.openPull(q.src)
		}
		if err != nil {
			u.silent.CompareAndSwap(0, time.Now().UnixNano())
			return nil, err
		}
	}
	return q.pull, nil
}

func (q *binding) close() {
	if q.pull != nil {
		q.pull.close()
		q.pull = nil
	}
}

// close ends the puller's subscriptions, once its run has returned.
func (u *puller) close() {
	u.first.close()
	u.queue.close()
}

// mend waits after a failed pull: 100 ms, doubling to 3 s.
func (u *puller) mend(ctx context.Context, err error, failures int) {
	if ctx.Err() != nil {
		return
	}
	u.lane.pool.bus.met.pullErrors.WithLabelValues(string(u.lane.kind)).Inc()
	if failures == 1 || failures%20 == 0 {
		u.lane.pool.log.Warn().Err(err).Str("consumer", u.queue.src.consumer).Int("failures", failures).Msg("pulling failed")
	}
	wait(ctx, min(3*time.Second, 100*time.Millisecond<<min(failures-1, 5)))
}

func (u *puller) handBack(d *Delivery) {
	u.lane.pool.bus.met.handedBack.WithLabelValues(string(u.lane.kind)).Inc()
	if err := d.Nak(0); err != nil {
		u.lane.pool.log.Warn().Err(err).Msg("a request could not be given back; it comes again after AckWait")
	}
}

// takeOn hands a delivery to the pool, or gives it back for a moment when its tenant has its share of the slots. The
// puller holds a slot, which goes with the delivery or is given back.
func (u *puller) takeOn(pulling, work context.Context, d *Delivery) {
	l, tenant := u.lane, d.Tenant
	if !l.fair.admit(tenant) {
		if !u.begun(pulling, d) {
			u.postpone(d)
			l.slots.release()
			u.breathe(pulling)
			return
		}
		l.fair.force(tenant)
	}
	l.pool.start(work, d, func() {
		l.fair.leave(tenant)
		l.slots.release()
	})
}

// begun reports whether the delivery's run may have begun. Then its owner may have died, or a slot of a limit is kept for
// it, and it must not wait for fairness. Only a request that was never claimed is sure to be new.
func (u *puller) begun(ctx context.Context, d *Delivery) bool {
	if d.Source == SourceRetry {
		return true
	}
	if d.Delivered <= 1 || u.lane.fair.untouched(d.streamSeq, d.Delivered, u.asked) {
		return false
	}
	key, ok := d.Key()
	if !ok {
		return true
	}
	_, _, err := u.lane.pool.bus.LastState(ctx, key)
	return !errors.Is(err, ErrNoJournal)
}

func (u *puller) postpone(d *Delivery) {
	u.lane.pool.bus.met.deferred.WithLabelValues(string(u.lane.kind)).Inc()
	if err := d.Nak(u.lane.fair.postpone(d.streamSeq, d.Delivered)); err != nil {
		u.lane.pool.log.Warn().Err(err).Msg("a request could not be put off; it comes again after AckWait")
	}
}

// breathe waits while too many requests are put off to look past more of them.
func (u *puller) breathe(ctx context.Context) {
	for ctx.Err() == nil {
		_, changed := u.lane.slots.full() // taken before the look, so that no change falls between
		rest := u.lane.fair.rest()
		if rest == 0 {
			return
		}
		waitFor(ctx, changed, rest)
	}
}
