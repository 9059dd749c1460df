package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

type (
	runKey = bus.RunKey
)

func parseRun(tenant, job, run string) (bus.RunKey, bool) {
	n, err := strconv.Atoi(run)
	return bus.RunKey{Tenant: tenant, Job: job, Run: n}, err == nil && n >= 0
}

func isFenced(err error) bool { return errors.Is(err, bus.ErrFenced) }

// waitOf reads what a waiting run waits for; false for every other event.
func waitOf(e *bus.Event) (waiting bool, body bus.WaitingBody) {
	if e.Kind != bus.EventWaiting {
		return false, body
	}
	if err := json.Unmarshal(e.Data, &body); err != nil {
		return false, bus.WaitingBody{}
	}
	return true, body
}

// loadLink reads what the link knows of the sandbox, for a taker that dials again.
func (r *run) loadLink(ctx context.Context) *ending {
	r.id = r.req.sessionKey(r.actor)
	snap, err := r.w.links.Load(ctx, r.id)
	if err != nil {
		return r.linkEnding("load", err)
	}
	r.link, r.bash = snap, snap.Link.HasBash
	return nil
}

// restoreOutput reads back what earlier owners delivered, so that the result's previews and caps go on from there.
func (r *run) restoreOutput(ctx context.Context) {
	from := uint64(1)
	for {
		events, _, more, err := r.w.bus.History(ctx, r.key, from, historyPage, historyBytes)
		if err != nil {
			// Previews are a convenience; the run matters more.
			r.log.Warn().Err(err).Msg("earlier output not read back; the result's previews begin here")
			break
		}
		for i := range events {
			r.out.restore(&events[i])
			from = events[i].Seq + 1
		}
		if !more || len(events) == 0 {
			break
		}
	}
	so, se := r.chain.Offsets()
	r.out.delivered = [2]int64{so, se}
	r.out.produced = [2]int64{max(r.out.produced[stdout], so), max(r.out.produced[stderr], se)}
}

const (
	historyPage  = 256
	historyBytes = 4 << 20
)

// restore takes an event that an earlier owner stored into account.
func (o *output) restore(e *bus.Event) {
	switch e.Kind {
	case bus.EventStdout:
		o.previews[stdout].add(e.Data)
		o.produced[stdout] += int64(len(e.Data))
	case bus.EventStderr:
		o.previews[stderr].add(e.Data)
		o.produced[stderr] += int64(len(e.Data))
	case bus.EventGap, bus.EventAccepted, bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStarted,
		bus.EventStopping, bus.EventTakenOver, bus.EventHeartbeat, bus.EventResult:
	}
}

// afterResult repeats what must follow a result that is stored already.
func (w *Worker) afterResult(ctx context.Context, r *run, d *bus.Delivery, last *bus.Event) {
	var body bus.ResultBody
	if err := json.Unmarshal(last.Data, &body); err != nil {
		r.log.Error().Err(err).Msg("a stored result cannot be read; the request is given up")
		w.ack(ctx, d, &r.log)
		return
	}
	if body.Run.Lease != "" && body.Outcome != plan.OutcomeLost && body.Stopped != stoppedUnconfirmed && body.Outcome != plan.OutcomeOpened {
		ctx, cancel := context.WithTimeout(ctx, releaseWithin)
		if _, err := w.leases.ReleaseID(ctx, body.Run.Lease, body.Run.Fence); err != nil && !errors.Is(err, lease.ErrNotFound) {
			r.log.Debug().Err(err).Msg("lease of an ended run is left to its expiry")
		}
		cancel()
	}
	w.follow(ctx, r.req, &body, d, &r.log)
}

// touch notes that a session is in use. A failed touch denies nobody; false says that the link is no longer as it was read.
func (w *Worker) touch(ctx context.Context, snap session.Snapshot, log logger) bool {
	_, err := w.links.Touch(ctx, snap)
	if errors.Is(err, session.ErrConflict) {
		return false
	}
	if err != nil {
		log.Debug().Err(err).Msg("session not touched")
	}
	return true
}

// touchEnd notes that a session was in use until its run ended: a long command's sandbox is idle from then.
func (r *run) touchEnd(ctx context.Context) {
	if r.req.kind != bus.KindExec || r.chain.Record().StartedAt.IsZero() {
		return
	}
	if r.w.now().Sub(r.chain.Record().StartedAt) < touchAfter {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, touchWithin)
	defer cancel()
	snap, err := r.w.links.Load(ctx, r.req.sessionKey(r.actor))
	if err != nil {
		r.log.Debug().Err(err).Msg("session not touched")
		return
	}
	r.w.touch(ctx, snap, &r.log)
}

const (
	// touchAfter is how long a command must have run for its end to be noted; the note costs two messages.
	touchAfter  = time.Minute
	touchWithin = 5 * time.Second
)

// openReplay reads the request that an operator replays out of its dead letter.
func (w *Worker) openReplay(ctx context.Context, id bus.LetterID) ([]byte, *bus.Letter, error) {
	letter, err := w.bus.Letter(ctx, id)
	if err != nil {
		return nil, nil, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	if w.sealer == nil {
		return nil, nil, fmt.Errorf("open dead letter %s: the session secret is missing", id)
	}
	body, err := w.sealer.Open(id, letter.Sealed)
	if err != nil {
		return nil, letter, fmt.Errorf("%w: open dead letter %s: %w", errSealed, id, err)
	}
	return body, letter, nil
}

// errSealed: the dead letter's body cannot be opened with this deployment's secrets.
var errSealed = errors.New("the sealed request cannot be opened")
