package authz_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/plan"
)

func sign(t *testing.T, method jwt.SigningMethod, header map[string]any, secret any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, grant(nil))
	for k, v := range header {
		token.Header[k] = v
	}
	signed, err := token.SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestAlgorithmConfusionIsRefused(t *testing.T) {
	t.Parallel()
	k := key(t, "k1", 1)
	public, _ := k.Private.Public().(ed25519.PublicKey)
	elliptic256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := mint(t, grant(nil), k)
	parts := strings.Split(good, ".")
	enc := base64.RawURLEncoding.EncodeToString
	kid := map[string]any{"kid": "k1"}
	v := verifier(t, keySet(t, k))
	if _, err := v.Authentic(good, authz.AudienceGrant); err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"HS256 over the public key":  sign(t, jwt.SigningMethodHS256, kid, []byte(public)),
		"HS512 over the public key":  sign(t, jwt.SigningMethodHS512, kid, []byte(public)),
		"none":                       sign(t, jwt.SigningMethodNone, kid, jwt.UnsafeAllowNoneSignatureType),
		"none in capitals":           enc([]byte(`{"alg":"NONE","kid":"k1"}`)) + "." + parts[1] + ".",
		"ES256":                      sign(t, jwt.SigningMethodES256, kid, elliptic256),
		"another key under this kid": mint(t, grant(nil), key(t, "k1", 2)),
		"an unknown kid":             mint(t, grant(nil), key(t, "k9", 1)),
		"no kid":                     sign(t, jwt.SigningMethodEdDSA, nil, k.Private),
		"a kid that is no text":      sign(t, jwt.SigningMethodEdDSA, map[string]any{"kid": 7}, k.Private),
		"a critical extension":       sign(t, jwt.SigningMethodEdDSA, map[string]any{"kid": "k1", "crit": []string{"b64"}}, k.Private),
		"a key of its own":           sign(t, jwt.SigningMethodEdDSA, map[string]any{"kid": "k9", "jwk": map[string]any{"kty": "OKP"}}, key(t, "k9", 3).Private),
		"no signature":               parts[0] + "." + parts[1] + ".",
		"two parts":                  parts[0] + "." + parts[1],
		"four parts":                 good + ".x",
		"padded":                     parts[0] + "." + parts[1] + "." + parts[2] + "=",
		"the header of another":      enc([]byte(`{"alg":"EdDSA","kid":"k1","typ":"x"}`)) + "." + parts[1] + "." + parts[2],
		"nothing":                    "",
		"too long":                   strings.Repeat("a", authz.MaxToken+1),
	} {
		_, err := v.Authentic(token, authz.AudienceGrant)
		if authz.ReasonOf(err) != plan.ReasonInvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoChangedByteOfAGrantIsAccepted(t *testing.T) {
	t.Parallel()
	k := key(t, "k1", 1)
	v := verifier(t, keySet(t, k))
	good := mint(t, grant(nil), k)
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(good)-1).Draw(t, "at")
		b := rapid.Byte().Draw(t, "byte")
		if good[i] == b {
			t.Skip("the same byte")
		}
		if _, err := v.Authentic(good[:i]+string([]byte{b})+good[i+1:], authz.AudienceGrant); err == nil {
			t.Fatalf("byte %d became %q", i, b)
		}
	})
}

func TestATicketIsBoundToPageOriginAndThirtySeconds(t *testing.T) {
	t.Parallel()
	k := key(t, "k1", 1)
	v := verifier(t, keySet(t, k))
	const page, origin = "p1", "https://app.example"
	c, err := v.Ticket(mint(t, ticket(nil), k), page, origin, noon)
	if err != nil || c.Role != authz.RoleOwner {
		t.Fatalf("%+v, %v", c, err)
	}
	for name, change := range map[string]func(*authz.Claims){
		"a grant":           func(c *authz.Claims) { c.Audience = jwt.ClaimStrings{"wakebus"} },
		"an operator's":     func(c *authz.Claims) { c.Issuer = "ops" },
		"another page":      func(c *authz.Claims) { c.Page = "p2" },
		"no page":           func(c *authz.Claims) { c.Page = "" },
		"another origin":    func(c *authz.Claims) { c.Origin = "https://app.example.evil" },
		"no origin":         func(c *authz.Claims) { c.Origin = "" },
		"no jti":            func(c *authz.Claims) { c.ID = "" },
		"no role":           func(c *authz.Claims) { c.Role = "" },
		"a strange role":    func(c *authz.Claims) { c.Role = "root" },
		"a second too long": func(c *authz.Claims) { c.Expires = jwt.NewNumericDate(noon.Add(31 * time.Second)) },
	} {
		if _, err := v.Ticket(mint(t, ticket(change), k), page, origin, noon); authz.ReasonOf(err) != plan.ReasonInvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = v.Ticket(mint(t, ticket(nil), k), page, origin, noon.Add(time.Minute))
	wantReason(t, err, plan.ReasonAuthorizationExpired)
}

func TestATicketIsUsedOnce(t *testing.T) {
	t.Parallel()
	now := noon
	tickets, err := authz.NewTickets(authz.TicketsConfig{Max: 2, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	exp := noon.Add(30 * time.Second)
	steps := []struct {
		after time.Duration
		jti   string
		want  error
	}{
		{0, "a", nil}, {0, "a", authz.ErrTicketUsed}, {0, "", authz.ErrTicketUsed}, {0, "b", nil}, {0, "c", authz.ErrTicketsFull},
		{59 * time.Second, "a", authz.ErrTicketUsed}, {60 * time.Second, "a", authz.ErrTicketExpired},
	}
	for _, s := range steps {
		now = noon.Add(s.after)
		if err := tickets.Use(s.jti, exp); !errors.Is(err, s.want) {
			t.Fatalf("%+v: %v", s, err)
		}
	}
	if tickets.Len() != 0 {
		t.Fatalf("%d are still remembered", tickets.Len())
	}
	if err := tickets.Use("c", exp.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
}

func TestOfManyUsersOfOneTicketOneWins(t *testing.T) {
	t.Parallel()
	tickets, err := authz.NewTickets(authz.TicketsConfig{Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error)
	for range 16 {
		go func() { results <- tickets.Use("a", noon.Add(time.Second)) }()
	}
	won := 0
	for range 16 {
		if err := <-results; err == nil {
			won++
		}
	}
	if won != 1 {
		t.Fatalf("%d won", won)
	}
}

func FuzzAuthentic(f *testing.F) {
	k := key(f, "k1", 1)
	v := verifier(f, keySet(f, k))
	good := mint(f, grant(nil), k)
	f.Add(good)
	f.Add(good[:len(good)-2])
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		c, err := v.Authentic(token, authz.AudienceGrant)
		if err == nil && token != good {
			t.Fatalf("accepted %q as %+v", token, c)
		}
		if err != nil && authz.ReasonOf(err) != plan.ReasonInvalidRequest {
			t.Fatal(err)
		}
	})
}
