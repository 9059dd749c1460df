package authz_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/plan"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// key is the same for a name in every run of the tests.
func key(t testing.TB, kid string, seed byte) authz.SigningKey {
	t.Helper()
	return keyOf(t, kid, authz.IssuerWeb, seed)
}

func keyOf(t testing.TB, kid, issuer string, seed byte) authz.SigningKey {
	t.Helper()
	k, err := authz.GenerateKey(kid, issuer, bytes.NewReader(bytes.Repeat([]byte{seed}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func keySet(t testing.TB, keys ...authz.SigningKey) authz.KeySet {
	t.Helper()
	data, err := authz.MarshalKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	set, err := authz.ParseKeySet(data)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func verifier(t testing.TB, keys authz.Keys) *authz.Verifier {
	t.Helper()
	v, err := authz.NewVerifier(keys, authz.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func grant(change func(*authz.Claims)) authz.Claims {
	c := authz.Claims{Issuer: "web", Audience: jwt.ClaimStrings{"wakebus"}, IssuedAt: jwt.NewNumericDate(noon.Add(-time.Minute)),
		Expires: jwt.NewNumericDate(noon.Add(4 * time.Minute)), ID: "g1", Subject: "ann", Tenant: "acme", Tier: plan.TierPro,
		Drive: "d1", AgentPage: "ap", Conversation: "c1", Job: "j1", Verdict: "allow"}
	if change != nil {
		change(&c)
	}
	return c
}

func ticket(change func(*authz.Claims)) authz.Claims {
	return grant(func(c *authz.Claims) {
		c.Audience, c.Conversation, c.Page, c.Job = jwt.ClaimStrings{"wakebus-terminal"}, "", "p1", ""
		c.Origin, c.Role, c.Expires = "https://app.example", authz.RoleOwner, jwt.NewNumericDate(c.IssuedAt.Add(30*time.Second))
		c.IssuedAt, c.Expires = jwt.NewNumericDate(noon), jwt.NewNumericDate(noon.Add(30*time.Second))
		if change != nil {
			change(c)
		}
	})
}

func mint(t testing.TB, c authz.Claims, k authz.SigningKey) string {
	t.Helper()
	token, err := authz.Mint(c, k)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// caller is the web app.
type caller struct {
	mu     sync.Mutex
	answer string
	err    error
	asked  []string
	hang   bool
}

var _ authz.Caller = (*caller)(nil)

func (c *caller) CanRunCode(ctx context.Context, question []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, string(question))
	if c.hang {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return []byte(c.answer), c.err
}

func on() authz.Switch { return authz.Switch{Enabled: func() (bool, error) { return true, nil }} }

type bundle struct {
	key    authz.SigningKey
	ops    authz.SigningKey // operators' grants are signed by a key of their own
	caller *caller
	authz  *authz.Authorizer
}

func setup(t testing.TB, mode authz.Mode, change func(*authz.Config)) bundle {
	t.Helper()
	b := bundle{key: key(t, "k1", 1), ops: keyOf(t, "ops1", authz.IssuerOps, 9), caller: &caller{answer: `{"allow":true,"tier":"business"}`}}
	cfg := authz.Config{Mode: mode, Verifier: verifier(t, keySet(t, b.key, b.ops)), Caller: b.caller, Switch: on(),
		Endpoints: []string{"nats://127.0.0.1:4222", "redis://[::1]:6379", "http://localhost:8080"}}
	if change != nil {
		change(&cfg)
	}
	a, err := authz.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.authz = a
	return b
}

func (b bundle) ask(t testing.TB, claims authz.Claims, change func(*authz.Ask)) authz.Ask {
	t.Helper()
	signer := b.key
	if claims.Issuer == authz.IssuerOps {
		signer = b.ops
	}
	ask := authz.Ask{Action: authz.ActionExec, Tenant: "acme", Grant: mint(t, claims, signer), BodySHA: "ab12", Conversation: "c1",
		Drive: "d1", Job: "j1", At: noon}
	if change != nil {
		change(&ask)
	}
	return ask
}

func wantReason(t testing.TB, err error, reason plan.Reason) *authz.Denied {
	t.Helper()
	var denied *authz.Denied
	if !errors.As(err, &denied) || denied.Reason != reason || authz.ReasonOf(err) != reason {
		t.Fatalf("got %v, want a denial with %s", err, reason)
	}
	return denied
}
