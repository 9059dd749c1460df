package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// resumeAfter is how old an unfinished replay must be before another operator may carry it on.
const resumeAfter = 30 * time.Second

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

// Discard closes a dead letter for good. One that is being replayed, or was resolved by a replay, is refused
// (*ReplayRefused); one that is discarded stays as it is.
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
		case last.State == LetterResolved:
			return nil, &ReplayRefused{ID: id, Why: RefusedResolved}
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
