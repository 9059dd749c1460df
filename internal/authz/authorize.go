package authz

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// Mode is how requests are authorised.
type Mode string

// The closed set of modes.
const (
	ModeGrant   Mode = "grant"
	ModeCallout Mode = "callout"
	ModeDev     Mode = "dev"
)

// Valid reports whether m is one of the closed set.
func (m Mode) Valid() bool { return m == ModeGrant || m == ModeCallout || m == ModeDev }

// Config configures an Authorizer.
type Config struct {
	// Mode defaults to grant.
	Mode Mode
	// Verifier checks grants; required but in dev mode. When it is missing everything is misconfigured.
	// Defaults to none.
	Verifier *Verifier
	// Caller asks the web app; required in callout mode. Defaults to none.
	Caller Caller
	// CalloutTimeout bounds one question. Defaults to 2 seconds.
	CalloutTimeout time.Duration
	// Switch is the kill switch. Defaults to off.
	Switch Switch
	// Endpoints are where NATS, Redis and Sprites are; in dev mode all must be on loopback. Defaults to none.
	Endpoints []string
}

func (c Config) validate() error {
	var errs []error
	if !c.Mode.Valid() {
		errs = append(errs, fmt.Errorf("mode %q is not known", c.Mode))
	}
	if c.CalloutTimeout < 0 {
		errs = append(errs, fmt.Errorf("callout timeout %s is below zero", c.CalloutTimeout))
	}
	if c.Mode == ModeCallout && c.Caller == nil {
		errs = append(errs, errors.New("callout mode needs a caller"))
	}
	if c.Mode == ModeDev {
		if err := CheckDev(c.Endpoints...); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Authorizer decides whether a request may be served. It keeps nothing and may be used concurrently. Its methods block
// only for the callout, at most Config.CalloutTimeout.
type Authorizer struct {
	cfg Config
}

// New makes an Authorizer. Without a Verifier it starts, so that a worker whose switch is off can run without keys,
// and answers *Misconfigured.
func New(cfg Config) (*Authorizer, error) {
	if cfg.Mode == "" {
		cfg.Mode = ModeGrant
	}
	if cfg.CalloutTimeout == 0 {
		cfg.CalloutTimeout = 2 * time.Second
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("authorizer: %w", err)
	}
	return &Authorizer{cfg: cfg}, nil
}

// Mode is how this authorizer decides.
func (a *Authorizer) Mode() Mode { return a.cfg.Mode }

// Authorize decides on a request that is seen for the first time. It returns who asks, or *Denied, *Misconfigured, or
// an error that wraps ErrUnavailable (ask again later). For an end an authentic grant for this session is enough.
func (a *Authorizer) Authorize(ctx context.Context, ask Ask) (Actor, error) {
	if !ask.Action.Valid() || ask.Action == ActionReplay {
		return Actor{}, &Denied{Reason: plan.ReasonInvalidRequest, Detail: "the action is not known"}
	}
	if ask.Action != ActionEnd {
		if err := a.cfg.Switch.Check(); err != nil {
			return Actor{}, err
		}
	}
	claims, err := a.claims(ask)
	if err != nil {
		return Actor{}, err
	}
	if err := claims.fits(ask); err != nil {
		return Actor{}, err
	}
	if ask.Action == ActionEnd {
		return claims.actor(), nil
	}
	if err := a.current(claims, ask.At); err != nil {
		return Actor{}, err
	}
	if a.cfg.Mode == ModeCallout {
		return a.call(ctx, ask.Action, claims.actor(), ask.Job)
	}
	if claims.Verdict != VerdictAllow {
		return Actor{}, &Denied{Reason: verdictReason(claims.Verdict), Detail: "the grant's verdict"}
	}
	return claims.actor(), nil
}

// Replay decides on an operator's replay of a job whose first run was original's. The operator's grant opens the way
// for this job alone; in callout mode the web app is asked about the original actor again.
func (a *Authorizer) Replay(ctx context.Context, ask Ask, original Actor, action Action) (Actor, error) {
	if err := a.cfg.Switch.Check(); err != nil {
		return Actor{}, err
	}
	ask.Action = ActionReplay
	claims, err := a.claims(ask)
	if err != nil {
		return Actor{}, err
	}
	switch {
	case claims.Issuer != IssuerOps:
		return Actor{}, forged("a replay needs an operator's grant")
	case claims.Tenant != ask.Tenant || original.Tenant != ask.Tenant:
		return Actor{}, forged("the grant is for another tenant")
	case ask.Job == "" || (claims.Job != ask.Job && claims.Open != ask.Job):
		return Actor{}, forged("the grant is for another job")
	}
	if err := a.current(claims, ask.At); err != nil {
		return Actor{}, err
	}
	if claims.Verdict != VerdictAllow {
		return Actor{}, &Denied{Reason: verdictReason(claims.Verdict), Detail: "the grant's verdict"}
	}
	original.Operator = claims.Subject
	if a.cfg.Mode == ModeCallout {
		return a.call(ctx, action, original, ask.Job)
	}
	return original, nil
}

// claims reads the request's grant by mode.
func (a *Authorizer) claims(ask Ask) (Claims, error) {
	if a.cfg.Mode == ModeDev && (ask.Grant == "" || ask.Grant[0] == '{') {
		return devClaims(ask)
	}
	if a.cfg.Verifier == nil && a.cfg.Mode == ModeDev {
		return Claims{}, forged("the grant is neither bare JSON nor signed by a key of this dev instance")
	}
	if a.cfg.Verifier == nil {
		return Claims{}, &Misconfigured{What: "GRANT_KEYS_FILE"}
	}
	audiences := []string{AudienceGrant}
	if ask.Action == ActionTerminal || (ask.Action == ActionEnd && ask.Page != "") {
		audiences = append(audiences, AudienceTerminal)
	}
	return a.cfg.Verifier.Authentic(ask.Grant, audiences...)
}

func (a *Authorizer) current(c Claims, at time.Time) error {
	if a.cfg.Mode == ModeDev && c.Expires == nil {
		return nil
	}
	if a.cfg.Verifier == nil {
		if c.Expires.Before(at) {
			return expired("the grant had expired when the request was first seen")
		}
		return nil
	}
	return a.cfg.Verifier.Current(c, at)
}
