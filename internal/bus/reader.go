package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/plan"
)

// The patience of a Reader.
const (
	// holeWait is how long a hole may stand before history is asked.
	holeWait = 500 * time.Millisecond
	// holeTries is how often history is asked before a hole is given up: with replicas it may lag.
	holeTries = 3
	// idleCheck is how long nothing may come before history is asked: a republished copy is sent once, and may get lost
	// with nothing after it to show the hole.
	idleCheck = 30 * time.Second
	// maxRuns bounds how many runs of one job a Reader follows; later ones are ignored.
	maxRuns = 64
)

// HistorySource is where a Reader finds stored events: the streams themselves, or the history endpoint.
type HistorySource interface {
	// History is as Bus.History.
	History(ctx context.Context, key RunKey, fromSeq uint64, maxEvents, maxBytes int) (events []Event, lastSeq uint64, more bool, err error)
}

var _ HistorySource = (*Bus)(nil)

type readOptions struct {
	run     int
	follow  bool
	fromSeq uint64
	history HistorySource
}

// ReadOption changes what a Reader reads.
type ReadOption func(*readOptions)

// ReadRun reads run n instead of run 0, and ends after its result.
func ReadRun(n int) ReadOption { return func(o *readOptions) { o.run = n } }

// ReadFollow reads later runs (replays) too, and never ends by itself.
func ReadFollow() ReadOption { return func(o *readOptions) { o.follow = true } }

// ReadFrom starts the run asked for at a Wb-Seq instead of 1.
func ReadFrom(seq uint64) ReadOption { return func(o *readOptions) { o.fromSeq = seq } }

// ReadHistory asks this source for stored events instead of the streams.
func ReadHistory(h HistorySource) ReadOption { return func(o *readOptions) { o.history = h } }

// Reader delivers a job's events in order: what is stored, then what comes live, each once. It is not safe for
// concurrent use. Close it.
type Reader struct {
	bus         *Bus
	tenant, job string
	opts        readOptions
	sub         *nats.Subscription

	runs      map[int]*runReader
	ready     []Event
	done      bool
	dropped   int
	connected time.Time // the reconnect that was last caught up with
}

type runReader struct {
	sorter *Sorter
	catch  bool      // history has to be asked from sorter.Next on
	hole   time.Time // since when a hole stands; zero for none
	tries  int
	ended  bool
}

// Subscribe starts reading a job. Subscribing before the request is published loses nothing; an earlier run's events are
// read from history. The context is for the call only; Next takes its own.
func (b *Bus) Subscribe(ctx context.Context, tenant, job string, options ...ReadOption) (*Reader, error) {
	if !plan.ValidToken(tenant) || !plan.ValidToken(job) {
		return nil, fmt.Errorf("subscribe: %w: job %q of tenant %q", ErrInvalid, job, tenant)
	}
	o := readOptions{fromSeq: 1, history: b}
	for _, option := range options {
		option(&o)
	}
	sub, err := b.nc.SubscribeSync(JobReplySubject(tenant, job))
	if err != nil {
		return nil, fmt.Errorf("subscribe to job %s/%s: %w", tenant, job, classify(err))
	}
	r := &Reader{bus: b, tenant: tenant, job: job, opts: o, sub: sub, runs: map[int]*runReader{}, connected: b.ReconnectedAt()}
	// More than this is dropped by the client library; the holes show, and history fills them.
	err = sub.SetPendingLimits(8192, 32<<20)
	if err == nil {
		tctx, cancel := b.try(ctx)
		defer cancel()
		err = b.nc.FlushWithContext(tctx) // the broker knows of us before the caller publishes
	}
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("subscribe to job %s/%s: %w", tenant, job, classify(err))
	}
	r.run(o.run).catch = true
	return r, nil
}

// Close ends the subscription.
func (r *Reader) Close() { _ = r.sub.Unsubscribe() } // fails only when the connection is closed, and it with it

func (r *Reader) run(n int) *runReader {
	run := r.runs[n]
	if run == nil {
		from := uint64(1)
		if n == r.opts.run {
			from = r.opts.fromSeq
		}
		run = &runReader{sorter: NewSorter(from)}
		r.runs[n] = run
	}
	return run
}

// Next blocks until the next event. It returns io.EOF after the result of the run that was asked for, ctx's error, or
// ErrClosed. While the broker is away it waits, and afterwards nothing is missing but what retention removed; that is
// said by a gap event that no stream holds (why: retention).
func (r *Reader) Next(ctx context.Context) (Event, error) {
	for {
		if len(r.ready) > 0 {
			e := r.ready[0]
			r.ready = r.ready[1:]
			r.note(e)
			if e.IsSeam() {
				continue
			}
			return e, nil
		}
		if r.done {
			return Event{}, io.EOF
		}
		if err := ctx.Err(); err != nil {
			return Event{}, ctxErr(ctx)
		}
		era := r.bus.connection() // taken before the look, so that no reconnect falls between
		r.checkLosses()
		if r.ask(ctx) {
			continue
		}
		if err := r.receive(ctx, era); err != nil {
			return Event{}, err
		}
	}
}

func (r *Reader) note(e Event) {
	if e.Kind != EventResult {
		return
	}
	r.run(e.Key.Run).ended = true
	if e.Key.Run == r.opts.run && !r.opts.follow {
		r.done = true
	}
	if r.opts.follow && len(r.runs) < maxRuns {
		r.run(e.Key.Run + 1).catch = true // a replay may have begun while nobody listened
	}
}

// checkLosses notices that copies may have been lost: the connection was, or the library dropped some.
func (r *Reader) checkLosses() {
	dropped, err := r.sub.Dropped()
	if at := r.bus.ReconnectedAt(); !at.Equal(r.connected) || err == nil && dropped != r.dropped {
		r.connected, r.dropped = at, dropped
		r.catchAll()
	}
}

func (r *Reader) catchAll() {
	for _, run := range r.runs {
		run.catch = run.catch || !run.ended
	}
}

// ask reads one page of history for each run that needs it, and reports whether events came of it.
func (r *Reader) ask(ctx context.Context) bool {
	for n, run := range r.runs {
		due := !run.hole.IsZero() && time.Since(run.hole) >= holeWait
		if !run.catch && !due {
			continue
		}
		from := run.sorter.Next()
		events, last, more, err := r.opts.history.History(ctx, RunKey{Tenant: r.tenant, Job: r.job, Run: n}, from, 0, 0)
		if err != nil {
			r.bus.log.Debug().Err(err).Str("job_id", r.job).Msg("history is not answering")
			run.hole = time.Now() // ask again when the wait is over
			continue
		}
		run.catch = more
		for _, e := range events {
			r.push(run, e)
		}
		if due && !more && run.sorter.Next() == from {
			r.giveUp(run, last)
		}
		r.watchHole(run)
	}
	return len(r.ready) > 0
}

// giveUp skips a hole that history cannot fill either.
func (r *Reader) giveUp(run *runReader, last uint64) {
	run.tries++
	if run.tries < holeTries || len(run.sorter.Missing()) == 0 {
		run.hole = time.Time{}
		return
	}
	run.tries = 0
	r.bus.met.readerGaps.Inc()
	r.bus.log.Warn().Str("job_id", r.job).Uint64("from_seq", run.sorter.Next()).Uint64("history_ends", last).Msg("events are gone")
	r.ready = append(r.ready, run.sorter.Skip()...)
}

func (r *Reader) push(run *runReader, e Event) {
	before := run.sorter.Next()
	r.ready = append(r.ready, run.sorter.Push(e)...)
	if run.sorter.Next() != before {
		run.hole, run.tries = time.Time{}, 0
	}
	r.watchHole(run)
}

func (r *Reader) watchHole(run *runReader) {
	switch missing := run.sorter.Missing(); {
	case len(missing) == 0:
		run.hole = time.Time{}
	case run.hole.IsZero():
		run.hole = time.Now()
	}
}

// receive waits for one live copy, or for the time when history has to be asked, or for a reconnect.
func (r *Reader) receive(ctx, era context.Context) error {
	wait := idleCheck
	for _, run := range r.runs {
		if !run.hole.IsZero() {
			wait = min(wait, max(time.Millisecond, holeWait-time.Since(run.hole)))
		}
	}
	tctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(era, cancel)()
	msg, err := r.sub.NextMsgWithContext(tctx)
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrSlowConsumer):
		r.catchAll()
		return nil
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrBadSubscription):
		return fmt.Errorf("read job %s/%s: %w", r.tenant, r.job, ErrClosed)
	case ctx.Err() != nil:
		return ctxErr(ctx)
	case errors.Is(err, context.Canceled): // the connection came back, and what was said meanwhile is in history; or it is closed
		if r.bus.nc.IsClosed() {
			return fmt.Errorf("read job %s/%s: %w", r.tenant, r.job, ErrClosed)
		}
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		if wait == idleCheck {
			r.catchAll()
		}
		return nil
	default:
		return fmt.Errorf("read job %s/%s: %w", r.tenant, r.job, classify(err))
	}
	e, err := DecodeEvent(msg.Subject, Header(msg.Header), msg.Data)
	if err != nil {
		r.bus.log.Warn().Err(err).Msg("a message on a reply subject is no event")
		return nil
	}
	if e.Key.Run < r.opts.run || e.Key.Run > r.opts.run && !r.opts.follow || len(r.runs) >= maxRuns && r.runs[e.Key.Run] == nil {
		return nil
	}
	r.push(r.run(e.Key.Run), *e)
	return nil
}
