package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sethvargo/go-retry"

	"github.com/wakebus/wakebus/internal/plan"
)

// The headers of a dead letter: what lists and alarms need without the body.
const (
	HeaderLetterState       = "Wb-Dlq-State"
	HeaderLetterClass       = "Wb-Dlq-Class"
	HeaderLetterReason      = "Wb-Dlq-Reason"
	HeaderLetterFingerprint = "Wb-Dlq-Fingerprint"
	HeaderLetterDeadAt      = "Wb-Dlq-Dead-At"
)

// letterTries bounds how often a change of a chain is tried; each lost race needs one.
const letterTries = 8

// ErrNoLetter says that the job has no dead letter.
var ErrNoLetter = errors.New("no dead letter")

// Letter reads the last entry of a job's chain, or ErrNoLetter.
func (b *Bus) Letter(ctx context.Context, id LetterID) (*Letter, error) {
	letter, _, err := b.lastLetter(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	return letter, nil
}

func (b *Bus) lastLetter(ctx context.Context, id LetterID) (*Letter, uint64, error) {
	if !plan.ValidToken(id.Tenant) || !plan.ValidToken(id.Job) {
		return nil, 0, ErrInvalid
	}
	m, err := b.lastOn(ctx, StreamDLQ, DLQSubject(id.Tenant, id.Job))
	if errors.Is(err, errNoMessage) {
		return nil, 0, ErrNoLetter
	}
	if err != nil {
		return nil, 0, err
	}
	letter := new(Letter)
	if err := json.Unmarshal(m.Data, letter); err != nil {
		return nil, 0, fmt.Errorf("read entry %d: %w", m.Seq, err)
	}
	return letter, m.Seq, nil
}

// DeadLetter stores that a run died: the chain's first entry, or the answer to the replay of that run. It is confirmed
// when it returns without an error, and only then may the request be acked. Repeating it changes nothing: created is
// false when the chain holds this run's end, or a later run's, already. Errors: ErrInvalid, ErrUnreachable, ErrFull;
// the request must then be kept.
func (b *Bus) DeadLetter(ctx context.Context, dead Letter) (created bool, err error) {
	if err := dead.validate(); err != nil {
		return false, fmt.Errorf("write dead letter: %w", err)
	}
	dead.V, dead.State, dead.At = letterVersion, LetterDead, b.now().UTC()
	dead.Message = clipText(dead.Message)
	if dead.Fingerprint == "" {
		dead.Fingerprint = Fingerprint(dead.Class, dead.Status, dead.Code, dead.Step)
	}
	if dead.DeadAt.IsZero() {
		dead.DeadAt = dead.At
	}
	_, created, err = b.changeLetter(ctx, dead.ID(), func(last *Letter) (*Letter, error) {
		switch {
		case last == nil:
			return &dead, nil
		case last.Run > dead.Run, last.Run == dead.Run && last.State != LetterReplaying:
			return nil, nil
		}
		next := dead.after(last)
		return &next, nil
	})
	if err != nil {
		return false, fmt.Errorf("write dead letter %s: %w", dead.ID(), err)
	}
	if created {
		b.met.letters.WithLabelValues(string(dead.Class)).Inc()
	}
	return created, nil
}

// after joins a new death to the chain: what the request was stays, and so does when it died first.
func (l Letter) after(last *Letter) Letter {
	l.History = last.next(LetterDead, l.At).History
	l.DeadAt, l.Replays = last.DeadAt, last.Replays
	if l.Sealed == nil {
		l.Sealed = last.Sealed
	}
	if l.Redacted == nil {
		l.Redacted = last.Redacted
	}
	if l.Actor == nil {
		l.Actor = last.Actor
	}
	if l.Request == "" {
		l.Request = last.Request
	}
	if l.Kind == "" {
		l.Kind = last.Kind
	}
	if l.Queued == 0 {
		l.Queued, l.QueuedAt = last.Queued, last.QueuedAt
	}
	return l
}

// changeLetter reads the chain's last entry, asks step for the next one (nil for none) and publishes it by
// compare-and-set; after a lost race or answer it begins again, and knows its own entry. It returns the chain's last
// entry.
func (b *Bus) changeLetter(ctx context.Context, id LetterID, step func(last *Letter) (*Letter, error)) (entry *Letter, changed bool, err error) {
	var tried *Letter
	err = retry.Do(ctx, retry.WithMaxRetries(letterTries, patience()), func(ctx context.Context) error {
		last, seq, err := b.lastLetter(ctx, id)
		if err != nil && !errors.Is(err, ErrNoLetter) {
			return retryUnreachable(err)
		}
		if tried != nil && last != nil && sameEntry(tried, last) {
			entry, changed = last, true
			return nil
		}
		next, err := step(last)
		if err != nil {
			return retryUnreachable(err)
		}
		if next == nil {
			entry = last
			return nil
		}
		tried = next
		if err := b.publishLetter(ctx, next, seq); err != nil {
			return err
		}
		entry, changed = next, true
		return nil
	})
	return entry, changed, err
}

func retryUnreachable(err error) error {
	if errors.Is(err, ErrUnreachable) {
		return retry.RetryableError(err)
	}
	return err
}

// sameEntry: two operators may make the same change, but not in the same nanosecond.
func sameEntry(a, b *Letter) bool {
	return a.State == b.State && a.Run == b.Run && a.By == b.By && a.At.Equal(b.At)
}

func (b *Bus) publishLetter(ctx context.Context, l *Letter, expect uint64) error {
	data, err := json.Marshal(l)
	if err == nil && len(data) > b.MaxPayload()-headroom {
		// A record without the body is worth more than none; it can be read, but not replayed.
		cut := *l
		cut.Sealed, cut.Redacted = nil, nil
		data, err = json.Marshal(cut)
	}
	if err != nil {
		return fmt.Errorf("write entry: %w", err)
	}
	msg := nats.NewMsg(DLQSubject(l.Tenant, l.Job))
	msg.Data = data
	msg.Header.Set(HeaderLetterState, string(l.State))
	msg.Header.Set(HeaderLetterClass, string(l.Class))
	msg.Header.Set(HeaderLetterReason, string(l.Reason))
	msg.Header.Set(HeaderLetterFingerprint, l.Fingerprint)
	msg.Header.Set(HeaderLetterDeadAt, l.DeadAt.UTC().Format(time.RFC3339Nano))
	msg.Header.Set(HeaderRun, strconv.Itoa(l.Run))
	_, err = b.publishAt(ctx, msg, expect)
	switch {
	case err == nil:
		return nil
	case isConflict(err):
		return retry.RetryableError(fmt.Errorf("%w: another changed the letter", ErrUnreachable))
	case isAmbiguous(err):
		b.met.ambiguous.Inc()
		return retry.RetryableError(classify(err))
	}
	return classify(err)
}
