package job

import (
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// ending is how a run leaves this worker. Exactly one of its kinds applies.
type ending struct {
	kind endingKind
	// result ends the run; with kindResult.
	result bus.ResultBody
	// wait parks the run; with kindPark.
	wait parking
	// keepLease leaves the lease to its expiry: the process may still run.
	keepLease bool
	// letter asks for a dead letter of this class.
	letter bus.LetterClass
	// mutate changes the record together with the event that says it; may be nil.
	mutate func(*bus.Record)
	// unavailable is the reason to end with once the deadline has passed while waiting.
	unavailable plan.Reason
	// cause is what made it end so, for the log.
	cause error
}

type endingKind int

const (
	// kindResult: publish the result.
	kindResult endingKind = iota
	// kindPark: say waiting, park the request by schedule, ack.
	kindPark
	// kindFenced: another owner has it; say nothing.
	kindFenced
	// kindHandOver: this worker leaves; a peer goes on at once.
	kindHandOver
	// kindRejoin: the command may run without us; find out what became of it.
	kindRejoin
	// kindAbandon: nothing may be said now (the broker is away); the message comes again by itself.
	kindAbandon
)

// parking is what a parked run waits for, and until when.
type parking struct {
	what  bus.WaitFor
	scope string
	until time.Time
	why   string
}

// unfinished reports an ending that something broken brought about, before the command could run.
func (e *ending) unfinished() bool {
	return e.kind == kindAbandon || e.kind == kindResult && e.result.Outcome == plan.OutcomeFailed && e.cause != nil
}

func fenced() *ending { return &ending{kind: kindFenced} }

func rejoin(cause error) *ending { return &ending{kind: kindRejoin, cause: cause} }

// denied ends a run that policy, authorisation or a limit refused. Nothing ran.
func denied(reason plan.Reason, message string) *ending {
	return &ending{result: bus.ResultBody{
		Outcome: plan.OutcomeDenied, Reason: reason, Message: sentence(reason, message), Retryable: reason.Retryable(),
		Plan: plan.ActionDeny, Why: plan.Why(reason),
	}}
}

func deniedAfter(reason plan.Reason, message string, retryAfter time.Duration) *ending {
	e := denied(reason, message)
	e.result.RetryAfterMs = retryAfter.Milliseconds()
	return e
}

// failed ends a run that could not be prepared or started. It did not run.
func failed(reason plan.Reason, class bus.LetterClass, message string, cause error) *ending {
	return &ending{cause: cause, letter: class, result: bus.ResultBody{
		Outcome: plan.OutcomeFailed, Reason: reason, Class: string(class), Message: sentence(reason, message), Retryable: reason.Retryable(),
	}}
}

// lost ends a run that may have run and of which nothing can say how it ended.
func lost(message string, cause error) *ending {
	return &ending{cause: cause, keepLease: true, letter: bus.ClassOutcomeUnknown, result: bus.ResultBody{
		Outcome: plan.OutcomeLost, Class: string(bus.ClassOutcomeUnknown), Message: message,
	}}
}

// gaveUp ends a run because a part that is needed stayed away for too long. Nothing is wrong with the run, so it leaves
// no dead letter; its caller may send it again.
func gaveUp(reason plan.Reason, cause error) *ending {
	e := failed(reason, "", "", cause)
	e.letter = ""
	return e
}

func expired(message string) *ending {
	return &ending{result: bus.ResultBody{Outcome: plan.OutcomeExpired, Message: message}}
}

func canceled(by, why string) *ending {
	return &ending{result: bus.ResultBody{Outcome: plan.OutcomeCanceled, By: by, Message: why}}
}

func park(what bus.WaitFor, scope string, until time.Time, why string) *ending {
	return &ending{kind: kindPark, wait: parking{what: what, scope: scope, until: until, why: why}}
}

func sentence(reason plan.Reason, detail string) string {
	if detail == "" {
		return reason.Sentence()
	}
	return reason.Sentence() + " " + detail
}
