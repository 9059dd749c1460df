package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// QueueState is where a queued request stands.
type QueueState string

// The closed set of queue states.
const (
	// QueueFresh: published and not yet acked; requests in a worker's hands count.
	QueueFresh QueueState = "fresh"
	// QueueParked: waits for its time.
	QueueParked QueueState = "parked"
	// QueueDue: its time has come.
	QueueDue QueueState = "due"
)

// Depth is how many requests of one tenant stand in one queue.
type Depth struct {
	State  QueueState
	Kind   Kind // empty for parked requests, which are counted over all kinds
	Tenant string
	Count  uint64
	// Oldest is when the first of them was stored; zero when it went meanwhile, or beyond the first hundred depths.
	Oldest time.Time
}

// maxOldest bounds how many depths get their age looked up, one read each.
const maxOldest = 100

// Backlog lists what stands in the queues, the deepest first.
func (b *Bus) Backlog(ctx context.Context) ([]Depth, error) {
	depths := map[string]*Depth{}
	for _, q := range []struct {
		stream, filter string
		state          QueueState
	}{
		{StreamSandbox, ">", QueueFresh}, {StreamRetry, SubjectRetryAt + ".>", QueueParked}, {StreamRetry, SubjectRetryDue + ".>", QueueDue},
	} {
		counts, err := b.subjectCounts(ctx, q.stream, q.filter)
		if err != nil {
			return nil, fmt.Errorf("read the backlog of %s: %w", q.stream, err)
		}
		for subject, n := range counts {
			d, filter := depthOf(q.state, subject)
			at := q.stream + " " + filter
			if depths[at] == nil {
				depths[at] = &d
			}
			depths[at].Count += n
		}
	}
	out := make([]Depth, 0, len(depths))
	for i, at := range slices.SortedFunc(maps.Keys(depths), func(x, y string) int {
		return cmp.Or(cmp.Compare(depths[y].Count, depths[x].Count), cmp.Compare(x, y))
	}) {
		if i < maxOldest {
			stream, filter, _ := strings.Cut(at, " ")
			first, err := b.nextOn(ctx, stream, filter, 1)
			if err != nil && !errors.Is(err, errNoMessage) {
				return nil, fmt.Errorf("read the oldest of %s: %w", filter, err)
			}
			if err == nil {
				depths[at].Oldest = first.Time
			}
		}
		out = append(out, *depths[at])
	}
	return out, nil
}

// depthOf reads a queue subject, and gives the filter that matches what is counted with it.
func depthOf(state QueueState, subject string) (Depth, string) {
	parts := strings.Split(subject, ".")
	d := Depth{State: state, Tenant: plan.NoTenant}
	switch state {
	case QueueFresh:
		if len(parts) == 3 {
			d.Tenant = parts[2]
		}
		for _, kind := range Kinds() {
			if strings.Join(parts[:2], ".") == RequestSubject(kind, "") {
				d.Kind = kind
			}
		}
	case QueueParked:
		d.Tenant = parts[3]
		subject = SubjectRetryAt + "." + d.Tenant + ".>"
	case QueueDue:
		d.Kind, d.Tenant = Kind(parts[3]), parts[4]
	}
	return d, subject
}

// JournalShare is how much of the journal's byte limit is used, 0 to 1.
func (b *Bus) JournalShare(ctx context.Context) (float64, error) {
	tctx, cancel := b.try(ctx)
	defer cancel()
	stream, err := b.js.Stream(tctx, StreamJobs)
	if err != nil {
		return 0, fmt.Errorf("read the journal's size: %w", classify(err))
	}
	info := stream.CachedInfo()
	if info.Config.MaxBytes <= 0 {
		return 0, nil
	}
	return float64(info.State.Bytes) / float64(info.Config.MaxBytes), nil
}
