package bus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// Traffic is what clients have sent to a broker and got from it since its start, protocol messages of all kinds.
type Traffic struct {
	InMsgs, OutMsgs, InBytes, OutBytes int64
}

// Traffic counts so far. It may be called concurrently.
func (s *Server) Traffic() (Traffic, error) {
	v, err := s.inner.Varz(&server.VarzOptions{})
	if err != nil {
		return Traffic{}, fmt.Errorf("read the broker's counters: %w", err)
	}
	return Traffic{InMsgs: v.InMsgs, OutMsgs: v.OutMsgs, InBytes: v.InBytes, OutBytes: v.OutBytes}, nil
}

// Stored is what the streams have taken: messages since they were made, and the bytes that they hold now.
type Stored struct {
	Messages uint64
	Bytes    uint64
}

// streams are all that the contract has, the one under the links bucket included.
var streams = []string{StreamSandbox, StreamRetry, StreamJobs, StreamOutput, StreamControl, StreamDLQ, StreamAudit, linksStream}

// Stored reads all streams, one call each.
func (b *Bus) Stored(ctx context.Context) (Stored, error) {
	var all Stored
	for _, name := range streams {
		tctx, cancel := b.try(ctx)
		stream, err := b.js.Stream(tctx, name)
		cancel()
		if err != nil {
			return Stored{}, fmt.Errorf("read the state of %s: %w", name, classify(err))
		}
		state := stream.CachedInfo().State
		all.Messages += state.LastSeq
		all.Bytes += state.Bytes
	}
	return all, nil
}
