package plan_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/plan"
)

const day = 24 * time.Hour

func run(change func(*plan.Facts)) plan.Facts {
	f := plan.Facts{Intent: plan.IntentRun, Kind: plan.KindConversation, Authorised: true, Authentic: true,
		Link: plan.LinkLive, HardExpiry: day, Presence: plan.PresenceUnknown, Queued: 10}
	if change != nil {
		change(&f)
	}
	return f
}

func end(change func(*plan.Facts)) plan.Facts {
	f := run(func(f *plan.Facts) { f.Intent, f.Authorised = plan.IntentEnd, false })
	if change != nil {
		change(&f)
	}
	return f
}

func denied(r plan.Reason) plan.Plan {
	return plan.Plan{Action: plan.ActionDeny, Why: plan.Why(r), Reason: r}
}

// The lifecycle table, row by row. cases 29, 30, 31, 32, 35
func TestDecideFollowsTheLifecycleTable(t *testing.T) {
	t.Parallel()
	type F = *plan.Facts
	tests := []struct {
		row   string
		says  string
		facts plan.Facts
		want  plan.Plan
	}{
		{"end-link", "case 31: end by a departed actor", end(nil), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhySessionEnd}},
		{"end-link", "end with the kill switch off", end(func(f F) { f.Denial = plan.ReasonKillSwitchOff }), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhySessionEnd}},
		{"end-link", "end of a terminal", end(func(f F) { f.Kind = plan.KindTerminal }), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhySessionEnd}},
		{"end-link", "end of a create that nobody finished", end(func(f F) { f.Link = plan.LinkCreating }), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhySessionEnd}},
		{"end-link", "end of a tear-down that nobody finished", end(func(f F) { f.Link = plan.LinkTearingDown }), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhySessionEnd}},
		{"end-stray", "end without a link, nobody has looked", end(func(f F) { f.Link = plan.LinkNone }), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhySessionEnd, LookUp: true}},
		{"end-stray", "end without a link, found by name", end(func(f F) { f.Link, f.Presence = plan.LinkNone, plan.PresencePresent }), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhySessionEnd}},
		{"end-nothing", "end without a link, nothing by that name", end(func(f F) { f.Link, f.Presence = plan.LinkNone, plan.PresenceGone }), plan.Plan{Action: plan.ActionNoop, Why: plan.WhySessionEnd}},
		{"end-again", "case 31: end twice", end(func(f F) { f.Link, f.EndedSeq = plan.LinkEnded, 5 }), plan.Plan{Action: plan.ActionNoop, Why: plan.WhySessionEnd}},
		{"end-late", "case 35: end that is older than the fresh start", end(func(f F) { f.RevivedSeq = 11 }), plan.Plan{Action: plan.ActionNoop, Why: plan.WhyFreshStart}},
		{"end-not-authentic", "end without an authentic grant", end(func(f F) { f.Authentic = false }), denied(plan.ReasonInvalidRequest)},

		{"run-denied", "case 30: run, not authorised, warm sandbox", run(func(f F) { f.Authorised, f.Denial = false, plan.ReasonNoEditAccess }), denied(plan.ReasonNoEditAccess)},
		{"run-denied", "run, kill switch off", run(func(f F) { f.Authorised, f.Denial = false, plan.ReasonKillSwitchOff }), denied(plan.ReasonKillSwitchOff)},
		{"run-denied", "run, not authorised, nobody said why", run(func(f F) { f.Authorised = false }), denied(plan.ReasonInsufficientRole)},
		{"run-denied", "run, not authorised, ended", run(func(f F) { f.Authorised, f.Link = false, plan.LinkEnded }), denied(plan.ReasonInsufficientRole)},
		{"run-ended", "case 31: run in an ended session", run(func(f F) { f.Link, f.EndedSeq = plan.LinkEnded, 5 }), denied(plan.ReasonSessionEnded)},
		{"run-ended", "run while the end tears down", run(func(f F) { f.Link, f.EndedSeq = plan.LinkTearingDown, 5 }), denied(plan.ReasonSessionEnded)},
		{"run-older-than-end", "older run, fresh start or not", run(func(f F) { f.Link, f.EndedSeq, f.FreshStart = plan.LinkEnded, 11, true }), denied(plan.ReasonSessionEnded)},
		{"run-older-than-end", "older run, the session was revived since", run(func(f F) { f.EndedSeq, f.RevivedSeq = 11, 12 }), denied(plan.ReasonSessionEnded)},
		{"run-fresh-start", "fresh start", run(func(f F) { f.Link, f.EndedSeq, f.FreshStart = plan.LinkEnded, 5, true }), plan.Plan{Action: plan.ActionCreate, Why: plan.WhyFreshStart, Fresh: true}},
		{"run-finish-end", "fresh start, the end's tear-down unfinished", run(func(f F) { f.Link, f.EndedSeq, f.FreshStart = plan.LinkTearingDown, 5, true }), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhyFreshStart, Then: plan.ActionCreate, Fresh: true}},
		{"run-finish-expiry", "an expiry's tear-down unfinished", run(func(f F) { f.Link = plan.LinkTearingDown }), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhyHardExpiry, Then: plan.ActionCreate, Fresh: true}},
		{"run-finish-expiry", "a revived session's expiry unfinished", run(func(f F) { f.Link, f.EndedSeq, f.RevivedSeq = plan.LinkTearingDown, 5, 6 }), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhyHardExpiry, Then: plan.ActionCreate, Fresh: true}},
		{"run-new", "no link", run(func(f F) { f.Link = plan.LinkNone }), plan.Plan{Action: plan.ActionCreate, Why: plan.WhyNew}},
		{"run-new", "no link, the name exists", run(func(f F) { f.Link, f.Presence = plan.LinkNone, plan.PresencePresent }), plan.Plan{Action: plan.ActionCreate, Why: plan.WhyAdopted}},
		{"run-new", "our own create unfinished", run(func(f F) { f.Link = plan.LinkCreating }), plan.Plan{Action: plan.ActionCreate, Why: plan.WhyNew}},
		{"run-gone", "case 32: a link, the Sprite is gone", run(func(f F) { f.Presence = plan.PresenceGone }), plan.Plan{Action: plan.ActionCreate, Why: plan.WhyGone, Fresh: true}},
		{"run-gone", "case 32: a terminal's Sprite is gone", run(func(f F) { f.Kind, f.Presence, f.Idle = plan.KindTerminal, plan.PresenceGone, day }), plan.Plan{Action: plan.ActionCreate, Why: plan.WhyGone, Fresh: true}},
		{"run-gone-twice", "case 32: gone again in the same run", run(func(f F) { f.Presence, f.Recreated = plan.PresenceGone, true }), denied(plan.ReasonProvisionFailed)},
		{"conversation-warm", "used a minute ago", run(func(f F) { f.Idle = time.Minute }), plan.Plan{Action: plan.ActionResume, Why: plan.WhyWarm}},
		{"conversation-warm", "clocks differ", run(func(f F) { f.Idle = -time.Hour }), plan.Plan{Action: plan.ActionResume, Why: plan.WhyWarm}},
		{"conversation-idle", "case 29: 15 minutes", run(func(f F) { f.Idle = 15 * time.Minute }), plan.Plan{Action: plan.ActionResume, Why: plan.WhyIdle}},
		{"conversation-idle", "case 29: 6 hours", run(func(f F) { f.Idle = 6 * time.Hour }), plan.Plan{Action: plan.ActionResume, Why: plan.WhyIdle}},
		{"conversation-idle", "case 29: 23 h 59 min", run(func(f F) { f.Idle = day - time.Minute }), plan.Plan{Action: plan.ActionResume, Why: plan.WhyIdle}},
		{"conversation-idle", "case 29: a year, hard expiry 0", run(func(f F) { f.Idle, f.HardExpiry = 365*day, 0 }), plan.Plan{Action: plan.ActionResume, Why: plan.WhyIdle}},
		{"conversation-expired", "the hard expiry to the second", run(func(f F) { f.Idle = day }), plan.Plan{Action: plan.ActionTeardown, Why: plan.WhyHardExpiry, Then: plan.ActionCreate, Fresh: true}},
		{"terminal-warm", "a terminal, 14 min 59 s", run(func(f F) { f.Kind, f.Idle = plan.KindTerminal, 15*time.Minute-time.Second }), plan.Plan{Action: plan.ActionResume, Why: plan.WhyWarm}},
		{"terminal-idle", "a terminal, 15 minutes", run(func(f F) { f.Kind, f.Idle = plan.KindTerminal, 15*time.Minute }), plan.Plan{Action: plan.ActionNoop, Why: plan.WhyIdle}},
		{"terminal-idle", "case 29: a terminal, a year", run(func(f F) { f.Kind, f.Idle = plan.KindTerminal, 365*day }), plan.Plan{Action: plan.ActionNoop, Why: plan.WhyIdle}},
		{"invalid", "an unknown intent", run(func(f F) { f.Intent = "attach" }), denied(plan.ReasonError)},
		{"invalid", "an unknown link state", run(func(f F) { f.Link = "lost" }), denied(plan.ReasonError)},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		seen[tt.row] = true
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			got, row := plan.Explain(tt.facts)
			if got != tt.want || row.Name != tt.row {
				t.Fatalf("row %s: %+v\nwant %s: %+v", row.Name, got, tt.row, tt.want)
			}
		})
	}
	for _, row := range plan.Rows() {
		if !seen[row.Name] {
			t.Errorf("row %s has no test", row.Name)
		}
	}
}

func anyFacts() *rapid.Generator[plan.Facts] {
	return rapid.Custom(func(t *rapid.T) plan.Facts {
		return plan.Facts{
			Intent:     rapid.SampledFrom([]plan.Intent{plan.IntentRun, plan.IntentEnd}).Draw(t, "intent"),
			Kind:       rapid.SampledFrom(plan.SessionKinds()).Draw(t, "kind"),
			Authorised: rapid.Bool().Draw(t, "authorised"),
			Authentic:  rapid.Bool().Draw(t, "authentic"),
			Denial:     rapid.SampledFrom([]plan.Reason{"", plan.ReasonKillSwitchOff, plan.ReasonNoEditAccess}).Draw(t, "denial"),
			Link:       rapid.SampledFrom(plan.LinkStates()).Draw(t, "link"),
			Idle:       time.Duration(rapid.Int64Range(-int64(day), int64(1000*day)).Draw(t, "idle")),
			HardExpiry: time.Duration(rapid.SampledFrom([]int64{0, int64(time.Hour), int64(day), -1}).Draw(t, "expiry")),
			FreshStart: rapid.Bool().Draw(t, "fresh"),
			Queued:     rapid.Uint64Range(0, 5).Draw(t, "queued"),
			EndedSeq:   rapid.Uint64Range(0, 5).Draw(t, "ended"),
			RevivedSeq: rapid.Uint64Range(0, 5).Draw(t, "revived"),
			Presence:   rapid.SampledFrom([]plan.Presence{plan.PresenceUnknown, plan.PresencePresent, plan.PresenceGone}).Draw(t, "presence"),
			Recreated:  rapid.Bool().Draw(t, "recreated"),
		}
	})
}

func always(t *testing.T, hold func(f plan.Facts, p plan.Plan) error) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts().Draw(t, "facts")
		if err := hold(f, plan.Decide(f)); err != nil {
			t.Fatalf("%v: %+v -> %+v", err, f, plan.Decide(f))
		}
	})
}

func when(wrong bool, what string) error {
	if wrong {
		return fmt.Errorf("broken: %s", what)
	}
	return nil
}

func TestCase29IdlenessBelowTheHardExpiryNeverDestroys(t *testing.T) {
	t.Parallel()
	always(t, func(f plan.Facts, p plan.Plan) error {
		short := f.Kind == plan.KindTerminal || f.HardExpiry <= 0 || f.Idle < f.HardExpiry
		return when(f.Intent == plan.IntentRun && f.Link == plan.LinkLive && short && p.Action == plan.ActionTeardown,
			"a live session was torn down for idleness")
	})
}

func TestCase29ALostFileSystemIsSaid(t *testing.T) {
	t.Parallel()
	always(t, func(f plan.Facts, p plan.Plan) error {
		creates := p.Action == plan.ActionCreate || p.Then == plan.ActionCreate
		had := f.Link == plan.LinkLive || f.Link == plan.LinkTearingDown || f.Link == plan.LinkEnded
		return when(creates && had && !p.Fresh, "a new file system is not said to be new")
	})
}

func TestCase30ADenialNeverSpends(t *testing.T) {
	t.Parallel()
	always(t, func(f plan.Facts, p plan.Plan) error {
		unauthorised := f.Intent == plan.IntentRun && !f.Authorised
		switch {
		case unauthorised && p.Action != plan.ActionDeny:
			return when(true, "an unauthorised run was not denied")
		case p.Action == plan.ActionDeny:
			return when(p.Spends() || p.Then != "" || p.LookUp || !p.Reason.Valid() || p.Why != plan.Why(p.Reason), "a denial does something")
		}
		return when(p.Reason != "", "a reason without a denial")
	})
}

func TestCase31AnAuthenticEndIsNeverDenied(t *testing.T) {
	t.Parallel()
	always(t, func(f plan.Facts, p plan.Plan) error {
		return when(f.Intent == plan.IntentEnd && f.Authentic && p.Action != plan.ActionTeardown && p.Action != plan.ActionNoop,
			"an end does neither teardown nor noop")
	})
}

func TestCase31NothingButAFreshStartRevives(t *testing.T) {
	t.Parallel()
	always(t, func(f plan.Facts, p plan.Plan) error {
		over := f.Link == plan.LinkEnded && f.Intent == plan.IntentRun
		return when(over && p.Action != plan.ActionDeny && (!f.FreshStart || f.Queued < f.EndedSeq), "an ended session came back")
	})
}

func TestCase32NothingIsCreatedOrDroppedOnAGuess(t *testing.T) {
	t.Parallel()
	always(t, func(f plan.Facts, p plan.Plan) error {
		live := f.Intent == plan.IntentRun && f.Link == plan.LinkLive && f.Presence != plan.PresenceGone
		return when(live && p.Action == plan.ActionCreate, "created beside a Sprite that may live")
	})
}

func TestDecideIsTotal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := plan.Facts{Intent: plan.Intent(rapid.String().Draw(t, "intent")), Kind: plan.SessionKind(rapid.String().Draw(t, "kind")),
			Link: plan.LinkState(rapid.String().Draw(t, "link")), Presence: plan.Presence(rapid.String().Draw(t, "presence")), Authorised: true}
		if f.Validate() != nil && plan.Decide(f) != denied(plan.ReasonError) {
			t.Fatalf("%+v -> %+v", f, plan.Decide(f))
		}
	})
}

func TestSpendsIsTrueForAllThatReachesTheProvider(t *testing.T) {
	t.Parallel()
	for p, want := range map[plan.Plan]bool{
		{Action: plan.ActionCreate}:                        true,
		{Action: plan.ActionResume}:                        true,
		{Action: plan.ActionTeardown}:                      true,
		{Action: plan.ActionNoop, Why: plan.WhyIdle}:       true,
		{Action: plan.ActionNoop, Why: plan.WhySessionEnd}: false,
		{Action: plan.ActionDeny, Why: "kill_switch_off"}:  false,
		{Action: plan.ActionNoop, Why: plan.WhyFreshStart}: false,
	} {
		if p.Spends() != want {
			t.Errorf("%+v: Spends() is %v", p, !want)
		}
	}
}
