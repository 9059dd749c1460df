package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/wakebus/wakebus/internal/plan"
)

const (
	// maxJobsKept is how many of a tenant's newest runs a listing considers.
	maxJobsKept = 20_000
	// maxJobsRead is how many of them it reads to find those that were asked for.
	maxJobsRead = 2_000
)

// JobsList lists the requests of a tenant that no worker has taken yet, then its runs by the journal, those that changed
// last first. Its search is bounded: Partial says when older runs may be missing. Errors: ErrInvalid, ErrUnreachable.
func (b *Bus) JobsList(ctx context.Context, tenant string, req JobsRequest) (JobsAnswer, error) {
	if !plan.ValidToken(tenant) {
		return JobsAnswer{}, fmt.Errorf("list jobs: %w: tenant %q", ErrInvalid, clip(tenant))
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultJobsListed
	}
	limit = min(limit, MaxJobsListed)
	list := &jobList{bus: b, req: req, limit: limit, known: map[string]bool{}, answer: JobsAnswer{Jobs: []JobSummary{}}}
	if err := list.collect(ctx, tenant); err != nil {
		return JobsAnswer{}, fmt.Errorf("list jobs of %s: %w", tenant, err)
	}
	if req.State == "" || req.State == JobQueued {
		if err := list.addUnclaimed(ctx, tenant); err != nil {
			return JobsAnswer{}, fmt.Errorf("list queued jobs of %s: %w", tenant, err)
		}
	}
	if err := list.addRuns(ctx); err != nil {
		return JobsAnswer{}, fmt.Errorf("list jobs of %s: %w", tenant, err)
	}
	return list.answer, nil
}

type jobList struct {
	bus    *Bus
	req    JobsRequest
	limit  int
	runs   []RunKey        // oldest change first
	known  map[string]bool // jobs that have a journal
	answer JobsAnswer
}

// collect notes where each run's last state event is; by its header it already tells ended runs from others.
func (l *jobList) collect(ctx context.Context, tenant string) error {
	return l.bus.lastHeaders(ctx, StreamJobs, SubjectReply+"."+tenant+".*.*.state", func(m *storedMsg) {
		key, _, err := ParseRunSubject(m.Subject)
		if err != nil {
			return
		}
		l.known[key.Job] = true
		ended := m.Header.Get(HeaderEvent) == string(EventResult)
		if l.req.State != "" && ended != (l.req.State == JobEnded) {
			return
		}
		if len(l.runs) >= 2*maxJobsKept { // trimmed now and then, not each time
			l.runs = append(l.runs[:0], l.runs[maxJobsKept:]...)
			l.answer.Partial = true
		}
		l.runs = append(l.runs, key)
	})
}

// addUnclaimed lists what still waits in the queue; the queue also holds what runs, which the journal tells.
func (l *jobList) addUnclaimed(ctx context.Context, tenant string) error {
	for _, kind := range Kinds() {
		if kind == KindEnd && tenant == plan.NoTenant {
			continue
		}
		q := batchQuery{Subject: RequestSubject(kind, tenant), Seq: 1, Batch: batchMessages, MaxBytes: batchBytes}
		err := l.bus.walk(ctx, StreamSandbox, q, func(m *storedMsg) error {
			job, ok := unclaimed(kind, m)
			if ok && !l.known[job.JobID] && len(l.answer.Jobs) < l.limit && l.wants(job) {
				l.answer.Jobs = append(l.answer.Jobs, job)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func unclaimed(kind Kind, m *storedMsg) (JobSummary, bool) {
	id, ok := RequestID(m.Data)
	if !ok {
		return JobSummary{}, false
	}
	var body struct {
		Conversation string `json:"conversation_id"`
		Page         string `json:"page_id"`
	}
	_ = json.Unmarshal(m.Data, &body) // an invalid request is listed by its id
	return JobSummary{JobID: id, Kind: kind, ConversationID: body.Conversation, PageID: body.Page, State: JobQueued, QueuedAt: m.Time}, true
}

func (l *jobList) wants(job JobSummary) bool {
	return (l.req.ConversationID == "" || job.ConversationID == l.req.ConversationID) && (l.req.State == "" || job.State == l.req.State)
}

func (l *jobList) addRuns(ctx context.Context) error {
	for i := len(l.runs) - 1; i >= 0 && len(l.answer.Jobs) < l.limit; i-- {
		if len(l.runs)-i > maxJobsRead {
			l.answer.Partial = true
			return nil
		}
		job, err := l.read(ctx, l.runs[i])
		if errors.Is(err, errNoMessage) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		if l.wants(job) {
			l.answer.Jobs = append(l.answer.Jobs, job)
		}
	}
	return nil
}

// read takes the run's last state event as it is now: it may have moved on since collect.
func (l *jobList) read(ctx context.Context, key RunKey) (JobSummary, error) {
	m, err := l.bus.lastOn(ctx, StreamJobs, key.StateReplySubject())
	if err != nil {
		return JobSummary{}, err
	}
	event, err := m.event()
	if err != nil {
		return JobSummary{}, errNoMessage
	}
	var body struct {
		Outcome plan.Outcome `json:"outcome"`
		For     WaitFor      `json:"for"`
		Run     Record       `json:"run"`
	}
	if err := json.Unmarshal(event.Data, &body); err != nil {
		return JobSummary{}, fmt.Errorf("read run %s: %w", key, err)
	}
	r := body.Run
	job := JobSummary{JobID: key.Job, Run: key.Run, Kind: r.Kind, State: stateOf(event.Kind, r.Phase), LastEvent: event.Kind,
		LastAt: m.Time, WaitsFor: body.For, Outcome: body.Outcome, QueuedAt: r.QueuedAt, StartedAt: r.StartedAt}
	if r.Actor != nil {
		job.ConversationID, job.PageID = r.Actor.Conversation, r.Actor.Page
	}
	return job, nil
}
