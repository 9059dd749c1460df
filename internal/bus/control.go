package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sethvargo/go-retry"
	"golang.org/x/sync/errgroup"

	"github.com/wakebus/wakebus/internal/plan"
)

// controlTries is how often a mark or a switch is published before its publisher is told that the broker is away.
const controlTries = 3

// CancelTarget is what a cancel stops: one job, or everything in a conversation. Exactly one of the two is set.
type CancelTarget struct {
	Tenant       string
	Job          string
	Conversation string
}

func (t CancelTarget) subject() (string, error) {
	switch {
	case !plan.ValidToken(t.Tenant), (t.Job == "") == (t.Conversation == ""):
	case plan.ValidToken(t.Job):
		return CancelJobSubject(t.Tenant, t.Job), nil
	case plan.ValidToken(t.Conversation):
		return CancelConversationSubject(t.Tenant, t.Conversation), nil
	}
	return "", fmt.Errorf("%w: a cancel needs a tenant and one job or conversation", ErrInvalid)
}

// parseCancelSubject is the inverse of CancelTarget.subject.
func parseCancelSubject(subject string) (CancelTarget, bool) {
	rest, ok := strings.CutPrefix(subject, SubjectCancel+".")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 || !plan.ValidToken(parts[0]) || !plan.ValidToken(parts[2]) {
		return CancelTarget{}, false
	}
	switch parts[1] {
	case "job":
		return CancelTarget{Tenant: parts[0], Job: parts[2]}, true
	case "conversation":
		return CancelTarget{Tenant: parts[0], Conversation: parts[2]}, true
	}
	return CancelTarget{}, false
}

// CancelMark is a stored cancel. By and Why are what its body says; Grant is its Sandbox-Grant header, unverified:
// once verified its sub goes before By.
type CancelMark struct {
	CancelTarget
	By    string
	Why   string
	Grant string
	// At is when the broker stored it; zero for a live copy.
	At time.Time
}

// MarkCancel stores the mark that stops a job or a conversation. Of hdr the grant and the trace context are kept. It
// blocks until stored, at most three tries; marking again is harmless. Errors: ErrInvalid, ErrUnreachable, ErrFull.
func (b *Bus) MarkCancel(ctx context.Context, target CancelTarget, req CancelRequest, hdr Header) error {
	subject, err := target.subject()
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	msg := nats.NewMsg(subject)
	if req != (CancelRequest{}) {
		if msg.Data, err = json.Marshal(req); err != nil {
			return fmt.Errorf("cancel %s: %w", subject, err)
		}
		if _, err := ParseCancel(msg.Data); err != nil {
			return fmt.Errorf("cancel %s: %w: %w", subject, ErrInvalid, err)
		}
	}
	copyHeaders(msg, hdr, HeaderGrant, HeaderTraceparent, HeaderTracestate)
	if err := b.publishControl(ctx, msg); err != nil {
		return fmt.Errorf("cancel %s: %w", subject, err)
	}
	return nil
}

// publishControl stores a message that may be stored twice without harm.
func (b *Bus) publishControl(ctx context.Context, msg *nats.Msg) error {
	return retry.Do(ctx, retry.WithMaxRetries(controlTries-1, patience()), func(ctx context.Context) error {
		tctx, cancel := b.try(ctx)
		defer cancel()
		_, err := b.js.PublishMsg(tctx, msg, jetstream.WithRetryAttempts(1))
		if err != nil && isAmbiguous(err) {
			return retry.RetryableError(classify(err))
		}
		return classify(err)
	})
}

func copyHeaders(msg *nats.Msg, from Header, names ...string) {
	for _, name := range names {
		if v := from.Get(name); v != "" {
			msg.Header.Set(name, v)
		}
	}
}

// CancelMark looks for a mark that stops the job: its own, whenever it was made, or its conversation's if that was
// stored after the request, by the broker's times. conversation may be empty. It returns nil when there is none. The
// stream's leader answers, so that a mark whose publish was confirmed is always seen.
func (b *Bus) CancelMark(ctx context.Context, tenant, job, conversation string, requestStored time.Time) (*CancelMark, error) {
	ofJob, ofConversation := CancelTarget{Tenant: tenant, Job: job}, CancelTarget{Tenant: tenant, Conversation: conversation}
	if conversation == "" {
		return b.readMark(ctx, ofJob)
	}
	if b.alone() && b.noneOf(ctx, StreamControl, CancelJobSubject(tenant, job), CancelConversationSubject(tenant, conversation)) {
		return nil, nil
	}
	var both [2]*CancelMark
	g, ctx := errgroup.WithContext(ctx)
	for i, target := range []CancelTarget{ofJob, ofConversation} {
		g.Go(func() (err error) {
			both[i], err = b.readMark(ctx, target)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if both[0] == nil && both[1] != nil && both[1].At.After(requestStored) {
		return both[1], nil
	}
	return both[0], nil
}

func (b *Bus) readMark(ctx context.Context, target CancelTarget) (*CancelMark, error) {
	subject, err := target.subject()
	if err != nil {
		return nil, fmt.Errorf("read cancel mark: %w", err)
	}
	m, err := b.lastOn(ctx, StreamControl, subject)
	if errors.Is(err, errNoMessage) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cancel mark %s: %w", subject, err)
	}
	mark := newMark(target, m.Header, m.Data)
	mark.At = m.Time
	return &mark, nil
}

// newMark reads a cancel; a body that cannot be read still cancels, without a name.
func newMark(target CancelTarget, h Header, data []byte) CancelMark {
	mark := CancelMark{CancelTarget: target, Grant: h.Get(HeaderGrant)}
	if req, err := ParseCancel(data); err == nil {
		mark.By, mark.Why = req.By, req.Why
	}
	return mark
}

// WatchCancels calls fn for every cancel of every tenant from now on: at once by a live copy, and from the stream after
// an interruption and every 30 s, so that none is missed for longer. fn may get a mark twice, is called from one
// goroutine, and must not block. The subscription stands when WatchCancels returns; it ends with ctx or Close.
func (b *Bus) WatchCancels(ctx context.Context, fn func(CancelMark)) (*Watch, error) {
	const subject = SubjectCancel + ".>"
	var seen uint64 // the last mark that came from the stream
	last, err := b.lastOn(ctx, StreamControl, subject)
	switch {
	case err == nil:
		seen = last.Seq
	case !errors.Is(err, errNoMessage):
		return nil, fmt.Errorf("watch cancels: %w", err)
	}
	live := func(msg *nats.Msg) {
		if target, ok := parseCancelSubject(msg.Subject); ok {
			fn(newMark(target, Header(msg.Header), msg.Data))
		}
	}
	catchUp := func(ctx context.Context) error {
		q := batchQuery{Subject: subject, Seq: seen + 1, Batch: batchMessages, MaxBytes: batchBytes}
		return b.walk(ctx, StreamControl, q, func(m *storedMsg) error {
			seen = m.Seq
			if target, ok := parseCancelSubject(m.Subject); ok {
				mark := newMark(target, m.Header, m.Data)
				mark.At = m.Time
				fn(mark)
			}
			return nil
		})
	}
	return b.watch(ctx, subject, live, catchUp)
}

// Execution reads the whole fleet's switch; without one it is on. A switch that cannot be read counts as off.
func (b *Bus) Execution(ctx context.Context) (ExecutionSwitch, error) {
	m, err := b.lastOn(ctx, StreamControl, SubjectExecution)
	if errors.Is(err, errNoMessage) {
		return ExecutionSwitch{On: true}, nil
	}
	if err != nil {
		return ExecutionSwitch{}, fmt.Errorf("read the execution switch: %w", err)
	}
	return parseSwitch(m.Data), nil
}

func parseSwitch(data []byte) ExecutionSwitch {
	var s ExecutionSwitch
	if err := json.Unmarshal(data, &s); err != nil || s.By == "" {
		return ExecutionSwitch{Why: "what is stored on " + SubjectExecution + " is no switch; set it anew", Unreadable: true}
	}
	s.Unreadable = false // nobody's to claim
	return s
}

// SetExecution switches running code on or off for the whole fleet; on only takes an off away. It is kept until it is
// set again, whatever the stream's age limit says. It blocks until stored. Errors: ErrInvalid, ErrUnreachable,
// ErrUnauthorized, ErrFull.
func (b *Bus) SetExecution(ctx context.Context, on bool, by, why string) error {
	if by == "" || len(by) > MaxBy || len(why) > MaxWhy {
		return fmt.Errorf("set the execution switch: %w: it needs who sets it, and why in at most %d bytes", ErrInvalid, MaxWhy)
	}
	data, err := json.Marshal(ExecutionSwitch{On: on, By: by, Why: why, At: b.now().UTC()})
	if err != nil {
		return fmt.Errorf("set the execution switch: %w", err)
	}
	msg := nats.NewMsg(SubjectExecution)
	msg.Data = data
	msg.Header.Set(headerTTL, "never") // else the stream's 24 h would lift an off
	if err := b.publishControl(ctx, msg); err != nil {
		return fmt.Errorf("set the execution switch: %w", err)
	}
	return nil
}

// WatchExecution calls fn with the switch as it is, before it returns, and then whenever it changes, from one
// goroutine. It ends with ctx or Close. After an interruption, and every 30 s, the switch is read again.
func (b *Bus) WatchExecution(ctx context.Context, fn func(ExecutionSwitch)) (*Watch, error) {
	known, err := b.Execution(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	fn(known)
	tell := func(s ExecutionSwitch) {
		if s != known {
			known = s
			fn(s)
		}
	}
	return b.watch(ctx, SubjectExecution, func(msg *nats.Msg) { tell(parseSwitch(msg.Data)) }, func(ctx context.Context) error {
		s, err := b.Execution(ctx)
		if err == nil {
			tell(s)
		}
		return err
	})
}
