package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// The headers that the broker adds to a stored message's copies (JetStream API: direct get and republish).
const (
	headerNatsSubject   = "Nats-Subject"
	headerNatsSequence  = "Nats-Sequence"
	headerNatsTime      = "Nats-Time-Stamp"
	headerNatsPending   = "Nats-Num-Pending"
	headerNatsStatus    = "Status"
	headerNatsPrefix    = "Nats-"
	headerNatsSchedule  = "Nats-Schedule"
	headerNatsSchedTo   = "Nats-Schedule-Target"
	headerNatsScheduler = "Nats-Scheduler"
)

// ErrNotEvent says that what is stored on a run's subject is no event of ours; only somebody with the right to publish
// events can have put it there.
var ErrNotEvent = errors.New("not an event")

// encodeEvent makes the message to publish. The event's Key, Kind, Seq, Owner, Request, offsets and Data are used.
func encodeEvent(e *Event) *nats.Msg {
	subject := e.Key.StateEventSubject()
	if e.Kind.IsOutput() {
		subject = e.Key.OutputEventSubject()
	}
	msg := nats.NewMsg(subject)
	msg.Data = e.Data
	h := msg.Header
	h.Set(HeaderEvent, string(e.Kind))
	h.Set(HeaderJob, e.Key.Job)
	h.Set(HeaderRun, strconv.Itoa(e.Key.Run))
	h.Set(HeaderSeq, strconv.FormatUint(e.Seq, 10))
	h.Set(HeaderOwner, e.Owner)
	if e.Request != "" {
		h.Set(HeaderRequest, e.Request)
	}
	h.Set(HeaderStdoutOffset, strconv.FormatInt(e.StdoutOffset, 10))
	h.Set(HeaderStderrOffset, strconv.FormatInt(e.StderrOffset, 10))
	if e.Traceparent != "" {
		h.Set(HeaderTraceparent, e.Traceparent)
	}
	return msg
}

// DecodeEvent reads an event from a message's subject (as stored), headers and data. It is how the copies on the
// reply subject and the answers of the history endpoint are read. The data is kept, not copied.
func DecodeEvent(subject string, h Header, data []byte) (*Event, error) {
	key, last, err := ParseRunSubject(subject)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEvent, err)
	}
	e := &Event{Kind: EventKind(h.Get(HeaderEvent)), Key: key, Owner: h.Get(HeaderOwner), Request: h.Get(HeaderRequest),
		Traceparent: h.Get(HeaderTraceparent), Data: data}
	if e.Kind.IsOutput() != (last == "out") || !e.Kind.Valid() {
		return nil, fmt.Errorf("%w: kind %q on %s", ErrNotEvent, e.Kind, last)
	}
	var errs []error
	e.Seq, err = strconv.ParseUint(h.Get(HeaderSeq), 10, 64)
	errs = append(errs, err)
	e.StdoutOffset, err = parseOffset(h.Get(HeaderStdoutOffset))
	errs = append(errs, err)
	e.StderrOffset, err = parseOffset(h.Get(HeaderStderrOffset))
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotEvent, err)
	}
	if e.Seq == 0 {
		return nil, fmt.Errorf("%w: sequence 0", ErrNotEvent)
	}
	if seq, err := strconv.ParseUint(h.Get(headerNatsSequence), 10, 64); err == nil {
		e.StreamSeq = seq
	}
	if at, err := time.Parse(time.RFC3339Nano, h.Get(headerNatsTime)); err == nil {
		e.Time = at
	}
	return e, nil
}

func parseOffset(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n < 0 {
		err = strconv.ErrRange
	}
	return n, err
}

// Valid reports whether k is one of the closed set.
func (k EventKind) Valid() bool {
	switch k {
	case EventAccepted, EventWaiting, EventPlanned, EventDialing, EventStarted, EventStopping, EventTakenOver,
		EventHeartbeat, EventResult, EventStdout, EventStderr, EventGap:
		return true
	}
	return false
}

// Record reads the run's state from a state event.
func (e *Event) Record() (Record, error) {
	var body struct {
		Run Record `json:"run"`
	}
	if e.Kind.IsOutput() {
		return Record{}, fmt.Errorf("%w: %s carries no record", ErrNotEvent, e.Kind)
	}
	if err := json.Unmarshal(e.Data, &body); err != nil {
		return Record{}, fmt.Errorf("read the record of %s event %d: %w", e.Key, e.Seq, err)
	}
	return body.Run, nil
}

// End is where the two streams stand after this event, in bytes delivered.
func (e *Event) End() (stdout, stderr int64) {
	stdout, stderr = e.StdoutOffset, e.StderrOffset
	if e.Kind == EventStdout {
		stdout += int64(len(e.Data))
	}
	if e.Kind == EventStderr {
		stderr += int64(len(e.Data))
	}
	return stdout, stderr
}

// IsSeam reports whether the event is the gap of no bytes with which a new owner takes the output chain: nothing
// is missing there, and whoever shows events to a person leaves it out.
func (e *Event) IsSeam() bool {
	if e.Kind != EventGap {
		return false
	}
	var body GapBody
	err := json.Unmarshal(e.Data, &body)
	return err == nil && body.Bytes != nil && *body.Bytes == 0
}

// Header holds the headers of a request or event. Names are compared as they are spelt.
type Header map[string][]string

// Get is the first value of the name, or "".
func (h Header) Get(name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set replaces the values of the name by one.
func (h Header) Set(name, value string) { h[name] = []string{value} }

// Clone copies the header; nil gives an empty one.
func (h Header) Clone() Header {
	out := make(Header, len(h))
	for k, v := range h {
		out[k] = append([]string(nil), v...)
	}
	return out
}

// withoutBroker copies the headers that are not the broker's own: republished, some of them are refused
// (Nats-Scheduler alone gives error 10212) and others would change what the publish means.
func (h Header) withoutBroker() Header {
	out := h.Clone()
	for name := range out {
		if strings.HasPrefix(name, headerNatsPrefix) {
			delete(out, name)
		}
	}
	return out
}
