package bus

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/plan"
)

// errCallerLeft ends a relay whose inbox nobody listens to; the job goes on.
var errCallerLeft = errors.New("the caller left")

// callExec queues the command and relays its events in order to the caller's inbox, then sends one empty message. The
// inbox is kept nowhere: when this worker ends, the caller is told so and reads on by the job's id.
func (e *endpoints) callExec(ctx context.Context, a *ask) error {
	req, err := ParseExec(a.data)
	if err != nil {
		return err
	}
	reader, err := e.bus.Subscribe(ctx, a.tenant, req.JobID)
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := e.queueOnce(ctx, a, req.JobID); err != nil {
		return err
	}
	rctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	probe := e.bus.nc.NewInbox()
	gone, err := e.bus.nc.Subscribe(probe, func(m *nats.Msg) {
		if m.Header.Get(headerNatsStatus) == "503" { // no responders
			cancel(errCallerLeft)
		}
	})
	if err != nil {
		return classify(err)
	}
	defer func() { _ = gone.Unsubscribe() }() // fails only on a closed connection, which has no subscriptions
	for {
		event, err := reader.Next(rctx)
		switch {
		case errors.Is(err, io.EOF):
			a.respond(nil, nil)
			return nil
		case errors.Is(context.Cause(rctx), errCallerLeft):
			return nil
		case err != nil:
			return relayEnded(req.JobID)
		}
		a.respondEvent(&event, probe)
	}
}

// relayEnded is not retryable: the job goes on, and publishing it again would be a second one.
func relayEnded(job string) *EndpointError {
	return &EndpointError{Reason: plan.ReasonWorkerUnavailable,
		Message: "The relay ended; the job goes on: read its events by sandbox.history or its reply subject, job " + job + "."}
}

// queueOnce publishes the request unless the job is known already; then the events so far are relayed, as for anybody
// who repeats a job id, and another body under the same id is refused.
func (e *endpoints) queueOnce(ctx context.Context, a *ask, job string) error {
	event, _, err := e.bus.LastState(ctx, RunKey{Tenant: a.tenant, Job: job})
	switch {
	case err == nil:
		if event.Request != "" && event.Request != RequestHash(a.data) {
			return NewEndpointError(plan.ReasonInvalidRequest, "job_id was used before, with another body")
		}
		return nil
	case !errors.Is(err, ErrNoJournal):
		return err
	}
	hdr := Header{}
	for _, name := range []string{HeaderGrant, HeaderTraceparent, HeaderTracestate} {
		if v := a.header.Get(name); v != "" {
			hdr.Set(name, v)
		}
	}
	if _, err := e.bus.Publish(ctx, KindExec, a.tenant, hdr, a.data); err != nil {
		return fmt.Errorf("queue the call: %w", err)
	}
	return nil
}
