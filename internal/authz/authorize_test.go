package authz_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/plan"
)

func TestAGoodGrantSaysWhoAsks(t *testing.T) {
	t.Parallel()
	b := setup(t, "", nil)
	got, err := b.authz.Authorize(t.Context(), b.ask(t, grant(nil), nil))
	want := authz.Actor{Tenant: "acme", User: "ann", Tier: plan.TierPro, Drive: "d1", AgentPage: "ap", Conversation: "c1",
		Expires: noon.Add(4 * time.Minute), ID: "g1"}
	if err != nil || !got.Expires.Equal(want.Expires) {
		t.Fatalf("%+v, %v", got, err)
	}
	got.Expires = want.Expires
	if got != want {
		t.Fatalf("%+v", got)
	}
}

func TestAGrantOpensOnlyWhatItIsFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		claims func(*authz.Claims)
		ask    func(*authz.Ask)
	}{
		"another tenant's subject":    {nil, func(a *authz.Ask) { a.Tenant = "other" }},
		"a subject without a tenant":  {nil, func(a *authz.Ask) { a.Tenant = plan.NoTenant }},
		"another conversation":        {nil, func(a *authz.Ask) { a.Conversation = "c2" }},
		"a page":                      {nil, func(a *authz.Ask) { a.Conversation, a.Page = "", "c1" }},
		"no session":                  {nil, func(a *authz.Ask) { a.Conversation = "" }},
		"two sessions":                {nil, func(a *authz.Ask) { a.Page = "p" }},
		"another drive":               {nil, func(a *authz.Ask) { a.Drive = "d2" }},
		"a drive it has none of":      {func(c *authz.Claims) { c.Drive = "" }, nil},
		"another job":                 {nil, func(a *authz.Ask) { a.Job = "j2" }},
		"a job, when bound to none":   {func(c *authz.Claims) { c.Job = "" }, nil},
		"another body":                {func(c *authz.Claims) { c.Request = "ffff" }, nil},
		"a terminal's open":           {nil, func(a *authz.Ask) { a.Action = authz.ActionTerminal }},
		"an operator's":               {func(c *authz.Claims) { c.Issuer = "ops" }, nil},
		"an issuer nobody knows":      {func(c *authz.Claims) { c.Issuer = "evil" }, nil},
		"another audience":            {func(c *authz.Claims) { c.Audience = jwt.ClaimStrings{"other"} }, nil},
		"no audience":                 {func(c *authz.Claims) { c.Audience = nil }, nil},
		"a ticket":                    {func(c *authz.Claims) { c.Audience = jwt.ClaimStrings{"wakebus-terminal"} }, nil},
		"no user":                     {func(c *authz.Claims) { c.Subject = "" }, nil},
		"a strange tier":              {func(c *authz.Claims) { c.Tier = "gold" }, nil},
		"a tenant that is no token":   {func(c *authz.Claims) { c.Tenant = "a.>" }, func(a *authz.Ask) { a.Tenant = "a.>" }},
		"no exp":                      {func(c *authz.Claims) { c.Expires = nil }, nil},
		"no iat":                      {func(c *authz.Claims) { c.IssuedAt = nil }, nil},
		"a long life":                 {func(c *authz.Claims) { c.Expires = jwt.NewNumericDate(noon.Add(2 * time.Hour)) }, nil},
		"an end before its beginning": {func(c *authz.Claims) { c.Expires = jwt.NewNumericDate(noon.Add(-2 * time.Minute)) }, func(a *authz.Ask) { a.At = noon.Add(-5 * time.Minute) }},
		"made in the future":          {func(c *authz.Claims) { c.IssuedAt = jwt.NewNumericDate(noon.Add(31 * time.Second)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, authz.ModeGrant, nil)
			_, err := b.authz.Authorize(t.Context(), b.ask(t, grant(tt.claims), tt.ask))
			if denied := wantReason(t, err, plan.ReasonInvalidRequest); !denied.Anomaly {
				t.Error("it is no anomaly")
			}
		})
	}
}

func TestABoundBodyMustBeTheBody(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeGrant, nil)
	if _, err := b.authz.Authorize(t.Context(), b.ask(t, grant(func(c *authz.Claims) { c.Request = "ab12" }), nil)); err != nil {
		t.Fatal(err)
	}
}

func TestTheVerdictsReasonIsTheDenials(t *testing.T) {
	t.Parallel()
	for verdict, want := range map[string]plan.Reason{
		"no_edit_access": plan.ReasonNoEditAccess, "app_admin_required": plan.ReasonAppAdminRequired, "drive_not_found": plan.ReasonDriveNotFound,
		"no_drive_access": plan.ReasonNoDriveAccess, "no_agent_access": plan.ReasonNoAgentAccess, "page_not_found": plan.ReasonPageNotFound,
		"insufficient_role": plan.ReasonInsufficientRole,
		"":                  plan.ReasonInsufficientRole, "Allow": plan.ReasonInsufficientRole, "concurrency_limit": plan.ReasonInsufficientRole,
	} {
		b := setup(t, authz.ModeGrant, nil)
		_, err := b.authz.Authorize(t.Context(), b.ask(t, grant(func(c *authz.Claims) { c.Verdict = verdict }), nil))
		if denied := wantReason(t, err, want); denied.Anomaly {
			t.Errorf("%q: an honest no is an anomaly", verdict)
		}
	}
}

func TestExpiryIsComparedWithTheStreamTime(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeGrant, nil)
	exp := noon.Add(4 * time.Minute)
	for at, ok := range map[time.Time]bool{
		noon: true, exp: true, exp.Add(30*time.Second - 1): true, exp.Add(30 * time.Second): false,
	} {
		_, err := b.authz.Authorize(t.Context(), b.ask(t, grant(nil), func(a *authz.Ask) { a.At = at }))
		if ok && err != nil {
			t.Errorf("at %s: %v", at, err)
		}
		if !ok {
			wantReason(t, err, plan.ReasonAuthorizationExpired)
		}
	}
}

func TestCase31AnEndNeedsNothingButAnAuthenticGrant(t *testing.T) {
	t.Parallel()
	off := func(c *authz.Config) { c.Switch = authz.Switch{} }
	b := setup(t, authz.ModeCallout, off)
	b.caller.answer = `{"allow":false}`
	end := func(a *authz.Ask) { a.Action, a.At, a.Job = authz.ActionEnd, noon.Add(24*time.Hour), "other" }
	revoked := grant(func(c *authz.Claims) { c.Verdict = "no_drive_access" })
	if _, err := b.authz.Authorize(t.Context(), b.ask(t, revoked, end)); err != nil {
		t.Fatal(err)
	}
	if len(b.caller.asked) != 0 {
		t.Error("the web app was asked")
	}
	if _, err := b.authz.Authorize(t.Context(), b.ask(t, grant(func(c *authz.Claims) { c.Issuer = "ops" }), end)); err != nil {
		t.Errorf("an operator may not end: %v", err)
	}
	for name, change := range map[string]func(*authz.Ask){
		"another tenant":       func(a *authz.Ask) { end(a); a.Tenant = "other" },
		"another conversation": func(a *authz.Ask) { end(a); a.Conversation = "c2" },
		"another drive":        func(a *authz.Ask) { end(a); a.Drive = "d2" },
		"no grant":             func(a *authz.Ask) { end(a); a.Grant = "" },
		"a forged one":         func(a *authz.Ask) { end(a); a.Grant = mint(t, grant(nil), key(t, "k1", 2)) },
	} {
		if _, err := b.authz.Authorize(t.Context(), b.ask(t, grant(nil), change)); authz.ReasonOf(err) != plan.ReasonInvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATicketIsTheGrantOfATerminalsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeGrant, nil)
	open := func(a *authz.Ask) { a.Action, a.Conversation, a.Page, a.Job = authz.ActionTerminal, "", "p1", "open-1" }
	got, err := b.authz.Authorize(t.Context(), b.ask(t, ticket(nil), open))
	if err != nil || got.Role != authz.RoleOwner || got.Page != "p1" || got.Origin != "https://app.example" {
		t.Fatalf("%+v, %v", got, err)
	}
	bound := ticket(func(c *authz.Claims) { c.Open = "open-2" })
	_, err = b.authz.Authorize(t.Context(), b.ask(t, bound, open))
	wantReason(t, err, plan.ReasonInvalidRequest)
}

func TestCase30TheSwitchDeniesBeforeAnythingIsRead(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeCallout, func(c *authz.Config) { c.Switch, c.Verifier = authz.Switch{}, nil })
	for _, action := range []authz.Action{authz.ActionExec, authz.ActionTerminal, authz.ActionFileRead, authz.ActionFileWrite} {
		_, err := b.authz.Authorize(t.Context(), authz.Ask{Action: action, Grant: "rubbish"})
		wantReason(t, err, plan.ReasonKillSwitchOff)
	}
	if len(b.caller.asked) != 0 {
		t.Error("the web app was asked")
	}
}

func TestCase79EitherSwitchOffWinsAndABrokenSettingIsNotOff(t *testing.T) {
	t.Parallel()
	broken := errors.New("cannot read")
	read := func(v bool, err error) func() (bool, error) { return func() (bool, error) { return v, err } }
	fleet := func(off bool) func() bool { return func() bool { return off } }
	for name, tt := range map[string]struct {
		is   authz.Switch
		want plan.Reason
	}{
		"on":             {authz.Switch{Enabled: read(true, nil), FleetOff: fleet(false)}, ""},
		"off here":       {authz.Switch{Enabled: read(false, nil), FleetOff: fleet(false)}, plan.ReasonKillSwitchOff},
		"off everywhere": {authz.Switch{Enabled: read(true, nil), FleetOff: fleet(true)}, plan.ReasonKillSwitchOff},
		"broken":         {authz.Switch{Enabled: read(true, broken)}, plan.ReasonMisconfigured},
		"broken and off": {authz.Switch{Enabled: read(false, broken), FleetOff: fleet(true)}, plan.ReasonKillSwitchOff},
		"nothing said":   {authz.Switch{}, plan.ReasonKillSwitchOff},
	} {
		err := tt.is.Check()
		if got := authz.ReasonOf(err); got != tt.want {
			t.Errorf("%s: %v", name, err)
		}
		if tt.want == plan.ReasonMisconfigured && !errors.Is(err, broken) {
			t.Errorf("%s: the cause is lost: %v", name, err)
		}
	}
}

func TestWithoutKeysEverythingIsMisconfigured(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeGrant, func(c *authz.Config) { c.Verifier = nil })
	_, err := b.authz.Authorize(t.Context(), b.ask(t, grant(nil), nil))
	if authz.ReasonOf(err) != plan.ReasonMisconfigured {
		t.Fatal(err)
	}
}

func TestAnUnknownActionIsDenied(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeGrant, nil)
	for _, action := range []authz.Action{"", "sudo", authz.ActionReplay} {
		_, err := b.authz.Authorize(t.Context(), b.ask(t, grant(nil), func(a *authz.Ask) { a.Action = action }))
		wantReason(t, err, plan.ReasonInvalidRequest)
	}
}

// cases 84, 87
func TestCase87NoErrorQuotesTheGrant(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeGrant, nil)
	for _, token := range []string{"sentinel-token", "a.sentinel.c", "eyJhbGciOiJub25lIn0.sentinel.", `{"sub":"sentinel"}`,
		mint(t, grant(func(c *authz.Claims) { c.Subject, c.Tenant = "sentinel", "sentinel" }), key(t, "sentinel", 9))} {
		_, err := b.authz.Authorize(t.Context(), b.ask(t, grant(nil), func(a *authz.Ask) { a.Grant = token }))
		if err == nil || strings.Contains(err.Error(), "sentinel") || strings.Contains(err.Error(), token) {
			t.Errorf("%v", err)
		}
	}
}
