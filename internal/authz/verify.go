package authz

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// MaxToken is the longest token that is looked at, in bytes.
const MaxToken = 8 << 10

// MaxTicketLife is the longest that a terminal's ticket may live.
const MaxTicketLife = 30 * time.Second

// VerifierConfig configures a Verifier.
type VerifierConfig struct {
	// Skew is how far clocks may differ. Defaults to 30 seconds.
	Skew time.Duration
	// MaxLife is the longest that a grant may live from iat to exp. Defaults to 1 hour.
	MaxLife time.Duration
	// Bound are keys, by id, that may sign for one tenant only. Their ids win over those of the key set.
	// Defaults to none.
	Bound map[string]BoundKey
}

// BoundKey is a key that is trusted with one tenant.
type BoundKey struct {
	Public ed25519.PublicKey
	Tenant string
}

// Verifier tells authentic grants and tickets from others. It accepts EdDSA and nothing else, whatever the token's
// header says. It never changes and may be used concurrently.
type Verifier struct {
	keys   Keys
	cfg    VerifierConfig
	parser *jwt.Parser
}

// NewVerifier makes a Verifier that trusts keys.
func NewVerifier(keys Keys, cfg VerifierConfig) (*Verifier, error) {
	var errs []error
	if keys == nil {
		errs = append(errs, errors.New("no keys given"))
	}
	if cfg.Skew < 0 {
		errs = append(errs, fmt.Errorf("skew %s is below zero", cfg.Skew))
	}
	if cfg.MaxLife < 0 {
		errs = append(errs, fmt.Errorf("longest life %s is below zero", cfg.MaxLife))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("grant verifier: %w", err)
	}
	if cfg.Skew == 0 {
		cfg.Skew = 30 * time.Second
	}
	if cfg.MaxLife == 0 {
		cfg.MaxLife = time.Hour
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithoutClaimsValidation(), jwt.WithStrictDecoding())
	return &Verifier{keys: keys, cfg: cfg, parser: parser}, nil
}

// Authentic checks who signed the token and that its claims can be claims at all, for one of these audiences. It looks
// at no time. It returns *Denied (an anomaly) or *Misconfigured.
func (v *Verifier) Authentic(token string, audiences ...string) (Claims, error) {
	var claims Claims
	switch {
	case token == "":
		return claims, &Denied{Reason: forged("").Reason, Detail: "there is no grant"}
	case len(token) > MaxToken:
		return claims, forged("the grant is longer than %d bytes", MaxToken)
	}
	var broken *Misconfigured
	var signer TrustedKey
	parsed, err := v.parser.ParseWithClaims(token, &claims, func(t *jwt.Token) (any, error) {
		var err error
		signer, err = v.keyFor(t)
		errors.As(err, &broken)
		return signer.Public, err
	})
	switch {
	case broken != nil:
		return Claims{}, broken
	case errors.Is(err, ErrUnknownKey):
		return Claims{}, forged("the grant is signed by a key that is not known")
	case errors.Is(err, jwt.ErrTokenMalformed):
		return Claims{}, forged("the grant is malformed")
	case err != nil:
		return Claims{}, forged("the grant's signature does not hold")
	}
	if !slices.ContainsFunc(claims.Audience, func(a string) bool { return slices.Contains(audiences, a) }) {
		return Claims{}, forged("the grant is for another audience")
	}
	if err := claims.shape(); err != nil {
		return Claims{}, err
	}
	if claims.Issuer != signer.Issuer {
		return Claims{}, forged("the grant's key may not sign for this issuer")
	}
	if bound, ok := v.cfg.Bound[keyID(parsed)]; ok && bound.Tenant != claims.Tenant {
		return Claims{}, forged("the grant's key may not sign for this tenant")
	}
	return claims, nil
}

func keyID(t *jwt.Token) string {
	kid, _ := t.Header["kid"].(string)
	return kid
}

func (v *Verifier) keyFor(t *jwt.Token) (TrustedKey, error) {
	kid := keyID(t)
	if kid == "" {
		return TrustedKey{}, ErrUnknownKey
	}
	// "crit" asks a verifier to refuse what it does not understand (RFC 7515, section 4.1.11); we understand none.
	if _, critical := t.Header["crit"]; critical {
		return TrustedKey{}, ErrUnknownKey
	}
	if bound, ok := v.cfg.Bound[kid]; ok {
		return TrustedKey{Public: bound.Public, Issuer: IssuerWeb}, nil
	}
	return v.keys.Key(kid)
}

// Current checks the claims' times against at, with the skew, and that they were not made to last. It returns *Denied.
func (v *Verifier) Current(c Claims, at time.Time) error {
	switch {
	case c.Expires == nil || c.IssuedAt == nil:
		return forged("the grant has no iat or no exp")
	case c.Expires.Sub(c.IssuedAt.Time) > v.cfg.MaxLife:
		return forged("the grant lives longer than %s", v.cfg.MaxLife)
	case c.Expires.Before(c.IssuedAt.Time):
		return forged("the grant ends before it begins")
	case c.IssuedAt.After(at.Add(v.cfg.Skew)):
		return forged("the grant is from the future")
	case !at.Before(c.Expires.Add(v.cfg.Skew)):
		return expired("the grant had expired when the request was first seen")
	}
	return nil
}

// Ticket verifies a terminal's ticket for a page and a web origin ("" = a client without one) at a time: audience,
// life of at most MaxTicketLife, jti, role. That it is used once is for Tickets. It returns *Denied or *Misconfigured.
func (v *Verifier) Ticket(token, page, origin string, at time.Time) (Claims, error) {
	c, err := v.Authentic(token, AudienceTerminal)
	if err != nil {
		return Claims{}, err
	}
	switch {
	case c.Issuer != IssuerWeb:
		return Claims{}, forged("the ticket has another issuer")
	case c.ID == "":
		return Claims{}, forged("the ticket has no jti")
	case c.Page == "" || c.Page != page:
		return Claims{}, forged("the ticket is for another page")
	case c.Origin != origin:
		return Claims{}, forged("the ticket is for another origin")
	case !c.Role.Valid():
		return Claims{}, forged("the ticket has no role")
	}
	if err := v.Current(c, at); err != nil {
		return Claims{}, err
	}
	if c.Expires.Sub(c.IssuedAt.Time) > MaxTicketLife {
		return Claims{}, forged("the ticket lives longer than %s", MaxTicketLife)
	}
	return c, nil
}
