package plan

// Outcome is how a run ended: the word in its one result event.
type Outcome string

// The closed set of outcomes.
const (
	// OutcomeExited: the process ended and said how; the only outcome with an exit code.
	OutcomeExited Outcome = "exited"
	// OutcomeTimedOut: stopped by us at its time limit.
	OutcomeTimedOut Outcome = "timed_out"
	// OutcomeOutputLimit: stopped by us at its output cap.
	OutcomeOutputLimit Outcome = "output_limit"
	// OutcomeCanceled: somebody asked, the session ended, or the lease was revoked.
	OutcomeCanceled Outcome = "canceled"
	// OutcomeLost: it may have run, and nothing can say how it ended.
	OutcomeLost Outcome = "lost"
	// OutcomeDenied: policy, authorisation or a limit; it did not run.
	OutcomeDenied Outcome = "denied"
	// OutcomeFailed: could not be provisioned or started; it did not run.
	OutcomeFailed Outcome = "failed"
	// OutcomeExpired: its deadline passed before it started.
	OutcomeExpired Outcome = "expired"
	// OutcomeOpened: a terminal's Sprite is awake and its lease waits for the gateway.
	OutcomeOpened Outcome = "opened"
	// OutcomeEnded: a session's sandbox was torn down, or there was none.
	OutcomeEnded Outcome = "ended"
)

// Outcomes lists the closed set. The caller may keep the slice.
func Outcomes() []Outcome {
	return []Outcome{OutcomeExited, OutcomeTimedOut, OutcomeOutputLimit, OutcomeCanceled, OutcomeLost,
		OutcomeDenied, OutcomeFailed, OutcomeExpired, OutcomeOpened, OutcomeEnded}
}

// StopReason is why an owner stops a process that it runs; it becomes the run's outcome whatever exit code follows.
type StopReason string

// The closed set of stop reasons.
const (
	StopTimeout      StopReason = "timeout"
	StopCancel       StopReason = "cancel"
	StopOutputLimit  StopReason = "output_limit"
	StopRevoked      StopReason = "revoked"
	StopSessionEnded StopReason = "session_ended"
)

// StopReasons lists the closed set. The caller may keep the slice.
func StopReasons() []StopReason {
	return []StopReason{StopTimeout, StopCancel, StopOutputLimit, StopRevoked, StopSessionEnded}
}

// Outcome is the outcome which an announced stop becomes. An unknown reason gives OutcomeCanceled.
func (r StopReason) Outcome() Outcome {
	switch r {
	case StopTimeout:
		return OutcomeTimedOut
	case StopOutputLimit:
		return OutcomeOutputLimit
	case StopCancel, StopRevoked, StopSessionEnded:
		return OutcomeCanceled
	}
	return OutcomeCanceled
}
