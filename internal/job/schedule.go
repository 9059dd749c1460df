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

// heldMost is the longest that a run which an outage's gate holds back sleeps without asking again. A parked run's look
// costs a few messages, and a thousand of them may wait.
const heldMost = 20 * time.Second

// trying is what a run has tried so far, its newest failure apart.
type trying struct {
	// held is true when the newest failure was the gate's, not the provider's.
	held     bool
	failures []bus.Failure
	// spent is the time since the first failure.
	spent, hint time.Duration
	random      float64
	// create and outage are the patience with a provider that says "not now" and with one that is away.
	create, outage time.Duration
}

// burned counts the tries that a provider failed, the newest included.
func (t trying) burned() int {
	n := 0
	if !t.held {
		n++
	}
	for _, f := range t.failures {
		if !f.Held && !retryRules[sprites.Class(f.Class)].patient {
			n++
		}
	}
	return n
}

// next is how long to wait before the next try; again is false when there is none. A try that the gate held back burns
// nothing, because nobody was asked; the patience bounds it, so that the end of a short outage finds the run waiting.
// Tries of which the provider was asked end by their number or the patience, whichever comes first, but not before the
// second.
func (r retryRule) next(t trying) (delay time.Duration, again bool) {
	switch {
	case r.patient && t.held:
		delay = spread(max(min(max(t.spent/2, r.first), r.most), t.hint), t.random)
		return delay, t.spent+delay <= t.create
	case r.patient:
		delay = r.delay(len(t.failures)+1, t.hint, t.random)
		return delay, t.spent+delay <= t.create
	case t.held:
		delay = spread(max(min(max(t.spent/2, r.first), heldMost), t.hint), t.random)
		return min(delay, t.outage-t.spent), t.spent < t.outage // the last look is at the very end
	}
	n := t.burned()
	delay = r.delay(n, t.hint, t.random)
	if n > 1 {
		delay = min(delay, t.outage-t.spent)
	}
	return delay, n < r.attempts && delay > 0
}

// heldBack reports that the fleet's gate refused a call.
func heldBack(err error) bool {
	var closed *sprites.GateClosed
	return errors.As(err, &closed)
}

// delay is how long to wait before try number n+1 (n counts from 1), with jitter of a fifth so that a thousand runs
// that failed together do not come back together. A provider's hint is a lower bound.
func (r retryRule) delay(n int, hint time.Duration, random float64) time.Duration {
	d := r.first
	for i := 1; i < n && d < r.most; i++ {
		d *= 2
	}
	return spread(max(min(d, r.most), hint), random)
}

func spread(d time.Duration, random float64) time.Duration {
	return d + time.Duration(random*float64(d)/5)
}
