package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

// request is a delivery, read: what is asked, by which run, for which session. Exactly one of the bodies is set.
type request struct {
	key      bus.RunKey
	kind     bus.Kind
	sha      string // hex SHA-256 of the body
	body     []byte
	exec     *bus.ExecRequest
	terminal *bus.TerminalRequest
	end      *bus.EndRequest
	deadline time.Time // zero for none
	replay   bool
	letter   *bus.Letter // the dead letter that is replayed
}

// bodyless reports a run of which only the record is left.
func (q *request) bodyless() bool { return q.exec == nil && q.terminal == nil && q.end == nil }

// conversation is the request's conversation, or empty.
func (q *request) conversation() string {
	switch {
	case q.exec != nil:
		return q.exec.ConversationID
	case q.end != nil:
		return q.end.ConversationID
	}
	return ""
}

// page is the request's page, or empty.
func (q *request) page() string {
	switch {
	case q.terminal != nil:
		return q.terminal.PageID
	case q.end != nil:
		return q.end.PageID
	}
	return ""
}

func (q *request) drive() string {
	switch {
	case q.exec != nil:
		return q.exec.DriveID
	case q.terminal != nil:
		return q.terminal.DriveID
	case q.end != nil:
		return q.end.DriveID
	}
	return ""
}

// sessionKey names the session that the request is about. The drive is the grant's where the request names none.
func (q *request) sessionKey(actor bus.Actor) session.Key {
	k := session.Key{Kind: plan.KindConversation, Tenant: q.key.Tenant, Drive: q.drive(), ID: q.conversation()}
	if page := q.page(); page != "" {
		k.Kind, k.ID = plan.KindTerminal, page
	}
	if k.Drive == "" {
		k.Drive = actor.Drive
	}
	return k
}

// errMalformed marks a request that no reply can be addressed to; it goes to the dead letters.
var errMalformed = errors.New("the request has no usable id")

// read turns a delivery into a request. A body that is wrong but names its job gives the request and the denial; one
// that does not gives an error that wraps errMalformed.
func (w *Worker) read(ctx context.Context, d *bus.Delivery) (*request, *ending, error) {
	body := d.Data
	var letter *bus.Letter
	if d.Replay {
		opened, found, err := w.openReplay(ctx, bus.LetterID{Tenant: d.Tenant, Job: d.Header.Get(bus.HeaderReplayOf)})
		if err != nil {
			return nil, nil, err
		}
		body, letter = opened, found
	}
	if len(body) == 0 && d.Source == bus.SourceRetry && d.Job != "" {
		// A run that no message carried was queued again: all that is left of it is its record.
		return &request{kind: d.Kind, key: bus.RunKey{Tenant: d.Tenant, Job: d.Job, Run: d.Run}}, nil, nil
	}
	q := &request{kind: d.Kind, sha: bus.RequestHash(body), body: body, replay: d.Replay, letter: letter}
	q.key = bus.RunKey{Tenant: d.Tenant, Run: d.Run}
	err := q.parse(body, w.cfg.StreamHardCap)
	if err == nil {
		err = q.checkDeadline(d)
	}
	if err == nil {
		return q, nil, nil
	}
	if errors.Is(err, bus.ErrDeadlinePassed) {
		return q, expired("Its deadline had passed when it was published."), nil
	}
	var invalid *bus.InvalidRequest
	if !errors.As(err, &invalid) {
		return nil, nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	id, ok := bus.RequestID(body)
	if !ok {
		return nil, nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	q.key.Job = id
	return q, denied(invalid.Reason, invalid.Error()), nil
}

func (q *request) parse(body []byte, hardCap int64) (err error) {
	switch q.kind {
	case bus.KindExec:
		if q.exec, err = bus.ParseExec(body, bus.WithHardCap(hardCap)); err == nil {
			q.key.Job = q.exec.JobID
			q.deadline = deref(q.exec.Deadline)
		}
	case bus.KindTerminal:
		if q.terminal, err = bus.ParseTerminal(body); err == nil {
			q.key.Job = q.terminal.OpenID
			q.deadline = deref(q.terminal.Deadline)
		}
	case bus.KindEnd:
		if q.end, err = bus.ParseEnd(body); err == nil {
			q.key.Job = q.end.JobID
		}
	default:
		err = fmt.Errorf("kind %q is not known", q.kind)
	}
	return err
}

// checkDeadline takes a replay's own deadline, which is anew (design: attempts and deadline anew), before the body's.
func (q *request) checkDeadline(d *bus.Delivery) error {
	if q.replay {
		q.deadline = d.ReplayDeadline()
		return nil
	}
	// The request's stream time, not now: a request is not made invalid by having waited.
	switch {
	case q.exec != nil:
		return q.exec.Check(d.QueuedAt)
	case q.terminal != nil:
		return q.terminal.Check(d.QueuedAt)
	}
	return nil
}

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
