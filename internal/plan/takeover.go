package plan

// MaxCrashes is how many owners of a run may die one after another without progress.
const MaxCrashes = 5

// TakeOverFacts is what TakeOver looks at.
type TakeOverFacts struct {
	Phase Phase
	// OwnerDied: the last event has an owner, so it died or lost its connection. False when it said that it stopped owning.
	OwnerDied bool
	// Crashes is the journal's count before this take-over. Whoever moves the phase forward sets it back to zero.
	Crashes int
	// Stop is the announced stop's reason, in the phase stopping.
	Stop StopReason
	// GaveUp: the stop was announced by an owner that could not follow the command any more, so that nobody knows how it
	// ended.
	GaveUp bool
	// Waiting: the run waits for a time that has not come.
	Waiting bool
}

// TakeOverAction is what a taker does.
type TakeOverAction string

// The closed set of what a taker does.
const (
	TakeOverClaim       TakeOverAction = "claim"
	TakeOverGoOn        TakeOverAction = "go_on"
	TakeOverParkAgain   TakeOverAction = "park_again"
	TakeOverRedial      TakeOverAction = "redial"
	TakeOverAttach      TakeOverAction = "attach"
	TakeOverStopAgain   TakeOverAction = "stop_again"
	TakeOverAfterResult TakeOverAction = "repeat_after_result"
	TakeOverCrashLoop   TakeOverAction = "crash_loop"
)

// TakeOverPlan is a take-over decided.
type TakeOverPlan struct {
	Action TakeOverAction
	// Crashes is the count to publish with taken_over.
	Crashes int
	// Outcome is set with crash_loop and stop_again: how the run ends.
	Outcome Outcome
}

// TakeOver is the take-over table. A crash loop ends as failed while the command cannot have run, as lost once it
// may have; an announced stop keeps its outcome.
func TakeOver(f TakeOverFacts) TakeOverPlan {
	p := TakeOverPlan{Crashes: max(f.Crashes, 0)}
	if f.OwnerDied {
		p.Crashes++
	}
	if f.Phase == PhaseStopping {
		p.Outcome = f.Stop.Outcome()
		if f.GaveUp {
			p.Outcome = OutcomeLost
		}
	}
	if p.Crashes >= MaxCrashes && f.Phase != PhaseResult && f.Phase != PhaseNone {
		p.Action = TakeOverCrashLoop
		switch {
		case f.Phase.Before(PhaseDialing):
			p.Outcome = OutcomeFailed
		case f.Phase != PhaseStopping:
			p.Outcome = OutcomeLost
		}
		return p
	}
	p.Action = takeOverByPhase(f)
	return p
}

func takeOverByPhase(f TakeOverFacts) TakeOverAction {
	switch f.Phase {
	case PhaseNone:
		return TakeOverClaim
	case PhaseAccepted, PhasePlanned:
		if f.Waiting {
			return TakeOverParkAgain
		}
		return TakeOverGoOn
	case PhaseDialing:
		return TakeOverRedial
	case PhaseStarted:
		return TakeOverAttach
	case PhaseStopping:
		return TakeOverStopAgain
	case PhaseResult:
		return TakeOverAfterResult
	}
	return TakeOverCrashLoop
}
