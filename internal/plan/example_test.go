package plan_test

import (
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// A conversation that has been quiet for six hours keeps its sandbox.
func ExampleExplain() {
	decision, row := plan.Explain(plan.Facts{
		Intent: plan.IntentRun, Kind: plan.KindConversation, Authorised: true,
		Link: plan.LinkLive, Idle: 6 * time.Hour, HardExpiry: plan.DefaultHardExpiry,
	})
	fmt.Println(decision.Action, decision.Why)
	fmt.Println(row.Says)
	// Output:
	// resume idle
	// run, a conversation idle for less than the hard expiry: resume
}
