package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

const (
	// workerService is the name under which workers serve.
	workerService = "wakebus-worker"
	// workersWait is how long a listing waits for one more answer: all of them leave within a round trip.
	workersWait = 300 * time.Millisecond
	// maxWorkers bounds a listing.
	maxWorkers = 1024
)

// WorkerState is what a worker says of itself.
type WorkerState struct {
	ID       string `json:"worker"`
	Version  string `json:"version"`
	Slots    int    `json:"slots"`
	Running  int    `json:"running"`
	Draining bool   `json:"draining"`
	// LastProviderError is the class and step of the provider's last failure there, and when; empty for none.
	LastProviderError string    `json:"last_provider_error,omitempty"`
	LastProviderAt    time.Time `json:"last_provider_at,omitzero"`
}

// Workers asks every worker that serves endpoints for its state, by name. It waits until no further answer comes for
// 0.3 s; a worker that is slower is missing. At most 1,024 are listed. Errors: ErrUnreachable.
func (b *Bus) Workers(ctx context.Context) ([]WorkerState, error) {
	inbox := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", classify(err))
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection, which has no subscriptions
	subject, err := micro.ControlSubject(micro.StatsVerb, workerService, "")
	if err == nil {
		err = b.nc.PublishRequest(subject, inbox, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", classify(err))
	}
	var workers []WorkerState
	for len(workers) < maxWorkers {
		wait, cancel := context.WithTimeout(ctx, workersWait)
		msg, err := sub.NextMsgWithContext(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("list workers: %w", ctxErr(ctx))
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			slices.SortFunc(workers, func(x, y WorkerState) int { return strings.Compare(x.ID, y.ID) })
			return workers, nil
		case err != nil:
			return nil, fmt.Errorf("list workers: %w", classify(err))
		}
		if w, ok := workerState(msg.Data); ok {
			workers = append(workers, w)
		}
	}
	return workers, nil
}

// workerState reads one answer; what is no worker of ours is left out.
func workerState(data []byte) (WorkerState, bool) {
	var stats micro.Stats
	if json.Unmarshal(data, &stats) != nil {
		return WorkerState{}, false
	}
	for _, e := range stats.Endpoints {
		var w WorkerState
		if e != nil && json.Unmarshal(e.Data, &w) == nil && w.ID != "" {
			return w, true
		}
	}
	return WorkerState{}, false
}
