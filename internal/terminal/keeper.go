package terminal

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/plan"
)

// devTenant is whose terminals are when nobody says: the development instance's.
const devTenant = "dev"

// keeper checks people by tickets and grants.
type keeper struct {
	authz    *authz.Authorizer
	verifier *authz.Verifier // nil in dev mode without keys
	tickets  *authz.Tickets
	now      func() time.Time
}

var _ Gatekeeper = (*keeper)(nil)

// Admit believes a ticket's signature, page, origin and time, then whom it is for, then that it was never used.
func (k *keeper) Admit(ctx context.Context, ticket, origin, page string) (Visitor, error) {
	ask := authz.Ask{Action: authz.ActionTerminal, Grant: ticket, Page: page, At: k.now()}
	claims, dev, err := k.read(&ask, origin)
	if err != nil {
		return Visitor{}, refusal(err)
	}
	actor, err := k.authz.Authorize(ctx, ask)
	if err != nil {
		return Visitor{}, refusal(err)
	}
	if !dev {
		if err := k.tickets.Use(claims.ID, actor.Expires); err != nil {
			return Visitor{}, refusal(err)
		}
	}
	return visitorOf(actor, ask.Grant, dev), nil
}

// read takes from the ticket whom and what it is for. In dev mode it may be missing, or be bare JSON in base64, for a
// subprotocol holds no braces.
func (k *keeper) read(ask *authz.Ask, origin string) (claims authz.Claims, dev bool, err error) {
	if k.authz.Mode() == authz.ModeDev && !strings.Contains(ask.Grant, ".") {
		ask.Tenant = devTenant
		if ask.Grant != "" {
			bare, err := base64.RawURLEncoding.DecodeString(ask.Grant)
			if err != nil {
				return claims, true, &authz.Denied{Reason: plan.ReasonInvalidRequest, Detail: "the ticket is not base64"}
			}
			ask.Grant = string(bare)
		}
		return claims, true, nil
	}
	if k.verifier == nil {
		return claims, false, &authz.Misconfigured{What: "GRANT_KEYS_FILE"}
	}
	if ask.Grant == "" {
		return claims, false, &authz.Denied{Reason: plan.ReasonInvalidRequest, Detail: "there is no ticket"}
	}
	claims, err = k.verifier.Ticket(ask.Grant, ask.Page, origin, ask.At)
	ask.Tenant, ask.Drive = claims.Tenant, claims.Drive
	return claims, false, err
}

func visitorOf(a authz.Actor, grant string, dev bool) Visitor {
	v := Visitor{Page: Page{Tenant: a.Tenant, Drive: a.Drive, ID: a.Page}, User: a.User, Tier: a.Tier, Role: Role(a.Role),
		Agent: a.AgentPage, Origin: a.Origin, Grant: grant, Expires: a.Expires}
	if v.Role == "" {
		v.Role = RoleViewer
		if dev {
			v.Role = RoleOwner
		}
	}
	return v
}

func actorOf(v Visitor) authz.Actor {
	return authz.Actor{Tenant: v.Page.Tenant, User: v.User, Tier: v.Tier, Drive: v.Page.Drive, AgentPage: v.Agent, Page: v.Page.ID,
		Origin: v.Origin, Role: authz.Role(v.Role), Expires: v.Expires}
}

// Recheck asks again: the callout, or whether the grant still holds. A setting that broke meanwhile is the operators'
// matter and cuts nobody before the grace has passed.
func (k *keeper) Recheck(ctx context.Context, v Visitor) error {
	_, err := k.authz.Recheck(ctx, authz.Recheck{Actor: actorOf(v), Until: v.Expires, Now: k.now()})
	var broken *authz.Misconfigured
	if errors.As(err, &broken) {
		return fmt.Errorf("recheck visitor: %w", broken)
	}
	return refusal(err)
}

// Renew takes a fresh grant of the same person for the same page.
func (k *keeper) Renew(ctx context.Context, v Visitor, grant string) (Visitor, error) {
	a, err := k.authz.Recheck(ctx, authz.Recheck{Actor: actorOf(v), Grant: grant, Until: v.Expires, Now: k.now()})
	if err != nil {
		return Visitor{}, refusal(err)
	}
	return visitorOf(a, grant, false), nil
}

// refusal makes a definite no of authz one of ours. Its details, which may describe a forgery, are for the log alone.
func refusal(err error) error {
	var denied *authz.Denied
	var broken *authz.Misconfigured
	switch {
	case err == nil:
		return nil
	case errors.As(err, &denied):
		return &Refused{Reason: denied.Reason, Detail: denied.Detail}
	case errors.As(err, &broken):
		return &Refused{Reason: plan.ReasonMisconfigured, Detail: broken.Error()}
	case errors.Is(err, authz.ErrTicketUsed):
		return &Refused{Reason: plan.ReasonAuthorizationExpired, Message: "This ticket was used before; ask for a new one."}
	case errors.Is(err, authz.ErrTicketExpired):
		return &Refused{Reason: plan.ReasonAuthorizationExpired, Message: "This ticket has expired; ask for a new one."}
	case errors.Is(err, authz.ErrTicketsFull):
		return &Refused{Reason: plan.ReasonRateLimited, Retryable: true, RetryAfter: authz.MaxTicketLife}
	}
	return err
}
