package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// busOpener opens over the bus: a request that a worker answers by one result.
type busOpener struct {
	bus      *bus.Bus
	patience time.Duration
	now      func() time.Time
}

var _ Opener = (*busOpener)(nil)

// Open listens before it publishes, so that no answer is missed. The visitor's ticket is also the request's grant.
func (o *busOpener) Open(ctx context.Context, req OpenRequest) (Opened, error) {
	page := req.Visitor.Page
	deadline := o.now().Add(o.patience).UTC()
	body, err := json.Marshal(bus.TerminalRequest{V: 1, OpenID: req.ID, PageID: page.ID, DriveID: page.Drive,
		Cols: req.Size.Cols, Rows: req.Size.Rows, Deadline: &deadline})
	if err != nil {
		return Opened{}, fmt.Errorf("encode terminal.open: %w", err)
	}
	reader, err := o.bus.Subscribe(ctx, page.Tenant, req.ID, bus.ReadHistory(o.bus.HistoryClient()))
	if err != nil {
		return Opened{}, fmt.Errorf("listen to open %s: %w", req.ID, err)
	}
	defer reader.Close()
	header := bus.Header{}
	if req.Visitor.Grant != "" {
		header.Set(bus.HeaderGrant, req.Visitor.Grant)
	}
	if _, err := o.bus.Publish(ctx, bus.KindTerminal, page.Tenant, header, body); err != nil {
		var refused *bus.Refused
		if errors.As(err, &refused) {
			return Opened{}, &Refused{Reason: refused.Reason, Retryable: true, RetryAfter: time.Second}
		}
		return Opened{}, fmt.Errorf("publish open %s: %w", req.ID, err)
	}
	for {
		event, err := reader.Next(ctx)
		if err != nil {
			return Opened{}, fmt.Errorf("wait for open %s: %w", req.ID, err)
		}
		if event.Kind == bus.EventResult {
			return openedOf(event.Data)
		}
	}
}

// openedOf reads the result. Whatever is not opened is a refusal with the result's own reason.
func openedOf(data []byte) (Opened, error) {
	var r bus.ResultBody
	if err := json.Unmarshal(data, &r); err != nil {
		return Opened{}, fmt.Errorf("read result of open: %w", err)
	}
	if r.Outcome == plan.OutcomeOpened && r.LeaseTicket != nil && r.Sandbox != "" {
		return Opened{Sandbox: r.Sandbox, Lease: r.LeaseTicket.ID, Fence: r.LeaseTicket.Fence, Expires: r.LeaseTicket.Expires, Fresh: r.Fresh}, nil
	}
	reason := r.Reason
	if !reason.Valid() {
		reason = plan.ReasonProvisionFailed
	}
	return Opened{}, &Refused{Reason: reason, Message: r.Message, Retryable: r.Retryable,
		RetryAfter: time.Duration(r.RetryAfterMs) * time.Millisecond}
}
