package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// maxUnfinished bounds how many open runs are read, one read each.
const maxUnfinished = 1000

// Unfinished is what stands between a request and its result in the whole deployment.
type Unfinished struct {
	// Running counts runs whose command was dialled or runs, Preparing those that a worker has taken and not dialled yet.
	Running, Preparing int
	// Waiting counts runs that wait, by what for.
	Waiting map[WaitFor]int
	// Sandboxes are those that the running ones run in.
	Sandboxes map[string]bool
	// Oldest is when the request of the oldest of them was stored, and of what nobody has taken yet; zero for none.
	Oldest time.Time
	// Partial: there are more than were looked at, which are the first in the journal.
	Partial bool
}

// Unfinished looks at every run that has no result. It walks over the journal's headers and reads at most 1,000 records.
// Errors: ErrUnreachable, ErrUnauthorized, ErrNotSetUp.
func (b *Bus) Unfinished(ctx context.Context) (Unfinished, error) {
	u := Unfinished{Waiting: map[WaitFor]int{}, Sandboxes: map[string]bool{}}
	var open []string
	err := b.lastHeaders(ctx, StreamJobs, SubjectReply+".*.*.*.state", func(m *storedMsg) {
		switch {
		case EventKind(m.Header.Get(HeaderEvent)) == EventResult:
		case len(open) >= maxUnfinished:
			u.Partial = true
		default:
			open = append(open, m.Subject)
		}
	})
	if err != nil {
		return u, fmt.Errorf("look for unfinished runs: %w", err)
	}
	for _, subject := range open {
		if err := b.addUnfinished(ctx, subject, &u); err != nil {
			return u, fmt.Errorf("look at an unfinished run: %w", err)
		}
	}
	queued, err := b.storedAt(ctx, StreamSandbox, ">", 1)
	if err != nil {
		return u, fmt.Errorf("look for the oldest request: %w", err)
	}
	u.Oldest = older(u.Oldest, queued)
	return u, nil
}

func (b *Bus) addUnfinished(ctx context.Context, subject string, u *Unfinished) error {
	m, err := b.lastOn(ctx, StreamJobs, subject)
	if errors.Is(err, errNoMessage) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	kind := EventKind(m.Header.Get(HeaderEvent))
	var body struct {
		For WaitFor `json:"for"`
		Run Record  `json:"run"`
	}
	if json.Unmarshal(m.Data, &body) != nil {
		return nil // a spoilt journal must not hide the others (case 78)
	}
	switch {
	case kind == EventResult:
		return nil
	case kind == EventWaiting:
		u.Waiting[body.For]++
	case stateOf(kind, body.Run.Phase) == JobRunning:
		u.Running++
		if body.Run.Sandbox != "" {
			u.Sandboxes[body.Run.Sandbox] = true
		}
	default:
		u.Preparing++
	}
	u.Oldest = older(u.Oldest, body.Run.QueuedAt)
	return nil
}
