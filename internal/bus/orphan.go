package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/plan"
)

// Orphan is a run that has begun, has not ended, and that no message will bring to a worker.
type Orphan struct {
	Key    RunKey
	Kind   Kind
	Phase  plan.Phase
	Queued uint64
	Since  time.Time // its last state event
}

// Orphans finds runs whose last state event is older than olderThan, is no result, and that no message carries: neither
// the request itself nor a parked or due one. A run that waits counts from the end of its wait. At most most are
// returned; the suspects that are looked at are bounded to four times that. It walks over the journal's headers.
func (b *Bus) Orphans(ctx context.Context, olderThan time.Duration, most int) ([]Orphan, error) {
	suspects, err := b.silentRuns(ctx, olderThan, most*4)
	if err != nil {
		return nil, fmt.Errorf("search orphans: %w", err)
	}
	if len(suspects) == 0 {
		return nil, nil
	}
	due, err := b.dueRuns(ctx)
	if err != nil {
		return nil, fmt.Errorf("search orphans: %w", err)
	}
	var out []Orphan
	for _, key := range suspects {
		if due[key] || len(out) >= most {
			continue
		}
		orphan, err := b.examine(ctx, key, olderThan)
		if err != nil {
			return nil, fmt.Errorf("search orphans: %w", err)
		}
		if orphan != nil {
			out = append(out, *orphan)
		}
	}
	return out, nil
}

// silentRuns lists runs whose last state event is old and no result, by headers alone.
func (b *Bus) silentRuns(ctx context.Context, olderThan time.Duration, most int) ([]RunKey, error) {
	var out []RunKey
	err := b.lastHeaders(ctx, StreamJobs, SubjectReply+".*.*.*.state", func(m *storedMsg) {
		if len(out) >= most || b.now().Sub(m.Time) < olderThan || EventKind(m.Header.Get(HeaderEvent)) == EventResult {
			return
		}
		if key, _, err := ParseRunSubject(m.Subject); err == nil {
			out = append(out, key)
		}
	})
	return out, err
}

// dueRuns lists the runs that due messages carry.
func (b *Bus) dueRuns(ctx context.Context) (map[RunKey]bool, error) {
	runs := map[RunKey]bool{}
	for seq := uint64(1); ; {
		msgs, more, err := b.batch(ctx, StreamRetry, batchQuery{Subject: SubjectRetryDue + ".>", Seq: seq, Batch: MaxHistoryEvents, MaxBytes: MaxHistoryBytes})
		if err != nil {
			return nil, err
		}
		for _, m := range msgs {
			d := Delivery{Header: m.Header}
			d.readParked()
			depth, _ := depthOf(QueueDue, m.Subject)
			runs[RunKey{Tenant: depth.Tenant, Job: d.Job, Run: d.Run}] = true
			seq = m.Seq + 1
		}
		if !more || len(msgs) == 0 {
			return runs, nil
		}
	}
}

// examine reads a suspect's record, and looks for its request and its schedule. nil when it is no orphan.
func (b *Bus) examine(ctx context.Context, key RunKey, olderThan time.Duration) (*Orphan, error) {
	last, record, err := b.LastState(ctx, key)
	if errors.Is(err, ErrNoJournal) {
		return nil, nil
	}
	if errors.Is(err, ErrNotEvent) {
		// One run whose journal was spoilt must not hide the others (case 78).
		b.log.Error().Err(err).Stringer("run", key).Msg("the run's journal cannot be read")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	since := last.Time
	if last.Kind == EventWaiting {
		if until, err := waitingUntil(last); err == nil && until.After(since) {
			since = until
		}
	}
	if last.Kind == EventResult || b.now().Sub(since) < olderThan {
		return nil, nil
	}
	_, parked, err := b.ParkedShow(ctx, key)
	if err != nil || parked {
		return nil, err
	}
	queued, err := b.leaderGet(ctx, StreamSandbox, map[string]any{"seq": record.Queued})
	switch {
	case errors.Is(err, errNoMessage):
	case err != nil:
		return nil, err
	case carries(queued, key):
		return nil, nil
	}
	kind := record.Kind
	if !kind.Valid() {
		kind = KindExec
	}
	return &Orphan{Key: key, Kind: kind, Phase: record.Phase, Queued: record.Queued, Since: since}, nil
}

func waitingUntil(e *Event) (time.Time, error) {
	var body WaitingBody
	if err := json.Unmarshal(e.Data, &body); err != nil {
		return time.Time{}, fmt.Errorf("read waiting of %s: %w", e.Key, err)
	}
	return body.Until, nil
}

func carries(m *storedMsg, key RunKey) bool {
	id, ok := RequestID(m.Data)
	return ok && id == key.Job
}

// Requeue makes an orphan due now, with an empty body and the record's identity. Whoever gets it takes the run over: what
// was dialled is attached to or looked for by the record alone, and what was not cannot be run for want of its body. It
// does nothing, and reports false, when the run has been parked meanwhile: that message has the body.
func (b *Bus) Requeue(ctx context.Context, o Orphan) (bool, error) {
	h := Header{}
	h.Set(HeaderQueued, strconv.FormatUint(o.Queued, 10))
	h.Set(HeaderQueuedAt, o.Since.UTC().Format(time.RFC3339Nano))
	err := b.park(ctx, o.Key, o.Kind, b.now(), h, nil, jetstream.WithExpectLastSequencePerSubject(0))
	if isConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("requeue: %w", err)
	}
	return true, nil
}
