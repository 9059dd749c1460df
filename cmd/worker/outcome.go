package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// The exit codes of exec beside the command's own, which they may collide with: scripts that must know use --json.
const (
	execTimedOut    = 124
	execNotRun      = 125 // denied, failed, expired, refused by the queue, not reachable, or unusable arguments
	execOutputLimit = 126
	execCanceled    = 130
	execLost        = 255
)

// outcomeCode is the exit code that a result becomes.
func outcomeCode(r bus.ResultBody) int {
	switch r.Outcome {
	case plan.OutcomeExited:
		if r.ExitCode == nil {
			return execLost // an exit without a code would be a broken result; never take it for success
		}
		return *r.ExitCode
	case plan.OutcomeTimedOut:
		return execTimedOut
	case plan.OutcomeDenied, plan.OutcomeFailed, plan.OutcomeExpired:
		return execNotRun
	case plan.OutcomeOutputLimit:
		return execOutputLimit
	case plan.OutcomeCanceled:
		return execCanceled
	case plan.OutcomeLost:
		return execLost
	case plan.OutcomeOpened, plan.OutcomeEnded:
		return codeDone
	}
	return execLost
}

// outcomeLine says in one line how a job ended.
func outcomeLine(key bus.RunKey, r bus.ResultBody) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s: %s", key.Tenant, key.Job, r.Outcome)
	switch {
	case r.Outcome == plan.OutcomeExited && r.ExitCode != nil:
		fmt.Fprintf(&b, " %d", *r.ExitCode)
	case r.Outcome == plan.OutcomeTimedOut && r.LimitMs > 0:
		fmt.Fprintf(&b, " after %s", time.Duration(r.LimitMs)*time.Millisecond)
	}
	if r.Signal != "" {
		fmt.Fprintf(&b, " (%s)", r.Signal)
	}
	if r.Reason != "" {
		fmt.Fprintf(&b, " %s: %s", r.Reason, r.Reason.Sentence())
	}
	// A message often is the reason's own sentence.
	if r.Message != "" && (r.Reason == "" || r.Message != r.Reason.Sentence()) {
		fmt.Fprintf(&b, ": %s", r.Message)
	}
	if r.By != "" {
		fmt.Fprintf(&b, " by %s", r.By)
	}
	if r.Hint != "" {
		fmt.Fprintf(&b, " (%s)", r.Hint)
	}
	if r.Stopped == "not_confirmed" {
		b.WriteString(" (its end is not confirmed)")
	}
	if r.RetryAfterMs > 0 {
		fmt.Fprintf(&b, " (try again in %s)", (time.Duration(r.RetryAfterMs) * time.Millisecond).Round(100*time.Millisecond))
	}
	if r.DeadLetter != "" {
		fmt.Fprintf(&b, " (dead letter %s)", r.DeadLetter)
	}
	return clean(b.String())
}
