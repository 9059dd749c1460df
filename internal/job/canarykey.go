package job

import (
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/plan"
)

// canaryKeys derives the canary's keys from the session secrets, so that any worker can check what any other has minted
// and no key has to be handed out. They open the canary's own tenant and nothing else. Without a usable secret there is
// no canary and no key.
func canaryKeys(c config.Config) (map[string]authz.BoundKey, CanaryGrant, error) {
	bound := map[string]authz.BoundKey{}
	var signer authz.SigningKey
	for _, secret := range []config.Secret{c.SessionSecretPrevious, c.SessionSecret} {
		if len(secret.Reveal()) < config.MinSessionSecret {
			continue
		}
		key, err := authz.DeriveKey([]byte(secret.Reveal()), CanaryTenant)
		if err != nil {
			return nil, nil, fmt.Errorf("canary: %w", err)
		}
		bound[key.ID] = authz.BoundKey{Public: key.Public(), Tenant: CanaryTenant}
		signer = key
	}
	if len(bound) == 0 {
		return nil, nil, nil
	}
	return bound, func(job string, now time.Time, life time.Duration) (string, error) {
		return authz.Mint(authz.Claims{
			Issuer: authz.IssuerWeb, Audience: jwt.ClaimStrings{authz.AudienceGrant}, Subject: canaryUser, Tenant: CanaryTenant,
			Tier: plan.TierFree, Conversation: canaryConversation, Job: job, Verdict: authz.VerdictAllow,
			IssuedAt: jwt.NewNumericDate(now), Expires: jwt.NewNumericDate(now.Add(life)),
		}, signer)
	}, nil
}
