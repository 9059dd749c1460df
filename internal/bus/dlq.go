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

const (
	// letterTries bounds how often a change of a chain is tried; each lost race needs one.
	letterTries = 8
	// resumeAfter is how old an unfinished replay must be before another operator may carry it on.
	resumeAfter = 30 * time.Second
)

// ErrNoLetter: the job has no dead letter.
var ErrNoLetter = errors.New("no dead letter")

// ReplayRefused says why a letter is not replayed, or not discarded, now. Nothing was changed.
type ReplayRefused struct {
	ID  LetterID
	Why ReplayRefusal
	// By is who replays it already, where that is the why.
	By string
}

// ReplayRefusal is why a replay is refused.
type ReplayRefusal string

// The closed set of refusals.
const (
	RefusedMalformed ReplayRefusal = "malformed"       // there is no request to run
	RefusedUnsealed  ReplayRefusal = "no_body"         // its body was not kept
	RefusedUnknown   ReplayRefusal = "outcome_unknown" // it may have run: needs force
	RefusedRunning   ReplayRefusal = "running"
	RefusedSucceeded ReplayRefusal = "succeeded"
	RefusedReplaying ReplayRefusal = "replaying" // somebody else is at it
	RefusedResolved  ReplayRefusal = "resolved"
	RefusedDiscarded ReplayRefusal = "discarded"
)

// Error says it to an operator.
func (e *ReplayRefused) Error() string {
	s := map[ReplayRefusal]string{
		RefusedMalformed: "it is no request that could run", RefusedUnsealed: "its body was not kept",
		RefusedUnknown: "it may have run already; --force runs it again", RefusedRunning: "it runs now",
		RefusedSucceeded: "it has succeeded", RefusedReplaying: "it is being replayed", RefusedResolved: "it is resolved",
		RefusedDiscarded: "it was discarded",
	}[e.Why]
	if e.By != "" {
		s += " by " + e.By
	}
	return "dead letter " + e.ID.String() + ": " + s
}

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

// ReplayOptions says who replays and how.
type ReplayOptions struct {
	By    string // required
	Why   string
	Force bool // replay although the outcome is unknown
}

// MarkReplaying moves a letter to replaying and returns the entry; its Run is the number n under which to park the
// replay. Of two operators one gets it and the other *ReplayRefused. A mark that is older than 30 s and whose run
// was never claimed (its operator died between the mark and the parking) is carried on: the same n is returned, and
// parking it again is harmless, because the run can be claimed once. Errors besides: ErrNoLetter, ErrInvalid,
// ErrUnreachable.
func (b *Bus) MarkReplaying(ctx context.Context, id LetterID, opts ReplayOptions) (*Letter, error) {
	if opts.By == "" {
		return nil, fmt.Errorf("replay dead letter %s: %w: it needs who replays it", id, ErrInvalid)
	}
	entry, _, err := b.changeLetter(ctx, id, func(last *Letter) (*Letter, error) {
		if last == nil {
			return nil, ErrNoLetter
		}
		if last.State == LetterReplaying {
			return nil, b.mayResume(ctx, last)
		}
		if err := b.mayReplay(ctx, last, opts.Force); err != nil {
			return nil, err
		}
		next := last.next(LetterReplaying, b.now().UTC())
		next.Run++
		next.Replays++
		next.By, next.Why = opts.By, clipText(opts.Why)
		return &next, nil
	})
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	return entry, nil
}

// CheckReplay says whether MarkReplaying would be refused now, and changes nothing; for dry runs.
func (b *Bus) CheckReplay(ctx context.Context, id LetterID, force bool) error {
	last, err := b.Letter(ctx, id)
	switch {
	case err != nil:
		return err
	case last.State == LetterReplaying:
		return b.mayResume(ctx, last)
	}
	return b.mayReplay(ctx, last, force)
}

func (b *Bus) mayReplay(ctx context.Context, last *Letter, force bool) error {
	refuse := func(why ReplayRefusal) error { return &ReplayRefused{ID: last.ID(), Why: why} }
	switch {
	case last.State == LetterResolved:
		return refuse(RefusedResolved)
	case last.State == LetterDiscarded:
		return refuse(RefusedDiscarded)
	case last.Class == ClassMalformed:
		return refuse(RefusedMalformed)
	case last.Sealed == nil:
		return refuse(RefusedUnsealed)
	}
	// The journal may know more than the letter: it is refused when the job has succeeded or runs.
	state, err := b.runState(ctx, RunKey{Tenant: last.Tenant, Job: last.Job, Run: last.Run})
	if err != nil {
		return err
	}
	switch {
	case state == JobRunning || state == JobQueued:
		return refuse(RefusedRunning)
	case state == jobSucceeded:
		return refuse(RefusedSucceeded)
	case (last.MayHaveRun || last.Class == ClassOutcomeUnknown) && !force:
		return refuse(RefusedUnknown)
	}
	return nil
}

// jobSucceeded and jobUnknown refine JobEnded for replays.
const (
	jobSucceeded JobState = "succeeded"
	jobUnknown   JobState = ""
)

// runState is where a run is by its journal; jobUnknown when the journal no longer holds it.
func (b *Bus) runState(ctx context.Context, key RunKey) (JobState, error) {
	event, record, err := b.LastState(ctx, key)
	switch {
	case errors.Is(err, ErrNoJournal):
		return jobUnknown, nil
	case err != nil:
		return jobUnknown, err
	case event.Kind != EventResult:
		return stateOf(event.Kind, record.Phase), nil
	}
	var body ResultBody
	if err := json.Unmarshal(event.Data, &body); err != nil {
		return jobUnknown, fmt.Errorf("read the result of %s: %w", key, err)
	}
	if AfterReplay(body.Outcome) == LetterResolved {
		return jobSucceeded, nil
	}
	return JobEnded, nil
}

// mayResume is nil for a replay that was marked but never began.
func (b *Bus) mayResume(ctx context.Context, last *Letter) error {
	key := RunKey{Tenant: last.Tenant, Job: last.Job, Run: last.Run}
	refused := &ReplayRefused{ID: last.ID(), Why: RefusedReplaying, By: last.By}
	if b.now().Sub(last.At) < resumeAfter {
		return refused
	}
	state, err := b.runState(ctx, key)
	switch {
	case err != nil:
		return err
	case state != jobUnknown:
		return refused
	}
	_, err = b.lastOn(ctx, StreamRetry, key.RetryAtSubject())
	if errors.Is(err, errNoMessage) {
		return nil
	}
	if err != nil {
		return err
	}
	return refused
}

// Resolve ends the chain after the replay of run n came to an end of its own. It reports whether it changed anything;
// repeating it is harmless.
func (b *Bus) Resolve(ctx context.Context, id LetterID, n int) (bool, error) {
	_, changed, err := b.changeLetter(ctx, id, func(last *Letter) (*Letter, error) {
		if last == nil || last.Run != n || last.State != LetterReplaying {
			return nil, nil
		}
		next := last.next(LetterResolved, b.now().UTC())
		return &next, nil
	})
	if err != nil {
		return false, fmt.Errorf("resolve dead letter %s: %w", id, err)
	}
	return changed, nil
}

// EndReplay says what became of the replay of run n > 0: resolved when the run came to an end of its own, dead again
// when it was denied or came too late. Outcomes that have a letter of their own (failed, lost) go by DeadLetter.
// Repeating it is harmless.
func (b *Bus) EndReplay(ctx context.Context, id LetterID, n int, result ResultBody) (bool, error) {
	if AfterReplay(result.Outcome) == LetterResolved {
		return b.Resolve(ctx, id, n)
	}
	_, changed, err := b.changeLetter(ctx, id, func(last *Letter) (*Letter, error) {
		if last == nil || last.Run != n || last.State != LetterReplaying {
			return nil, nil
		}
		next := last.next(LetterDead, b.now().UTC())
		next.Class, next.Message, next.Step, next.Status, next.Code = ClassReplayDenied, clipText(result.Message), "authorize", 0, ""
		if result.Outcome == plan.OutcomeExpired {
			next.Step = "deadline"
		}
		if result.Reason != "" {
			next.Reason = result.Reason
		}
		next.Fingerprint = Fingerprint(next.Class, 0, string(next.Reason), next.Step)
		return &next, nil
	})
	if err != nil {
		return false, fmt.Errorf("end the replay of dead letter %s: %w", id, err)
	}
	return changed, nil
}

// Discard closes a dead letter for good. A letter that is being replayed is refused (*ReplayRefused); one that is
// resolved or discarded stays as it is.
func (b *Bus) Discard(ctx context.Context, id LetterID, by, why string) error {
	if by == "" || why == "" {
		return fmt.Errorf("discard dead letter %s: %w: it needs who and why", id, ErrInvalid)
	}
	_, _, err := b.changeLetter(ctx, id, func(last *Letter) (*Letter, error) {
		switch {
		case last == nil:
			return nil, ErrNoLetter
		case last.State == LetterReplaying:
			return nil, &ReplayRefused{ID: id, Why: RefusedReplaying, By: last.By}
		case last.State != LetterDead:
			return nil, nil
		}
		next := last.next(LetterDiscarded, b.now().UTC())
		next.By, next.Why = by, clipText(why)
		return &next, nil
	})
	if err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	return nil
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
