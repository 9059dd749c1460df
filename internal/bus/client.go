package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/plan"
)

const (
	// fileTimeout bounds a file request whose context has no end; a sandbox may have to wake first.
	fileTimeout = 2 * time.Minute
	// calloutTimeout bounds the authorisation callout.
	calloutTimeout = 2 * time.Second
	// maxCalloutAnswer is the longest answer of the callout that is looked at, in bytes.
	maxCalloutAnswer = 64 << 10
)

// request sends one request and reads one answer; an answer that is an error becomes an *EndpointError.
func (b *Bus) request(ctx context.Context, subject string, hdr Header, data []byte, timeout time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	msg := nats.NewMsg(subject)
	msg.Header, msg.Data = nats.Header(hdr.withoutBroker()), data
	reply, err := b.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return nil, askError(err)
	}
	if err := endpointErrorIn(Header(reply.Header)); err != nil {
		return nil, err
	}
	return reply, nil
}

func askError(err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: %w", ErrNoReply, err)
	}
	return classify(err)
}

func tenantSubject(base, tenant string) (string, error) {
	if !plan.ValidToken(tenant) {
		return "", fmt.Errorf("%w: tenant %q", ErrInvalid, clip(tenant))
	}
	return base + "." + tenant, nil
}

// errPathText: JSON would put U+FFFD in the place of what is not UTF-8, and so name another file.
var errPathText = fmt.Errorf("%w: the path is not UTF-8", ErrInvalid)

// FileRead asks for a file of a sandbox. hdr carries the grant. It blocks until the answer, at most 2 minutes. Errors:
// *EndpointError, ErrNoReply when no worker serves files, ErrUnreachable, ErrInvalid.
func (b *Bus) FileRead(ctx context.Context, tenant string, hdr Header, params FileReadParams) (*FileContent, error) {
	subject, err := tenantSubject(SubjectFileRead, tenant)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	if !utf8.ValidString(params.Path) {
		return nil, fmt.Errorf("read file: %w", errPathText)
	}
	params.V = 1
	data, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	reply, err := b.request(ctx, subject, hdr, data, fileTimeout)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	h := Header(reply.Header)
	content := &FileContent{Data: reply.Data, Mode: h.Get(HeaderMode), Truncated: h.Get(HeaderTruncated) == "true"}
	if content.Size, err = strconv.ParseInt(h.Get(HeaderSize), 10, 64); err != nil {
		return nil, fmt.Errorf("read file: the answer's %s: %w", HeaderSize, err)
	}
	return content, nil
}

// FileWrite stores a file in a sandbox. hdr carries the grant. What one message cannot hold is refused before it is
// sent, as content_too_large. Blocking and errors as FileRead.
func (b *Bus) FileWrite(ctx context.Context, tenant string, hdr Header, params FileWriteParams, data []byte) (*FileWritten, error) {
	subject, err := tenantSubject(SubjectFileWrite, tenant)
	if err != nil {
		return nil, fmt.Errorf("write file: %w", err)
	}
	if most := b.MaxFileBytes(); int64(len(data)) > most {
		return nil, fmt.Errorf("write file: %w", tooLarge(most))
	}
	if !utf8.ValidString(params.Path) {
		return nil, fmt.Errorf("write file: %w", errPathText)
	}
	params.V = 1
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("write file: %w", err)
	}
	h := hdr.Clone()
	h.Set(HeaderParams, string(encoded))
	reply, err := b.request(ctx, subject, h, data, fileTimeout)
	if err != nil {
		return nil, fmt.Errorf("write file: %w", err)
	}
	written := new(FileWritten)
	if err := json.Unmarshal(reply.Data, written); err != nil {
		return nil, fmt.Errorf("write file: read the answer: %w", err)
	}
	return written, nil
}

// JobsClient asks the jobs endpoint. Errors: *EndpointError, ErrNoReply, ErrUnreachable, ErrInvalid.
func (b *Bus) JobsClient(ctx context.Context, tenant string, req JobsRequest) (JobsAnswer, error) {
	subject, err := tenantSubject(SubjectJobs, tenant)
	if err != nil {
		return JobsAnswer{}, fmt.Errorf("ask for jobs: %w", err)
	}
	req.V = 1
	data, err := json.Marshal(req)
	if err != nil {
		return JobsAnswer{}, fmt.Errorf("ask for jobs: %w", err)
	}
	reply, err := b.request(ctx, subject, nil, data, fileTimeout)
	if err != nil {
		return JobsAnswer{}, fmt.Errorf("ask for jobs: %w", err)
	}
	var answer JobsAnswer
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return JobsAnswer{}, fmt.Errorf("ask for jobs: read the answer: %w", err)
	}
	return answer, nil
}

// HistoryClient reads history by the endpoint, for roles that may not read the streams.
type HistoryClient struct{ bus *Bus }

var _ HistorySource = (*HistoryClient)(nil)

// HistoryClient is a source of history that asks the endpoint.
func (b *Bus) HistoryClient() *HistoryClient { return &HistoryClient{bus: b} }

// History is as Bus.History; the endpoint's own bounds hold whatever is asked for.
func (c *HistoryClient) History(ctx context.Context, key RunKey, fromSeq uint64, _, _ int) (events []Event, lastSeq uint64, more bool, err error) {
	if !key.Valid() {
		return nil, 0, false, fmt.Errorf("ask for history: %w: run %q", ErrInvalid, key)
	}
	data, err := json.Marshal(HistoryRequest{V: 1, JobID: key.Job, Run: key.Run, FromSeq: fromSeq})
	if err != nil {
		return nil, 0, false, fmt.Errorf("ask for history: %w", err)
	}
	ctx, cancel := c.bus.try(ctx)
	defer cancel()
	in, err := c.bus.open(SubjectHistory+"."+key.Tenant, nil, data)
	if err != nil {
		return nil, 0, false, fmt.Errorf("ask for history of %s: %w", key, err)
	}
	defer in.close()
	for {
		event, last, err := in.next(ctx, key.Tenant)
		switch {
		case err != nil:
			return nil, 0, false, fmt.Errorf("ask for history of %s: %w", key, err)
		case last != nil:
			lastSeq, err = strconv.ParseUint(last.Get(HeaderLastSeq), 10, 64)
			if err != nil {
				return nil, 0, false, fmt.Errorf("ask for history of %s: the answer's %s: %w", key, HeaderLastSeq, err)
			}
			return events, lastSeq, last.Get(HeaderMore) == "true", nil
		}
		events = append(events, *event)
	}
}

// Call is a running sandbox.call.exec. It is not safe for concurrent use. Close it.
type Call struct {
	in     *inbox
	tenant string
	done   bool
}

// CallExec runs a command by request and reply and streams its events. hdr carries the grant. Errors come from Next.
func (b *Bus) CallExec(_ context.Context, tenant string, hdr Header, body []byte) (*Call, error) {
	subject, err := tenantSubject(SubjectCallExec, tenant)
	if err != nil {
		return nil, fmt.Errorf("call exec: %w", err)
	}
	in, err := b.open(subject, hdr, body)
	if err != nil {
		return nil, fmt.Errorf("call exec: %w", err)
	}
	return &Call{in: in, tenant: tenant}, nil
}

// Next blocks until the next event. It returns io.EOF after the last one, *EndpointError when the call was refused or
// its relay ended, ErrNoReply when no worker serves calls, or ctx's error.
func (c *Call) Next(ctx context.Context) (Event, error) {
	if c.done {
		return Event{}, io.EOF
	}
	event, last, err := c.in.next(ctx, c.tenant)
	switch {
	case err != nil:
		return Event{}, fmt.Errorf("call exec: %w", err)
	case last != nil:
		c.done = true
		return Event{}, io.EOF
	}
	return *event, nil
}

// Close ends the call; the command goes on, and its relay ends soon.
func (c *Call) Close() { c.in.close() }

// inbox is where an endpoint's many answers come in; an empty one is the last.
type inbox struct{ sub *nats.Subscription }

func (b *Bus) open(subject string, hdr Header, data []byte) (*inbox, error) {
	reply := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(reply)
	if err != nil {
		return nil, classify(err)
	}
	in := &inbox{sub: sub}
	msg := nats.NewMsg(subject)
	msg.Header, msg.Data, msg.Reply = nats.Header(hdr.withoutBroker()), data, reply
	if err := b.nc.PublishMsg(msg); err != nil {
		in.close()
		return nil, classify(err)
	}
	return in, nil
}

func (in *inbox) close() { _ = in.sub.Unsubscribe() } // fails only on a closed connection, which has no subscriptions

// next returns an event, or the headers of the last message.
func (in *inbox) next(ctx context.Context, tenant string) (*Event, Header, error) {
	msg, err := in.sub.NextMsgWithContext(ctx)
	if err != nil {
		return nil, nil, askError(err)
	}
	h := Header(msg.Header)
	if len(msg.Data) == 0 {
		if h.Get(headerNatsStatus) == "503" {
			return nil, nil, askError(nats.ErrNoResponders)
		}
		if err := endpointErrorIn(h); err != nil {
			return nil, nil, err
		}
		if h == nil {
			h = Header{}
		}
		return nil, h, nil
	}
	// The inbox does not tell the run; the event's headers and the tenant do.
	run, err := strconv.Atoi(h.Get(HeaderRun))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", HeaderRun, err)
	}
	key := RunKey{Tenant: tenant, Job: h.Get(HeaderJob), Run: run}
	subject := key.StateReplySubject()
	if EventKind(h.Get(HeaderEvent)).IsOutput() {
		subject = key.OutputReplySubject()
	}
	event, err := DecodeEvent(subject, h, msg.Data)
	return event, nil, err
}

// CanRunCode asks authz.can_run_code and returns the answer's bytes, at most 64 KiB. It blocks at most 2 s. Errors:
// ErrNoReply when nobody answers that subject, ErrUnreachable, ErrTooLarge: none of them is a denial.
func (b *Bus) CanRunCode(ctx context.Context, question []byte) ([]byte, error) {
	reply, err := b.request(ctx, SubjectAuthzAnswer, nil, question, calloutTimeout)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", SubjectAuthzAnswer, err)
	}
	if len(reply.Data) > maxCalloutAnswer {
		return nil, fmt.Errorf("ask %s: %w: the answer has %d bytes", SubjectAuthzAnswer, ErrTooLarge, len(reply.Data))
	}
	return reply.Data, nil
}
