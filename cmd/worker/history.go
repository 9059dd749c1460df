package main

import (
	"context"
	"errors"

	"github.com/wakebus/wakebus/internal/bus"
)

// history is where a client finds stored events: the endpoint, which every role may ask, and where no worker serves it
// the streams, which only some roles may read.
func (c *cli) history(b *bus.Bus) bus.HistorySource {
	return eitherHistory{b.HistoryClient(), b}
}

type eitherHistory struct{ endpoint, streams bus.HistorySource }

// History is as bus.Bus.History.
func (e eitherHistory) History(ctx context.Context, key bus.RunKey, fromSeq uint64, maxEvents, maxBytes int) ([]bus.Event, uint64, bool, error) {
	events, last, more, err := e.endpoint.History(ctx, key, fromSeq, maxEvents, maxBytes)
	if errors.Is(err, bus.ErrNoReply) {
		return e.streams.History(ctx, key, fromSeq, maxEvents, maxBytes)
	}
	return events, last, more, err
}

// jobsOf lists a tenant's jobs in the same way.
func jobsOf(ctx context.Context, b *bus.Bus, tenant string, req bus.JobsRequest) (bus.JobsAnswer, error) {
	answer, err := b.JobsClient(ctx, tenant, req)
	if errors.Is(err, bus.ErrNoReply) {
		return b.JobsList(ctx, tenant, req)
	}
	return answer, err
}
