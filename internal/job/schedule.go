package job

import (
	"errors"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites"
)

// retryRule says how failures of one class are retried and what they become when that does not help.
type retryRule struct {
	// attempts is how many tries burn before the run fails; 0 = the failure is permanent.
	attempts int
	// patient failures burn no attempt: the provider said "not now", and CreatePatience bounds them.
	patient bool
	first   time.Duration // before the second try, doubled after that
	most    time.Duration
	wait    bus.WaitFor
	reason  plan.Reason
	letter  bus.LetterClass
}

// retryRules is the whole policy (cases 22, 27 and 51). A class that is missing is permanent.
var retryRules = map[sprites.Class]retryRule{
	sprites.ClassRateLimited:     {patient: true, first: time.Second, most: time.Minute, wait: bus.WaitRate, reason: plan.ReasonProvisionRateLimited, letter: bus.ClassProvisionRateLimited},
	sprites.ClassConcurrentLimit: {patient: true, first: 2 * time.Second, most: time.Minute, wait: bus.WaitCapacity, reason: plan.ReasonProvisionRateLimited, letter: bus.ClassProvisionRateLimited},
	sprites.ClassConflict:        {attempts: 4, first: time.Second, most: 15 * time.Second, wait: bus.WaitCapacity, reason: plan.ReasonProvisionConflict, letter: bus.ClassProvisionConflict},
	sprites.ClassUnavailable:     {attempts: 6, first: 2 * time.Second, most: time.Minute, wait: bus.WaitCapacity, reason: plan.ReasonProvisionFailed, letter: bus.ClassProvisionUnavailable},
	sprites.ClassTimeout:         {attempts: 4, first: 2 * time.Second, most: time.Minute, wait: bus.WaitCapacity, reason: plan.ReasonProvisionFailed, letter: bus.ClassProvisionUnavailable},
	sprites.ClassTransport:       {attempts: 6, first: time.Second, most: time.Minute, wait: bus.WaitCapacity, reason: plan.ReasonProvisionFailed, letter: bus.ClassProvisionUnavailable},
	sprites.ClassNotFound:        {attempts: 2, first: time.Second, most: 5 * time.Second, wait: bus.WaitCapacity, reason: plan.ReasonProvisionFailed, letter: bus.ClassProvisionUnavailable},
	sprites.ClassInvalid:         {reason: plan.ReasonProvisionFailed, letter: bus.ClassProvisionInvalid},
	sprites.ClassUnauthorized:    {reason: plan.ReasonMisconfigured, letter: bus.ClassUnauthorizedProvider},
}

// rule is the retry rule for a failure of the provider. What is no failure of the provider at all is permanent.
func rule(err error) retryRule {
	if errors.Is(err, sprites.ErrWorkspaceUnwritable) {
		return retryRule{reason: plan.ReasonWorkspaceUnwritable, letter: bus.ClassWorkspaceUnwritable}
	}
	if errors.Is(err, sprites.ErrGuardUnwritable) {
		return retryRule{reason: plan.ReasonExecutionFailed, letter: bus.ClassExecutionFailed}
	}
	if r, ok := retryRules[sprites.ClassOf(err)]; ok {
		return r
	}
	return retryRule{reason: plan.ReasonError, letter: bus.ClassExecutionFailed}
}

// delay is how long to wait before try number n+1 (n counts from 1), with jitter of a fifth so that a thousand runs
// that failed together do not come back together. A provider's hint is a lower bound.
func (r retryRule) delay(n int, hint time.Duration, random float64) time.Duration {
	d := r.first
	for i := 1; i < n && d < r.most; i++ {
		d *= 2
	}
	d = max(min(d, r.most), hint)
	return d + time.Duration(random*float64(d)/5)
}
