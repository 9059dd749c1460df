package plan

// Action is one of the five words that the lifecycle plan may say.
type Action string

// The closed set of actions.
const (
	ActionCreate   Action = "create"
	ActionResume   Action = "resume"
	ActionNoop     Action = "noop"
	ActionTeardown Action = "teardown"
	ActionDeny     Action = "deny"
)

// Why says which row of the table led to an action. A denial's why is its reason code.
type Why string

// The closed set of whys beside the reason codes.
const (
	WhyNew        Why = "new"
	WhyAdopted    Why = "adopted"
	WhyWarm       Why = "warm"
	WhyIdle       Why = "idle"
	WhyHardExpiry Why = "hard_expiry"
	WhyGone       Why = "gone"
	WhyFreshStart Why = "fresh_start"
	WhySessionEnd Why = "session_end"
)
