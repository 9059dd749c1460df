package plan_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/plan"
)

func TestTakeOverFollowsItsTable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		facts plan.TakeOverFacts
		want  plan.TakeOverPlan
	}{
		"none":                            {plan.TakeOverFacts{Phase: plan.PhaseNone}, plan.TakeOverPlan{Action: plan.TakeOverClaim}},
		"accepted":                        {plan.TakeOverFacts{Phase: plan.PhaseAccepted, OwnerDied: true}, plan.TakeOverPlan{Action: plan.TakeOverGoOn, Crashes: 1}},
		"accepted, said to stop owning":   {plan.TakeOverFacts{Phase: plan.PhaseAccepted, Crashes: 2}, plan.TakeOverPlan{Action: plan.TakeOverGoOn, Crashes: 2}},
		"planned":                         {plan.TakeOverFacts{Phase: plan.PhasePlanned, OwnerDied: true}, plan.TakeOverPlan{Action: plan.TakeOverGoOn, Crashes: 1}},
		"waiting before its until":        {plan.TakeOverFacts{Phase: plan.PhasePlanned, Waiting: true}, plan.TakeOverPlan{Action: plan.TakeOverParkAgain}},
		"dialing":                         {plan.TakeOverFacts{Phase: plan.PhaseDialing, OwnerDied: true}, plan.TakeOverPlan{Action: plan.TakeOverRedial, Crashes: 1}},
		"started":                         {plan.TakeOverFacts{Phase: plan.PhaseStarted, OwnerDied: true}, plan.TakeOverPlan{Action: plan.TakeOverAttach, Crashes: 1}},
		"stopping":                        {plan.TakeOverFacts{Phase: plan.PhaseStopping, OwnerDied: true, Stop: plan.StopTimeout}, plan.TakeOverPlan{Action: plan.TakeOverStopAgain, Crashes: 1, Outcome: plan.OutcomeTimedOut}},
		"result":                          {plan.TakeOverFacts{Phase: plan.PhaseResult, OwnerDied: true}, plan.TakeOverPlan{Action: plan.TakeOverAfterResult, Crashes: 1}},
		"fifth death before it could run": {plan.TakeOverFacts{Phase: plan.PhasePlanned, OwnerDied: true, Crashes: 4}, plan.TakeOverPlan{Action: plan.TakeOverCrashLoop, Crashes: 5, Outcome: plan.OutcomeFailed}},
		"fifth death when it may run":     {plan.TakeOverFacts{Phase: plan.PhaseDialing, OwnerDied: true, Crashes: 4}, plan.TakeOverPlan{Action: plan.TakeOverCrashLoop, Crashes: 5, Outcome: plan.OutcomeLost}},
		"fifth death after a stop":        {plan.TakeOverFacts{Phase: plan.PhaseStopping, OwnerDied: true, Crashes: 4, Stop: plan.StopCancel}, plan.TakeOverPlan{Action: plan.TakeOverCrashLoop, Crashes: 5, Outcome: plan.OutcomeCanceled}},
		"stopping, given up":              {plan.TakeOverFacts{Phase: plan.PhaseStopping, OwnerDied: true, Stop: plan.StopRevoked, GaveUp: true}, plan.TakeOverPlan{Action: plan.TakeOverStopAgain, Crashes: 1, Outcome: plan.OutcomeLost}},
		"fourth death":                    {plan.TakeOverFacts{Phase: plan.PhasePlanned, OwnerDied: true, Crashes: 3}, plan.TakeOverPlan{Action: plan.TakeOverGoOn, Crashes: 4}},
		"a result is never a crash loop":  {plan.TakeOverFacts{Phase: plan.PhaseResult, OwnerDied: true, Crashes: 9}, plan.TakeOverPlan{Action: plan.TakeOverAfterResult, Crashes: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := plan.TakeOver(tt.facts); got != tt.want {
				t.Fatalf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// Redial goes through the guard and attach finds the session; going on from the plan would run the command twice.
func TestWhatMayHaveRunIsNeverStartedAfresh(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := plan.TakeOverFacts{Phase: rapid.SampledFrom(plan.Phases()).Draw(t, "phase"), OwnerDied: rapid.Bool().Draw(t, "died"),
			Crashes: rapid.IntRange(-1, 9).Draw(t, "crashes"), Waiting: rapid.Bool().Draw(t, "waiting"),
			Stop: rapid.SampledFrom(plan.StopReasons()).Draw(t, "stop")}
		p := plan.TakeOver(f)
		fresh := p.Action == plan.TakeOverClaim || p.Action == plan.TakeOverGoOn || p.Action == plan.TakeOverParkAgain
		if fresh && !f.Phase.Before(plan.PhaseDialing) {
			t.Fatalf("%+v -> %+v", f, p)
		}
		if p.Outcome == plan.OutcomeFailed && !f.Phase.Before(plan.PhaseDialing) {
			t.Fatalf("%+v says that it did not run: %+v", f, p)
		}
	})
}

// However many owners die one after another, and wherever, the phase never goes back, what may have run is never started
// afresh, and an announced stop ends as what it was announced as.
func TestNoSequenceOfCrashesLosesThePhaseOrTheReason(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f plan.TakeOverFacts
		phases := plan.Phases()
		at := rapid.IntRange(0, len(phases)-1).Draw(t, "begins at")
		deaths := 0
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			if at+1 < len(phases) && rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				at = rapid.IntRange(at+1, len(phases)-1).Draw(t, "goes on to")
				f.Crashes, deaths = 0, 0 // progress
			}
			f.Phase, f.OwnerDied = phases[at], rapid.Bool().Draw(t, "died")
			if f.Phase == plan.PhaseStopping && f.Stop == "" {
				f.Stop, f.GaveUp = rapid.SampledFrom(plan.StopReasons()).Draw(t, "stop"), rapid.Bool().Draw(t, "gave up")
			}
			if f.OwnerDied {
				deaths++
			}
			p := plan.TakeOver(f)
			if p.Crashes != deaths {
				t.Fatalf("%d deaths are counted as %d", deaths, p.Crashes)
			}
			loop := deaths >= plan.MaxCrashes && f.Phase != plan.PhaseNone && f.Phase != plan.PhaseResult
			if (p.Action == plan.TakeOverCrashLoop) != loop {
				t.Fatalf("%d deaths in %s: %s", deaths, f.Phase, p.Action)
			}
			if !loop {
				if want := byPhase[f.Phase]; p.Action != want {
					t.Fatalf("in %s: %s, want %s", f.Phase, p.Action, want)
				}
			}
			want := f.Stop.Outcome()
			if f.GaveUp {
				want = plan.OutcomeLost
			}
			if f.Phase == plan.PhaseStopping && p.Outcome != want {
				t.Fatalf("a stop for %s, given up %v, ends as %s", f.Stop, f.GaveUp, p.Outcome)
			}
			f.Crashes = p.Crashes
		}
	})
}

// byPhase is the take-over table where no owner died too often.
var byPhase = map[plan.Phase]plan.TakeOverAction{
	plan.PhaseNone: plan.TakeOverClaim, plan.PhaseAccepted: plan.TakeOverGoOn, plan.PhasePlanned: plan.TakeOverGoOn,
	plan.PhaseDialing: plan.TakeOverRedial, plan.PhaseStarted: plan.TakeOverAttach, plan.PhaseStopping: plan.TakeOverStopAgain,
	plan.PhaseResult: plan.TakeOverAfterResult,
}

func TestReceiveTellsDuplicatesFromDeaths(t *testing.T) {
	t.Parallel()
	known := plan.ReceiveFacts{Known: true, Phase: plan.PhaseStarted, Owner: plan.OwnerPeer, Queued: 7, Message: 7}
	with := func(change func(*plan.ReceiveFacts)) plan.ReceiveFacts { f := known; change(&f); return f }
	type F = *plan.ReceiveFacts
	for name, tt := range map[string]struct {
		facts plan.ReceiveFacts
		want  plan.ReceiveAction
	}{
		"an unknown run":                     {plan.ReceiveFacts{Message: 7}, plan.ReceiveClaim},
		"an unknown run after a reconnect":   {plan.ReceiveFacts{Message: 7, JustReconnected: true}, plan.ReceiveClaim},
		"another message for a known run":    {with(func(f F) { f.Message = 8 }), plan.ReceiveDuplicate},
		"another message for our own run":    {with(func(f F) { f.Message, f.Owner = 8, plan.OwnerSelf }), plan.ReceiveDuplicate},
		"another message for an ended run":   {with(func(f F) { f.Message, f.Phase = 8, plan.PhaseResult }), plan.ReceiveDuplicate},
		"our own message again":              {with(func(f F) { f.Owner = plan.OwnerSelf }), plan.ReceiveRefresh},
		"our own after a reconnect":          {with(func(f F) { f.Owner, f.JustReconnected = plan.OwnerSelf, true }), plan.ReceiveRefresh},
		"a peer's message":                   {known, plan.ReceiveTakeOver},
		"a peer's message after a reconnect": {with(func(f F) { f.JustReconnected = true }), plan.ReceiveLater},
		"nobody's after a reconnect":         {with(func(f F) { f.Owner, f.JustReconnected = plan.OwnerNobody, true }), plan.ReceiveTakeOver},
		"waiting, its time not come":         {with(func(f F) { f.Owner, f.Waiting, f.Phase = plan.OwnerNobody, true, plan.PhaseAccepted }), plan.ReceiveParkAgain},
		"waiting, its time come":             {with(func(f F) { f.Owner, f.Phase = plan.OwnerNobody, plan.PhaseAccepted }), plan.ReceiveTakeOver},
		"result":                             {with(func(f F) { f.Phase = plan.PhaseResult }), plan.ReceiveAfterResult},
		"our own result":                     {with(func(f F) { f.Phase, f.Owner = plan.PhaseResult, plan.OwnerSelf }), plan.ReceiveAfterResult},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := plan.Receive(tt.facts); got != tt.want {
				t.Fatalf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestA97IsJudgedByTheGuardsFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		file plan.GuardFile
		made bool
		want plan.GuardVerdict
	}{
		{plan.GuardFileOurs, false, plan.GuardOwnCode},
		{plan.GuardFileOurs, true, plan.GuardOwnCode},
		{plan.GuardFileOther, false, plan.GuardTaken},
		{plan.GuardFileEmpty, false, plan.GuardTakenUnknown},
		{plan.GuardFileAbsent, false, plan.GuardDialAgain},
		{plan.GuardFileAbsent, true, plan.GuardRefused},
		{"rubbish", true, plan.GuardTakenUnknown},
	} {
		if got := plan.JudgeGuard(tt.file, tt.made); got != tt.want {
			t.Errorf("%s, folder made %v: %s, want %s", tt.file, tt.made, got, tt.want)
		}
	}
}

func TestACommandOutOfSightIsSettledByWhatTheSandboxSays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		facts plan.SettleFacts
		want  plan.Settlement
	}{
		"an announced stop wins over the exit line": {plan.SettleFacts{Phase: plan.PhaseStopping, Stop: plan.StopCancel, ExitLine: true}, plan.SettleStop},
		"the Sprite is gone":                        {plan.SettleFacts{Phase: plan.PhaseStarted, SpriteGone: true}, plan.SettleLost},
		"an exit line":                              {plan.SettleFacts{Phase: plan.PhaseStarted, ExitLine: true}, plan.SettleExited},
		"an exit line while dialing":                {plan.SettleFacts{Phase: plan.PhaseDialing, ExitLine: true}, plan.SettleExited},
		"the guard's limit before its exit line":    {plan.SettleFacts{Phase: plan.PhaseStarted, LimitLine: true, ExitLine: true}, plan.SettleTimedOut},
		"it runs":                                   {plan.SettleFacts{Phase: plan.PhaseStarted, SessionRuns: true}, plan.SettleAttach},
		"dialing, and no session to be found":       {plan.SettleFacts{Phase: plan.PhaseDialing}, plan.SettleStopThenLost},
		"started, and no session to be found":       {plan.SettleFacts{Phase: plan.PhaseStarted}, plan.SettleLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := plan.Settle(tt.facts); got != tt.want {
				t.Fatalf("%s, want %s", got, tt.want)
			}
		})
	}
}
