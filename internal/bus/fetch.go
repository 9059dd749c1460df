package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// storedMsg is one message as a stream holds it.
type storedMsg struct {
	Subject string
	Seq     uint64
	Time    time.Time
	Header  Header
	Data    []byte
}

// errNoMessage: the stream holds nothing that was asked for.
var errNoMessage = errors.New("no such message")

func (m *storedMsg) event() (*Event, error) {
	e, err := DecodeEvent(m.Subject, m.Header, m.Data)
	if err != nil {
		return nil, err
	}
	e.StreamSeq, e.Time = m.Seq, m.Time
	return e, nil
}

// lastOn asks the stream's leader for the last message on a subject. A direct get costs the broker less, but where it is
// a cluster a follower that lags may answer it, and owners decide by this answer. errNoMessage when there is none.
func (b *Bus) lastOn(ctx context.Context, stream, subject string) (*storedMsg, error) {
	query := struct {
		Subject string `json:"last_by_subj"`
	}{subject}
	switch stream {
	case StreamJobs, StreamOutput, StreamControl, linksStream: // which whoever asks for DirectReads may read so
		if b.alone() {
			return b.directGet(ctx, stream, query)
		}
	}
	return b.leaderGet(ctx, stream, query)
}

// alone reports whether the broker is one server, which holds the only copy of every stream, so that a direct get sees
// whatever was confirmed. A mirror that answers direct gets for these streams (mirror_direct) would break that.
func (b *Bus) alone() bool { return b.cfg.DirectReads && b.nc.ConnectedClusterName() == "" }

// directGet asks the stream itself, in whichever server, for one message.
func (b *Bus) directGet(ctx context.Context, stream string, query any) (*storedMsg, error) {
	msg, err := b.query(ctx, "$JS.API.DIRECT.GET."+stream, query)
	if err != nil {
		return nil, err
	}
	switch status := msg.Header.Get(headerNatsStatus); {
	case status == "" || len(msg.Data) > 0:
		return directMsg(msg), nil
	case status == "404":
		return nil, errNoMessage
	default:
		return nil, fmt.Errorf("%w: direct get of %s answered %s %s", ErrUnreachable, stream, status, msg.Header.Get("Description"))
	}
}

// noneOf is true when none of the subjects holds a message; false also when that is not known. It is for a broker that is
// alone: one question and, as a rule, one answer (NATS ADR-31, multi_last).
func (b *Bus) noneOf(ctx context.Context, stream string, subjects ...string) bool {
	_, err := b.directGet(ctx, stream, struct {
		Subjects []string `json:"multi_last"`
	}{subjects})
	return errors.Is(err, errNoMessage)
}

// query asks the JetStream API one question, once.
func (b *Bus) query(ctx context.Context, subject string, question any) (*nats.Msg, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, fmt.Errorf("write the query: %w", err)
	}
	tctx, cancel := b.try(ctx)
	defer cancel()
	answer, err := b.nc.RequestWithContext(tctx, subject, body)
	if err != nil {
		return nil, classify(err)
	}
	return answer, nil
}

func (b *Bus) leaderGet(ctx context.Context, stream string, query any) (*storedMsg, error) {
	reply, err := b.query(ctx, "$JS.API.STREAM.MSG.GET."+stream, query)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, errNoMessage
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return nil, fmt.Errorf("%w: %w", ErrNotSetUp, answer.Error)
	case answer.Error != nil:
		return nil, classify(answer.Error)
	case answer.Message == nil:
		return nil, fmt.Errorf("read the answer: %w", errNoMessage)
	}
	m := &storedMsg{Subject: answer.Message.Subject, Seq: answer.Message.Seq, Time: answer.Message.Time, Data: answer.Message.Data}
	if len(answer.Message.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(answer.Message.Header)
		if err != nil {
			return nil, fmt.Errorf("read the headers: %w", err)
		}
		m.Header = Header(h)
	}
	return m, nil
}

// batchQuery asks a stream directly for messages of one subject, which may have wildcards.
type batchQuery struct {
	Subject  string `json:"next_by_subj"`
	Seq      uint64 `json:"seq"` // the first stream sequence to look at
	Batch    int    `json:"batch"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// batch reads up to q.Batch messages in one round trip, without a consumer. more says that others follow.
// The broker answers from the stream itself; with replicas the answer may be a little old.
func (b *Bus) batch(ctx context.Context, stream string, q batchQuery) (msgs []*storedMsg, more bool, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, false, fmt.Errorf("write the query: %w", err)
	}
	tctx, cancel := b.try(ctx)
	defer cancel()
	inbox := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, false, classify(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection, which has no subscriptions
	if err := b.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, body); err != nil {
		return nil, false, classify(err)
	}
	for {
		msg, err := sub.NextMsgWithContext(tctx)
		if err != nil {
			return nil, false, classify(err)
		}
		switch status := msg.Header.Get(headerNatsStatus); {
		case status == "" || len(msg.Data) > 0:
			msgs = append(msgs, directMsg(msg))
		case status == "204":
			pending := msg.Header.Get(headerNatsPending)
			return msgs, pending != "" && pending != "0", nil
		case status == "404":
			return msgs, false, nil
		case status == "503":
			return nil, false, fmt.Errorf("%w: stream %s", ErrNotSetUp, stream)
		default:
			return nil, false, fmt.Errorf("%w: direct get of %s answered %s %s", ErrUnreachable, stream, status, msg.Header.Get("Description"))
		}
	}
}

// nextOn is the first message of the subject at or after a stream sequence. errNoMessage when there is none.
func (b *Bus) nextOn(ctx context.Context, stream, subject string, seq uint64) (*storedMsg, error) {
	return b.directGet(ctx, stream, map[string]any{"next_by_subj": subject, "seq": seq})
}

func directMsg(msg *nats.Msg) *storedMsg {
	m := &storedMsg{Subject: msg.Header.Get(headerNatsSubject), Header: Header(msg.Header), Data: msg.Data}
	m.Seq, _ = strconv.ParseUint(msg.Header.Get(headerNatsSequence), 10, 64)
	m.Time, _ = time.Parse(time.RFC3339Nano, msg.Header.Get(headerNatsTime))
	return m
}
