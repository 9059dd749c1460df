package authz_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/plan"
)

func TestTheCalloutSaysWhetherAndTheGrantSaysWho(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeCallout, nil)
	got, err := b.authz.Authorize(t.Context(), b.ask(t, grant(func(c *authz.Claims) { c.Verdict = "" }), nil))
	if err != nil || got.User != "ann" || got.Tier != plan.TierBusiness {
		t.Fatalf("%+v, %v", got, err)
	}
	var asked map[string]any
	if err := json.Unmarshal([]byte(b.caller.asked[0]), &asked); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{"v": 1.0, "action": "exec", "tenant": "acme", "user": "ann", "conversation_id": "c1",
		"drive_id": "d1", "agent_page_id": "ap", "job_id": "j1"} {
		if asked[field] != want {
			t.Errorf("%s is %v", field, asked[field])
		}
	}
	if len(asked) != 8 {
		t.Errorf("asked %v", asked)
	}
}

func TestTheCalloutsNoIsADenial(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]plan.Reason{
		`{"allow":false,"reason":"no_edit_access"}`: plan.ReasonNoEditAccess,
		`{"allow":false}`: plan.ReasonInsufficientRole,
		`{"allow":false,"reason":"kill_switch_off"}`:   plan.ReasonInsufficientRole,
		`{"allow":false,"reason":"rubbish","more":[]}`: plan.ReasonInsufficientRole,
	} {
		b := setup(t, authz.ModeCallout, nil)
		b.caller.answer = answer
		_, err := b.authz.Authorize(t.Context(), b.ask(t, grant(nil), nil))
		wantReason(t, err, want)
	}
}

func TestNoAnswerAndNonsenseAreAskedAgainAndNeverADenial(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*caller){
		"unreachable":     func(c *caller) { c.err = errors.New("no responders") },
		"too slow":        func(c *caller) { c.hang = true },
		"empty":           func(c *caller) { c.answer = "" },
		"no JSON":         func(c *caller) { c.answer = "yes" },
		"neither":         func(c *caller) { c.answer = `{}` },
		"null":            func(c *caller) { c.answer = `{"allow":null}` },
		"a strange tier":  func(c *caller) { c.answer = `{"allow":true,"tier":"gold"}` },
		"two answers":     func(c *caller) { c.answer = `{"allow":true}{"allow":false}` },
		"a word for true": func(c *caller) { c.answer = `{"allow":"true"}` },
		"too large":       func(c *caller) { c.answer = `{"allow":true,"x":"` + string(make([]byte, 5000)) + `"}` },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, authz.ModeCallout, func(c *authz.Config) { c.CalloutTimeout = 10 * time.Millisecond })
			change(b.caller)
			_, err := b.authz.Authorize(t.Context(), b.ask(t, grant(nil), nil))
			var denied *authz.Denied
			if !errors.Is(err, authz.ErrUnavailable) || errors.As(err, &denied) || authz.ReasonOf(err) != plan.ReasonWorkerUnavailable {
				t.Fatal(err)
			}
		})
	}
}

func TestTheCalloutIsNotAskedAboutAForgedGrant(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeCallout, nil)
	_, err := b.authz.Authorize(t.Context(), b.ask(t, grant(nil), func(a *authz.Ask) { a.Conversation = "c2" }))
	wantReason(t, err, plan.ReasonInvalidRequest)
	if len(b.caller.asked) != 0 {
		t.Fatal("it was asked")
	}
}

func attempt(now time.Time, deadline time.Time) authz.Attempt {
	return authz.Attempt{Action: authz.ActionExec, Actor: authz.Actor{Tenant: "acme", User: "ann", Tier: plan.TierPro, Conversation: "c1"},
		Job: "j1", StreamTime: noon, Deadline: deadline, Now: now}
}

func TestLaterAttemptsLiveForFifteenMinutesOrToTheDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeGrant, nil)
	for _, tt := range []struct {
		now, deadline time.Duration
		ok            bool
	}{
		{14 * time.Minute, 0, true}, {15 * time.Minute, 0, true}, {15*time.Minute + 1, 0, false},
		{10 * time.Minute, 10 * time.Minute, true}, {10*time.Minute + 1, 10 * time.Minute, false},
		{16 * time.Minute, time.Hour, false},
	} {
		var deadline time.Time
		if tt.deadline > 0 {
			deadline = noon.Add(tt.deadline)
		}
		_, err := b.authz.Later(t.Context(), attempt(noon.Add(tt.now), deadline))
		if tt.ok && err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
		if !tt.ok {
			wantReason(t, err, plan.ReasonAuthorizationExpired)
		}
	}
}

func TestAfterTheWindowTheCalloutIsAskedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeCallout, nil)
	if _, err := b.authz.Later(t.Context(), attempt(noon.Add(time.Minute), time.Time{})); err != nil || len(b.caller.asked) != 0 {
		t.Fatalf("within the window: %v, asked %v", err, b.caller.asked)
	}
	got, err := b.authz.Later(t.Context(), attempt(noon.Add(time.Hour), time.Time{}))
	if err != nil || got.Tier != plan.TierBusiness || len(b.caller.asked) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	b.caller.answer = `{"allow":false,"reason":"no_drive_access"}`
	_, err = b.authz.Later(t.Context(), attempt(noon.Add(time.Hour), time.Time{}))
	wantReason(t, err, plan.ReasonNoDriveAccess)
}

func TestTheSwitchStopsLaterAttemptsButNoEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeGrant, func(c *authz.Config) { c.Switch = authz.Switch{} })
	at := attempt(noon, time.Time{})
	_, err := b.authz.Later(t.Context(), at)
	wantReason(t, err, plan.ReasonKillSwitchOff)
	at.Action, at.Now = authz.ActionEnd, noon.Add(24*time.Hour)
	if _, err := b.authz.Later(t.Context(), at); err != nil {
		t.Fatal(err)
	}
}

func viewer() authz.Actor {
	return authz.Actor{Tenant: "acme", User: "ann", Tier: plan.TierPro, Drive: "d1", Page: "p1", Role: authz.RoleViewer, Origin: "https://app.example"}
}

func TestATerminalGoesOnByAFreshGrant(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeGrant, nil)
	fresh := func(change func(*authz.Claims)) string {
		return mint(t, grant(func(c *authz.Claims) {
			c.Conversation, c.Page, c.Job = "", "p1", ""
			if change != nil {
				change(c)
			}
		}), b.key)
	}
	got, err := b.authz.Recheck(t.Context(), authz.Recheck{Actor: viewer(), Grant: fresh(nil), Now: noon})
	if err != nil || got.Role != authz.RoleViewer || got.Origin != "https://app.example" || !got.Expires.Equal(noon.Add(4*time.Minute)) {
		t.Fatalf("%+v, %v", got, err)
	}
	got, err = b.authz.Recheck(t.Context(), authz.Recheck{Actor: viewer(), Grant: fresh(func(c *authz.Claims) { c.Role = authz.RoleOwner }), Now: noon})
	if err != nil || got.Role != authz.RoleViewer {
		t.Fatalf("a viewer became %s, %v", got.Role, err)
	}
	for name, change := range map[string]func(*authz.Claims){
		"another user's":   func(c *authz.Claims) { c.Subject = "bob" },
		"another page's":   func(c *authz.Claims) { c.Page = "p2" },
		"another tenant's": func(c *authz.Claims) { c.Tenant = "other" },
	} {
		_, err := b.authz.Recheck(t.Context(), authz.Recheck{Actor: viewer(), Grant: fresh(change), Now: noon})
		if authz.ReasonOf(err) != plan.ReasonInvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = b.authz.Recheck(t.Context(), authz.Recheck{Actor: viewer(), Grant: fresh(func(c *authz.Claims) { c.Verdict = "no_edit_access" }), Now: noon})
	wantReason(t, err, plan.ReasonNoEditAccess)
}

func TestATerminalWithoutAFreshGrantEndsInTime(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeGrant, nil)
	if _, err := b.authz.Recheck(t.Context(), authz.Recheck{Actor: viewer(), Until: noon, Now: noon}); err != nil {
		t.Fatal(err)
	}
	_, err := b.authz.Recheck(t.Context(), authz.Recheck{Actor: viewer(), Until: noon, Now: noon.Add(1)})
	wantReason(t, err, plan.ReasonAuthorizationExpired)
}

func TestATerminalIsRecheckedByCalloutAndCutWhenRevoked(t *testing.T) {
	t.Parallel()
	b := setup(t, authz.ModeCallout, nil)
	r := authz.Recheck{Actor: viewer(), Now: noon}
	if got, err := b.authz.Recheck(t.Context(), r); err != nil || got.Role != authz.RoleViewer {
		t.Fatalf("%+v, %v", got, err)
	}
	b.caller.answer = `{"allow":false,"reason":"no_edit_access"}`
	_, err := b.authz.Recheck(t.Context(), r)
	wantReason(t, err, plan.ReasonNoEditAccess)
	b.caller.err = errors.New("away")
	if _, err := b.authz.Recheck(t.Context(), r); !errors.Is(err, authz.ErrUnavailable) {
		t.Fatal(err)
	}
}

func operator(b bundle, t *testing.T, change func(*authz.Claims)) authz.Ask {
	c := grant(func(c *authz.Claims) {
		c.Issuer, c.Subject, c.Conversation, c.Drive = "ops", "olga", "", ""
		if change != nil {
			change(c)
		}
	})
	return b.ask(t, c, func(a *authz.Ask) { a.Conversation, a.Drive = "", "" })
}

func TestAReplayRunsAsTheOriginalActorByAnOperatorsGrant(t *testing.T) {
	t.Parallel()
	original := authz.Actor{Tenant: "acme", User: "ann", Tier: plan.TierFree, Conversation: "c1"}
	for _, mode := range []authz.Mode{authz.ModeGrant, authz.ModeCallout} {
		b := setup(t, mode, nil)
		got, err := b.authz.Replay(t.Context(), operator(b, t, nil), original, authz.ActionExec)
		if err != nil || got.User != "ann" || got.Operator != "olga" || got.Conversation != "c1" {
			t.Fatalf("%s: %+v, %v", mode, got, err)
		}
		if asked := len(b.caller.asked); asked != map[authz.Mode]int{authz.ModeCallout: 1}[mode] {
			t.Errorf("%s: asked %d times", mode, asked)
		}
		for name, change := range map[string]func(*authz.Claims){
			"the web app's grant": func(c *authz.Claims) { c.Issuer = "web" },
			"another job's":       func(c *authz.Claims) { c.Job = "j2" },
			"another tenant's":    func(c *authz.Claims) { c.Tenant = "other" },
		} {
			if _, err := b.authz.Replay(t.Context(), operator(b, t, change), original, authz.ActionExec); authz.ReasonOf(err) != plan.ReasonInvalidRequest {
				t.Errorf("%s: %v", name, err)
			}
		}
		stolen := operator(b, t, nil)
		stolen.Grant = mint(t, grant(func(c *authz.Claims) { c.Issuer, c.Subject, c.Conversation, c.Drive = "ops", "olga", "", "" }), b.key)
		if _, err := b.authz.Replay(t.Context(), stolen, original, authz.ActionExec); authz.ReasonOf(err) != plan.ReasonInvalidRequest {
			t.Errorf("an operator's grant that the web app's key signed: %v", err)
		}
		web := b.ask(t, grant(nil), nil)
		web.Grant = mint(t, grant(nil), b.ops)
		if _, err := b.authz.Authorize(t.Context(), web); authz.ReasonOf(err) != plan.ReasonInvalidRequest {
			t.Errorf("a user's grant that an operator's key signed: %v", err)
		}
		foreign := original
		foreign.Tenant = "other"
		if _, err := b.authz.Replay(t.Context(), operator(b, t, nil), foreign, authz.ActionExec); authz.ReasonOf(err) != plan.ReasonInvalidRequest {
			t.Errorf("another tenant's actor: %v", err)
		}
	}
}
