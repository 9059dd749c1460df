package authz_test

import (
	"errors"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/wakebus/wakebus/internal/authz"
)

func TestADerivedKeySignsForItsOwnTenantAlone(t *testing.T) {
	t.Parallel()
	secret := []byte("0123456789abcdef0123456789abcdef")
	key, err := authz.DeriveKey(secret, "robot")
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := authz.DeriveKey(secret, "robot"); again.ID != key.ID || !again.Public().Equal(key.Public()) {
		t.Error("the same secret gives another key")
	}
	if other, _ := authz.DeriveKey(secret, "other"); other.Public().Equal(key.Public()) {
		t.Error("another purpose gives the same key")
	}
	if other, _ := authz.DeriveKey(append(secret, '!'), "robot"); other.ID == key.ID {
		t.Error("keys of two secrets have one id")
	}
	verifier, err := authz.NewVerifier(authz.KeySet{}, authz.VerifierConfig{Bound: map[string]authz.BoundKey{
		key.ID: {Public: key.Public(), Tenant: "robot"}}})
	if err != nil {
		t.Fatal(err)
	}
	for tenant, ok := range map[string]bool{"robot": true, "acme": false, "_": false} {
		token, err := authz.Mint(authz.Claims{Issuer: authz.IssuerWeb, Audience: jwt.ClaimStrings{authz.AudienceGrant}, Subject: "r",
			Tenant: tenant, Verdict: authz.VerdictAllow, IssuedAt: jwt.NewNumericDate(time.Now())}, key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = verifier.Authentic(token, authz.AudienceGrant)
		var denied *authz.Denied
		if ok != (err == nil) || !ok && !errors.As(err, &denied) {
			t.Errorf("for tenant %s: %v", tenant, err)
		}
	}
}
