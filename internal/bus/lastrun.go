package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/wakebus/wakebus/internal/plan"
)

// LastRun reads the last state event over all runs of a job, and the record in it, from the stream's leader.
// ErrNoJournal when no run of the job has been claimed.
func (b *Bus) LastRun(ctx context.Context, tenant, job string) (*Event, Record, error) {
	if !plan.ValidToken(tenant) || !plan.ValidToken(job) {
		return nil, Record{}, fmt.Errorf("read the last run: %w: job %q of tenant %q", ErrInvalid, clip(job), clip(tenant))
	}
	event, err := b.lastEvent(ctx, StreamJobs, SubjectReply+"."+tenant+"."+job+".*.state")
	if errors.Is(err, errNoMessage) {
		return nil, Record{}, fmt.Errorf("read the last run of %s/%s: %w", tenant, job, ErrNoJournal)
	}
	if err != nil {
		return nil, Record{}, fmt.Errorf("read the last run of %s/%s: %w", tenant, job, err)
	}
	record, err := event.Record()
	return event, record, err
}
