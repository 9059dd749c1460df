package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// maxLettersListed bounds one listing; the newest are kept.
const maxLettersListed = 100_000

// LetterFilter chooses dead letters. The zero filter chooses all that are dead.
type LetterFilter struct {
	// Tenant, Class, Fingerprint and Reason choose by equality; empty is any.
	Tenant      string
	Class       LetterClass
	Fingerprint string
	Reason      plan.Reason
	// States is which states to list. Defaults to dead alone.
	States []LetterState
	// Since and Until bound when the job died first; zero is unbounded.
	Since time.Time
	Until time.Time
	// Limit keeps the newest so many. Defaults to 100,000, which is also the most.
	Limit int
}

// LetterSummary is what lists need: all of it stands in the headers.
type LetterSummary struct {
	ID          LetterID
	State       LetterState
	Class       LetterClass
	Reason      plan.Reason
	Fingerprint string
	DeadAt      time.Time
	Run         int
	// At is when the chain's last entry was stored.
	At        time.Time
	streamSeq uint64
}

func (f LetterFilter) matches(s LetterSummary) bool {
	states := f.States
	if len(states) == 0 {
		states = []LetterState{LetterDead}
	}
	return slices.Contains(states, s.State) && (f.Class == "" || f.Class == s.Class) &&
		(f.Fingerprint == "" || f.Fingerprint == s.Fingerprint) && (f.Reason == "" || f.Reason == s.Reason) &&
		!s.DeadAt.Before(f.Since) && (f.Until.IsZero() || !s.DeadAt.After(f.Until))
}

// LetterSummaries lists the chains that the filter chooses, in the order in which they last changed. It reads headers
// only and blocks until all are read. Errors: ErrInvalid, ErrUnreachable; never a shorter list.
func (b *Bus) LetterSummaries(ctx context.Context, f LetterFilter) ([]LetterSummary, error) {
	tenant := f.Tenant
	if tenant == "" {
		tenant = "*"
	} else if !plan.ValidToken(tenant) {
		return nil, fmt.Errorf("list dead letters: %w: tenant %q", ErrInvalid, clip(tenant))
	}
	limit := maxLettersListed
	if f.Limit > 0 {
		limit = min(limit, f.Limit)
	}
	var found []LetterSummary
	last := map[LetterID]uint64{} // a chain that goes on meanwhile is read twice
	err := b.lastHeaders(ctx, StreamDLQ, SubjectDLQ+"."+tenant+".*", func(m *storedMsg) {
		s, ok := summarise(m)
		if !ok {
			return
		}
		last[s.ID] = s.streamSeq
		if !f.matches(s) {
			return
		}
		if len(found) >= 2*limit { // trimmed now and then, not each time
			found = slices.Delete(found, 0, len(found)-limit+1)
		}
		found = append(found, s)
	})
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	found = slices.DeleteFunc(found, func(s LetterSummary) bool { return last[s.ID] != s.streamSeq })
	return found[max(0, len(found)-limit):], nil
}

func summarise(m *storedMsg) (LetterSummary, bool) {
	rest, ok := strings.CutPrefix(m.Subject, SubjectDLQ+".")
	tenant, job, two := strings.Cut(rest, ".")
	if !ok || !two {
		return LetterSummary{}, false
	}
	s := LetterSummary{ID: LetterID{Tenant: tenant, Job: job}, State: LetterState(m.Header.Get(HeaderLetterState)),
		Class: LetterClass(m.Header.Get(HeaderLetterClass)), Reason: plan.Reason(m.Header.Get(HeaderLetterReason)),
		Fingerprint: m.Header.Get(HeaderLetterFingerprint), At: m.Time, streamSeq: m.Seq}
	s.DeadAt, _ = time.Parse(time.RFC3339Nano, m.Header.Get(HeaderLetterDeadAt))
	_, _ = fmt.Sscan(m.Header.Get(HeaderRun), &s.Run) // what is no number is run 0
	return s, true
}

// Letters iterates over the letters that the filter chooses, whole, in the order in which they last changed. A letter
// that changes in between is given as it was chosen, or left out if that entry is gone. The iteration ends at the
// first error.
func (b *Bus) Letters(ctx context.Context, f LetterFilter) iter.Seq2[*Letter, error] {
	return func(yield func(*Letter, error) bool) {
		chosen, err := b.LetterSummaries(ctx, f)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, s := range chosen {
			letter, err := b.letterAt(ctx, s)
			if errors.Is(err, errNoMessage) {
				continue
			}
			if !yield(letter, err) || err != nil {
				return
			}
		}
	}
}

func (b *Bus) letterAt(ctx context.Context, s LetterSummary) (*Letter, error) {
	m, err := b.leaderGet(ctx, StreamDLQ, map[string]any{"seq": s.streamSeq})
	if err != nil {
		return nil, fmt.Errorf("read dead letter %s: %w", s.ID, err)
	}
	letter := new(Letter)
	if err := json.Unmarshal(m.Data, letter); err != nil {
		return nil, fmt.Errorf("read dead letter %s: %w", s.ID, err)
	}
	return letter, nil
}

// LetterStats counts the letters that wait for an operator.
type LetterStats struct {
	ByState map[LetterState]int
	ByClass map[LetterClass]int // dead ones
	// ByFingerprint groups the dead ones by what they died of, the largest group first.
	ByFingerprint []LetterGroup
	// Oldest is when the oldest dead one died; zero when there is none.
	Oldest time.Time
}

// LetterGroup is the dead letters of one fingerprint.
type LetterGroup struct {
	Fingerprint string
	Class       LetterClass
	Reason      plan.Reason
	Count       int
	Oldest      time.Time
	Newest      time.Time
	Example     LetterID
}

// LetterStats reads all headers that the filter chooses, in any state, and counts.
func (b *Bus) LetterStats(ctx context.Context, f LetterFilter) (LetterStats, error) {
	f.States = []LetterState{LetterDead, LetterReplaying, LetterResolved, LetterDiscarded}
	all, err := b.LetterSummaries(ctx, f)
	if err != nil {
		return LetterStats{}, err
	}
	return CountLetters(all), nil
}

// CountLetters counts summaries.
func CountLetters(all []LetterSummary) LetterStats {
	stats := LetterStats{ByState: map[LetterState]int{}, ByClass: map[LetterClass]int{}}
	groups := map[string]*LetterGroup{}
	for _, s := range all {
		stats.ByState[s.State]++
		if s.State != LetterDead {
			continue
		}
		stats.ByClass[s.Class]++
		if stats.Oldest.IsZero() || s.DeadAt.Before(stats.Oldest) {
			stats.Oldest = s.DeadAt
		}
		g := groups[s.Fingerprint]
		if g == nil {
			g = &LetterGroup{Fingerprint: s.Fingerprint, Class: s.Class, Reason: s.Reason, Oldest: s.DeadAt, Example: s.ID}
			groups[s.Fingerprint] = g
		}
		g.Count++
		if s.DeadAt.Before(g.Oldest) {
			g.Oldest = s.DeadAt
		}
		if s.DeadAt.After(g.Newest) {
			g.Newest = s.DeadAt
		}
	}
	for _, g := range groups {
		stats.ByFingerprint = append(stats.ByFingerprint, *g)
	}
	slices.SortFunc(stats.ByFingerprint, func(a, b LetterGroup) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Fingerprint, b.Fingerprint)
	})
	return stats
}
