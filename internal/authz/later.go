package authz

import (
	"context"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// The times for which an authorisation holds after it was given.
const (
	// LaterWindow is how long after its stream time an authorised request may be attempted again without being asked.
	LaterWindow = 15 * time.Minute
	// RecheckEvery is how often a live terminal is authorised again.
	RecheckEvery = 60 * time.Second
	// RecheckGrace is the longest that a live terminal is kept while ErrUnavailable is all that is heard.
	RecheckGrace = 15 * time.Minute
)

// Attempt is a later attempt of a request that was authorised when it was first seen.
type Attempt struct {
	Action Action
	// Actor is who was verified then.
	Actor Actor
	Job   string
	// StreamTime is when the request was stored; Deadline when it must have started, zero = none.
	StreamTime, Deadline time.Time
	Now                  time.Time
}

// Later decides on another attempt: free until min(Deadline, StreamTime + LaterWindow), then by callout, else denied
// as authorization_expired. The kill switch counts always. Attaching to what runs already is no attempt: revoking a
// running job is a cancel. Errors as Authorize.
func (a *Authorizer) Later(ctx context.Context, at Attempt) (Actor, error) {
	if at.Action == ActionEnd {
		return at.Actor, nil
	}
	if err := a.cfg.Switch.Check(); err != nil {
		return Actor{}, err
	}
	until := at.StreamTime.Add(LaterWindow)
	if !at.Deadline.IsZero() && at.Deadline.Before(until) {
		until = at.Deadline
	}
	if !at.Now.After(until) {
		return at.Actor, nil
	}
	switch a.cfg.Mode {
	case ModeCallout:
		return a.call(ctx, at.Action, at.Actor, at.Job)
	case ModeDev:
		return at.Actor, nil
	case ModeGrant:
	}
	return Actor{}, expired("the request has waited for too long")
}

// Recheck is the repeated authorisation of a live terminal.
type Recheck struct {
	// Actor is who was verified when it opened, or at the last recheck.
	Actor Actor
	// Grant is a fresh grant that the client sent; "" = none.
	Grant string
	// Until is how long the present authorisation holds without a fresh grant.
	Until time.Time
	Now   time.Time
}

// Recheck decides whether a live terminal may go on: by a fresh grant of the same user for the same page, else by
// callout, else until Until. Errors as Authorize; on one that wraps ErrUnavailable keep the session, for RecheckGrace
// at most.
func (a *Authorizer) Recheck(ctx context.Context, r Recheck) (Actor, error) {
	if err := a.cfg.Switch.Check(); err != nil {
		return Actor{}, err
	}
	if r.Grant != "" {
		return a.recheckGrant(ctx, r)
	}
	switch a.cfg.Mode {
	case ModeCallout:
		return a.call(ctx, ActionTerminal, r.Actor, "")
	case ModeDev:
		return r.Actor, nil
	case ModeGrant:
	}
	if r.Now.After(r.Until) {
		return Actor{}, expired("no fresh grant came in time")
	}
	return r.Actor, nil
}

func (a *Authorizer) recheckGrant(ctx context.Context, r Recheck) (Actor, error) {
	ask := Ask{Action: ActionTerminal, Tenant: r.Actor.Tenant, Page: r.Actor.Page, Drive: r.Actor.Drive,
		Grant: r.Grant, At: r.Now}
	fresh, err := a.Authorize(ctx, ask)
	if err != nil {
		return Actor{}, err
	}
	if fresh.User != r.Actor.User {
		return Actor{}, forged("the fresh grant is another user's")
	}
	// A grant may say less than the ticket did; a viewer never becomes an owner by it.
	if fresh.Role == "" || (fresh.Role == RoleOwner && r.Actor.Role == RoleViewer) {
		fresh.Role = r.Actor.Role
	}
	if fresh.Origin == "" {
		fresh.Origin = r.Actor.Origin
	}
	if fresh.Tier == "" {
		fresh.Tier = plan.TierFree
	}
	return fresh, nil
}
