package authz

import (
	"github.com/golang-jwt/jwt/v5"

	"github.com/wakebus/wakebus/internal/plan"
)

// The fixed values of claims.
const (
	IssuerWeb        = "web"
	IssuerOps        = "ops"
	AudienceGrant    = "wakebus"
	AudienceTerminal = "wakebus-terminal"
	VerdictAllow     = "allow"
)

// Claims is the payload of a grant or a ticket.
type Claims struct {
	Issuer       string           `json:"iss,omitempty"`
	Audience     jwt.ClaimStrings `json:"aud,omitempty"`
	IssuedAt     *jwt.NumericDate `json:"iat,omitempty"`
	Expires      *jwt.NumericDate `json:"exp,omitempty"`
	ID           string           `json:"jti,omitempty"`
	Subject      string           `json:"sub,omitempty"`
	Tenant       string           `json:"tenant,omitempty"`
	Tier         plan.Tier        `json:"tier,omitempty"`
	Drive        string           `json:"drive,omitempty"`
	Origin       string           `json:"origin,omitempty"`
	AgentPage    string           `json:"agent_page,omitempty"`
	Conversation string           `json:"conversation,omitempty"`
	Page         string           `json:"page,omitempty"`
	Job          string           `json:"job,omitempty"`
	Open         string           `json:"open,omitempty"`
	// Verdict is allow or a reason code.
	Verdict string `json:"verdict,omitempty"`
	// Request is the hex SHA-256 of the body that the grant is for; optional.
	Request string `json:"req,omitempty"`
	// Role goes with tickets.
	Role Role `json:"role,omitempty"`
}

// GetExpirationTime and its five sisters make Claims a jwt.Claims. The times are compared by this package, against the
// request's stream time.
func (c Claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.Expires, nil }

// GetIssuedAt returns iat.
func (c Claims) GetIssuedAt() (*jwt.NumericDate, error) { return c.IssuedAt, nil }

// GetNotBefore returns nothing: the claim is not used.
func (c Claims) GetNotBefore() (*jwt.NumericDate, error) { return nil, nil }

// GetIssuer returns iss.
func (c Claims) GetIssuer() (string, error) { return c.Issuer, nil }

// GetSubject returns sub.
func (c Claims) GetSubject() (string, error) { return c.Subject, nil }

// GetAudience returns aud.
func (c Claims) GetAudience() (jwt.ClaimStrings, error) { return c.Audience, nil }

func (c Claims) actor() Actor {
	a := Actor{Tenant: c.Tenant, User: c.Subject, Tier: c.Tier, Drive: c.Drive, AgentPage: c.AgentPage,
		Conversation: c.Conversation, Page: c.Page, Origin: c.Origin, Role: c.Role, ID: c.ID}
	if a.Tier == "" {
		a.Tier = plan.TierFree
	}
	if c.Expires != nil {
		a.Expires = c.Expires.Time
	}
	return a
}

// shape reports what no grant may look like, whatever it is for.
func (c Claims) shape() error {
	switch {
	case !plan.ValidPrincipal(c.Subject):
		return forged("the grant's sub is no user")
	case !plan.ValidToken(c.Tenant):
		return forged("the grant's tenant is no tenant")
	case c.Tier != "" && !c.Tier.Valid():
		return forged("the grant's tier is not known")
	case c.Drive != "" && !plan.ValidPrincipal(c.Drive):
		return forged("the grant's drive is not valid")
	case c.AgentPage != "" && !plan.ValidPrincipal(c.AgentPage):
		return forged("the grant's agent_page is not valid")
	case c.Conversation != "" && c.Page != "":
		return forged("the grant names a conversation and a page")
	case c.Role != "" && !c.Role.Valid():
		return forged("the grant's role is not known")
	}
	return nil
}
