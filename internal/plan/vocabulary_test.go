package plan_test

import (
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/plan"
)

func TestEveryReasonHasOneSentenceForAPerson(t *testing.T) {
	t.Parallel()
	seen := map[plan.Reason]bool{}
	for _, info := range plan.Reasons() {
		if seen[info.Reason] || !info.Reason.Valid() {
			t.Errorf("%s is not valid or occurs twice", info.Reason)
		}
		seen[info.Reason] = true
		if !strings.HasSuffix(info.Sentence, ".") || info.Reason.Sentence() != info.Sentence || info.Reason.Retryable() != info.Retryable {
			t.Errorf("%s: %+v", info.Reason, info)
		}
	}
	if plan.Reason("rubbish").Valid() || plan.Reason("rubbish").Info().Reason != plan.ReasonError {
		t.Error("an unknown reason is not an error")
	}
}

func TestCeilingsAreNoAuthorisationDenials(t *testing.T) {
	t.Parallel()
	for _, r := range []plan.Reason{plan.ReasonConcurrencyLimit, plan.ReasonRateLimited, plan.ReasonProvisionRateLimited} {
		if r.Info().Authorization || !r.Retryable() {
			t.Errorf("%s: %+v", r, r.Info())
		}
	}
}

func TestPhasesOnlyGoForward(t *testing.T) {
	t.Parallel()
	phases := plan.Phases()
	for i, p := range phases {
		for j, q := range phases {
			if p.Before(q) != (i < j) {
				t.Errorf("%q before %q: %v", p, q, p.Before(q))
			}
		}
		if p.Before("rubbish") || plan.Phase("rubbish").Before(p) {
			t.Errorf("an unknown phase has an order with %q", p)
		}
	}
}

func TestAnAnnouncedStopBecomesItsOutcome(t *testing.T) {
	t.Parallel()
	want := map[plan.StopReason]plan.Outcome{plan.StopTimeout: plan.OutcomeTimedOut, plan.StopOutputLimit: plan.OutcomeOutputLimit,
		plan.StopCancel: plan.OutcomeCanceled, plan.StopRevoked: plan.OutcomeCanceled, plan.StopSessionEnded: plan.OutcomeCanceled}
	for _, r := range plan.StopReasons() {
		if r.Outcome() != want[r] {
			t.Errorf("%s becomes %s", r, r.Outcome())
		}
	}
}

func TestOnlyOneSubjectTokenIsAToken(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{"a": true, "A-b_9": true, strings.Repeat("a", 64): true, "": false, strings.Repeat("a", 65): false,
		"a.b": false, "*": false, ">": false, "a b": false, "a\r": false, "é": false, "a\x00": false} {
		if plan.ValidToken(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
	for s, want := range map[string]bool{"ann@example.com": true, "*": true, strings.Repeat("a", 128): true, "": false,
		strings.Repeat("a", 129): false, "a b": false, "a\n": false, "é": false} {
		if plan.ValidPrincipal(s) != want {
			t.Errorf("principal %q: %v", s, !want)
		}
	}
}
