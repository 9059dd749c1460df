package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/plan"
)

// MaxJobsListed is the most that sandbox.jobs answers at once.
const MaxJobsListed = 500

const defaultJobsListed = 50

// ParseHistory reads the body of sandbox.history. Every error is an *InvalidRequest.
func ParseHistory(data []byte) (*HistoryRequest, error) {
	r := new(HistoryRequest)
	if _, fault := decodeStrict(data, r); fault != nil {
		return nil, fault
	}
	err := firstFault(checkVersion(r.V), checkToken("job_id", r.JobID),
		checkRange("run", int64(r.Run), 0, 1<<31-1, true, "must not be negative"),
		checkRange("from_seq", int64(min(r.FromSeq, maxFromSeq+1)), 0, maxFromSeq, true, "must be at most 9007199254740991"))
	if err != nil {
		return nil, err
	}
	return r, nil
}

// maxFromSeq is the largest number that every JSON reader keeps exactly (RFC 8259, section 6).
const maxFromSeq = 1<<53 - 1

// ParseJobs reads the body of sandbox.jobs. Every error is an *InvalidRequest.
func ParseJobs(data []byte) (*JobsRequest, error) {
	r := new(JobsRequest)
	has, fault := decodeStrict(data, r)
	if fault != nil {
		return nil, fault
	}
	err := firstFault(checkVersion(r.V), checkOptionalToken("conversation_id", r.ConversationID, has["conversation_id"]),
		checkOneOf("state", string(r.State), has["state"], string(JobQueued), string(JobRunning), string(JobEnded)),
		checkRange("limit", int64(r.Limit), 1, MaxJobsListed, has["limit"], "must be 1 to 500"))
	if err != nil {
		return nil, err
	}
	return r, nil
}

// history sends the stored events, then one empty message that says how far they reach.
func (e *endpoints) history(ctx context.Context, a *ask) error {
	r, err := ParseHistory(a.data)
	if err != nil {
		return err
	}
	key := RunKey{Tenant: a.tenant, Job: r.JobID, Run: r.Run}
	events, last, more, err := e.bus.History(ctx, key, r.FromSeq, MaxHistoryEvents, MaxHistoryBytes)
	if err != nil {
		return err
	}
	for i := range events {
		a.respondEvent(&events[i], "")
	}
	h := nats.Header{}
	h.Set(HeaderLastSeq, strconv.FormatUint(last, 10))
	h.Set(HeaderMore, strconv.FormatBool(more))
	a.respond(nil, h)
	return nil
}

// respondEvent sends an event as the reply subject carries it: the same headers and body. With probe set the broker
// tells that inbox when nobody listens any more.
func (a *ask) respondEvent(ev *Event, probe string) {
	msg := encodeEvent(ev)
	msg.Subject, msg.Reply = a.reply, probe
	if ev.StreamSeq > 0 {
		msg.Header.Set(headerNatsSequence, strconv.FormatUint(ev.StreamSeq, 10))
	}
	if !ev.Time.IsZero() {
		msg.Header.Set(headerNatsTime, ev.Time.UTC().Format(time.RFC3339Nano))
	}
	if err := a.endpoints.bus.nc.PublishMsg(msg); err != nil {
		a.endpoints.bus.log.Warn().Err(err).Str("job_id", ev.Key.Job).Msg("an event could not be relayed")
	}
}

func (e *endpoints) jobs(ctx context.Context, a *ask) error {
	r, err := ParseJobs(a.data)
	if err != nil {
		return err
	}
	answer, err := e.bus.JobsList(ctx, a.tenant, *r)
	if err != nil {
		return err
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if int64(len(data)) > e.bus.MaxFileBytes() {
		return NewEndpointError(plan.ReasonContentTooLarge, "ask for fewer jobs (limit)")
	}
	a.respond(data, nil)
	return nil
}
