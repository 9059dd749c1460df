package authz_test

import (
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/plan"
)

func devAsk(header string) authz.Ask {
	return authz.Ask{Action: authz.ActionExec, Tenant: "dev", Grant: header, Conversation: "c1", Job: "j1", At: noon}
}

func TestDevModeFillsInWhatTheHeaderLacks(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeDev, func(c *authz.Config) { c.Verifier = nil })
	for header, want := range map[string]authz.Actor{
		"":                           {Tenant: "dev", User: "dev", Tier: plan.TierFree, Conversation: "c1"},
		`{}`:                         {Tenant: "dev", User: "dev", Tier: plan.TierFree, Conversation: "c1"},
		`{"sub":"ann","tier":"pro"}`: {Tenant: "dev", User: "ann", Tier: plan.TierPro, Conversation: "c1"},
	} {
		got, err := b.authz.Authorize(t.Context(), devAsk(header))
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", header, got, err)
		}
	}
}

func TestDevModeStillDeniesWhatTheHeaderDenies(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeDev, nil)
	for header, want := range map[string]plan.Reason{
		`{"verdict":"no_edit_access"}`: plan.ReasonNoEditAccess,
		`{"tenant":"other"}`:           plan.ReasonInvalidRequest,
		`{"conversation":"c2"}`:        plan.ReasonInvalidRequest,
		`{"job":"j2"}`:                 plan.ReasonInvalidRequest,
		`{"tier":"gold"}`:              plan.ReasonInvalidRequest,
		`{"sub":""} x`:                 plan.ReasonInvalidRequest,
		`{"subject":"ann"}`:            plan.ReasonInvalidRequest,
		`{"exp":1,"iat":0}`:            plan.ReasonAuthorizationExpired,
		`ann`:                          plan.ReasonInvalidRequest,
		`{"sub":"` + strings.Repeat("a", authz.MaxToken) + `"}`: plan.ReasonInvalidRequest,
	} {
		_, err := b.authz.Authorize(t.Context(), devAsk(header))
		if authz.ReasonOf(err) != want {
			t.Errorf("%.40q: %v, want %s", header, err, want)
		}
	}
}

func TestABareHeaderIsWorthNothingOutsideDevMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []authz.Mode{authz.ModeGrant, authz.ModeCallout} {
		b := setup(t, mode, nil)
		for _, header := range []string{"", `{"sub":"ann","verdict":"allow"}`} {
			_, err := b.authz.Authorize(t.Context(), devAsk(header))
			wantReason(t, err, plan.ReasonInvalidRequest)
		}
	}
}

func TestDevModeNeedsEverythingOnLoopback(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"nats://127.0.0.1:4222", "127.0.0.1:4222", "localhost", "LOCALHOST:1", "redis://[::1]:6379/0", "http://127.8.9.1",
		"nats://user:pw@localhost:4222,nats://127.0.0.1:4223", "redis://[::ffff:127.0.0.1]:1", "unix:///run/redis.sock"} {
		if err := authz.CheckDev(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"", "nats://10.0.0.1:4222", "https://api.example.com", "nats://127.0.0.1@example.com", "localhost.example.com",
		"nats://127.0.0.1:4222,nats://example.com", "redis://127.0.0.1:6379?addr=10.0.0.2:6379", "0.0.0.0:4222", "redis://:6379", "http://127.1",
		"nats://u:p,w@127.0.0.1", "::", "http://2130706433/"} {
		if err := authz.CheckDev("127.0.0.1", address); err == nil {
			t.Errorf("%q is on loopback", address)
		}
	}
	if authz.CheckDev() == nil {
		t.Error("no address at all is accepted")
	}
}

// case 87
func TestCase87TheRefusalOfDevModeNamesNoCredentials(t *testing.T) {
	t.Parallel()
	_, err := authz.New(authz.Config{Mode: authz.ModeDev, Endpoints: []string{"redis://user:sentinel@example.com:6379", "nats://sentinel\x7f:1"}})
	if err == nil || strings.Contains(err.Error(), "sentinel") {
		t.Fatal(err)
	}
}

func TestNewReportsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := authz.New(authz.Config{Mode: "open", CalloutTimeout: -1})
	if err == nil || !strings.Contains(err.Error(), "mode") || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("%v", err)
	}
	if _, err := authz.New(authz.Config{Mode: authz.ModeCallout}); err == nil {
		t.Error("callout mode without a caller")
	}
	if _, err := authz.New(authz.Config{Mode: authz.ModeDev}); err == nil {
		t.Error("dev mode without addresses")
	}
	if _, err := authz.NewVerifier(nil, authz.VerifierConfig{Skew: -1, MaxLife: -1}); err == nil ||
		!strings.Contains(err.Error(), "keys") || !strings.Contains(err.Error(), "skew") || !strings.Contains(err.Error(), "life") {
		t.Errorf("%v", err)
	}
}

func FuzzDevHeader(f *testing.F) {
	f.Add(`{"sub":"ann","tier":"pro"}`)
	f.Add(`{"exp":1e400}`)
	f.Add(`{"aud":[1]}`)
	b := setup(f, authz.ModeDev, nil)
	f.Fuzz(func(t *testing.T, header string) {
		actor, err := b.authz.Authorize(t.Context(), devAsk(header))
		if err == nil && (actor.Tenant != "dev" || actor.Conversation != "c1" || !actor.Tier.Valid() || !plan.ValidPrincipal(actor.User)) {
			t.Fatalf("%q became %+v", header, actor)
		}
	})
}

func FuzzCheckDev(f *testing.F) {
	for _, seed := range []string{"127.0.0.1", "nats://[::1", "a://b@c,d", "redis://localhost?addr=x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if authz.CheckDev(address) == nil && !strings.Contains(address, "127.") && !strings.Contains(strings.ToLower(address), "localhost") &&
			!strings.Contains(address, ":") && !strings.Contains(address, "unix") {
			t.Fatalf("%q is taken for loopback", address)
		}
	})
}
