package bus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// LetterState is where a job's chain of dead letters stands.
type LetterState string

// The closed set of states: dead -> replaying -> resolved, dead again, or discarded.
const (
	LetterDead      LetterState = "dead"
	LetterReplaying LetterState = "replaying"
	LetterResolved  LetterState = "resolved"
	LetterDiscarded LetterState = "discarded"
)

// LetterClass is why a job is dead.
type LetterClass string

// The closed set of classes.
const (
	ClassMalformed            LetterClass = "malformed"
	ClassProvisionUnavailable LetterClass = "provision_unavailable"
	ClassProvisionRateLimited LetterClass = "provision_rate_limited"
	ClassProvisionConflict    LetterClass = "provision_conflict"
	ClassProvisionInvalid     LetterClass = "provision_invalid"
	ClassUnauthorizedProvider LetterClass = "unauthorized_provider"
	ClassWorkspaceUnwritable  LetterClass = "workspace_unwritable"
	ClassExecutionFailed      LetterClass = "execution_failed"
	ClassCrashLoop            LetterClass = "crash_loop"
	ClassOutcomeUnknown       LetterClass = "outcome_unknown"
	ClassReplayDenied         LetterClass = "replay_denied"
)

const (
	maxLetterAttempts = 10
	maxLetterHistory  = 10
	maxLetterText     = 1024 // bytes
	letterVersion     = 1
)

// LetterClasses lists the closed set. The caller may keep the slice.
func LetterClasses() []LetterClass {
	return []LetterClass{ClassMalformed, ClassProvisionUnavailable, ClassProvisionRateLimited, ClassProvisionConflict,
		ClassProvisionInvalid, ClassUnauthorizedProvider, ClassWorkspaceUnwritable, ClassExecutionFailed, ClassCrashLoop,
		ClassOutcomeUnknown, ClassReplayDenied}
}

// Suggestion tells an operator what to do about a class.
func (c LetterClass) Suggestion() string {
	switch c {
	case ClassMalformed:
		return "the publisher sent what is no request; tell its owner, then discard it"
	case ClassProvisionUnavailable:
		return "the provider was down or did not answer; when it answers again, replay a few, then the rest"
	case ClassProvisionRateLimited:
		return "the provider's limit was reached for too long; raise it or wait, then replay slowly (--rate)"
	case ClassProvisionConflict:
		return "others kept changing this sandbox; see `worker sandboxes show`, then replay"
	case ClassProvisionInvalid:
		return "the provider refused what we asked for; compare the sandbox settings with its limits before a replay"
	case ClassUnauthorizedProvider:
		return "the provider refused our token; renew SPRITES_API_TOKEN, run `worker check`, then replay"
	case ClassWorkspaceUnwritable:
		return "the sandbox's disk is full or broken; look at it, or end the session so that a fresh one is made"
	case ClassExecutionFailed:
		return "the sandbox refused to start the command; read the last attempt's error, then replay"
	case ClassCrashLoop:
		return "workers died on it one after another; read their logs before a replay, and replay it alone"
	case ClassOutcomeUnknown:
		return "it may have run; find out whether a second run is harmless, then replay with --force, or discard"
	case ClassReplayDenied:
		return "the replay was denied or came too late; mend the reason that it names, then replay"
	}
	return "read the attempts"
}

// LetterID names a job's chain.
type LetterID struct {
	Tenant string
	Job    string
}

// String is the id as operators write it: tenant/job.
func (id LetterID) String() string { return id.Tenant + "/" + id.Job }

// ParseLetterID reads tenant/job, or a bare job of the given tenant. Errors are ErrInvalid.
func ParseLetterID(s, defaultTenant string) (LetterID, error) {
	tenant, job, ok := strings.Cut(s, "/")
	if !ok {
		tenant, job = defaultTenant, s
	}
	id := LetterID{Tenant: tenant, Job: job}
	if !plan.ValidToken(tenant) || !plan.ValidToken(job) {
		return LetterID{}, fmt.Errorf("%w: %q is no [tenant/]job", ErrInvalid, clip(s))
	}
	return id, nil
}

// Letter is one entry of a job's chain of dead letters. Each entry carries the whole, so that the last one is enough.
type Letter struct {
	V           int         `json:"v"`
	State       LetterState `json:"state"`
	Run         int         `json:"run"` // the run that died, is replayed, or resolved it
	Tenant      string      `json:"tenant"`
	Job         string      `json:"job_id"`
	Kind        Kind        `json:"kind,omitempty"`
	Class       LetterClass `json:"class"`
	Reason      plan.Reason `json:"reason"`
	Message     string      `json:"message,omitempty"` // what went wrong, for a person; at most 1 KiB
	Step        string      `json:"step,omitempty"`    // where: parse, plan, create, lockdown, warm-up, wake, dial, run …
	Status      int         `json:"status,omitempty"`  // the provider's HTTP status
	Code        string      `json:"code,omitempty"`    // the provider's error code
	Fingerprint string      `json:"fingerprint"`       // of class, status, code and step
	// MayHaveRun is true when the command was dialled: a replay needs to be forced.
	MayHaveRun bool   `json:"may_have_run"`
	Actor      *Actor `json:"actor,omitempty"`
	Sandbox    string `json:"sandbox,omitempty"`
	// Attempts are the first and the last nine tries; AttemptCount is how many there were.
	Attempts     []LetterAttempt `json:"attempts,omitempty"`
	AttemptCount int             `json:"attempt_count"`
	Crashes      int             `json:"crashes,omitempty"`
	Queued       uint64          `json:"queued,omitempty"`
	QueuedAt     time.Time       `json:"queued_at,omitzero"`
	DeadAt       time.Time       `json:"dead_at"` // when the first run died
	Worker       string          `json:"worker,omitempty"`
	Traceparent  string          `json:"traceparent,omitempty"`
	Request      string          `json:"request,omitempty"` // hex SHA-256 of the original body
	// Redacted is the request to read: without env values, stdin and what looks like a secret.
	Redacted json.RawMessage `json:"redacted,omitempty"`
	Sealed   *Sealed         `json:"sealed,omitempty"`
	// Replays is how often operators replayed it; By, Why and At tell of the last change by a person.
	Replays int       `json:"replays,omitempty"`
	By      string    `json:"by,omitempty"`
	Why     string    `json:"why,omitempty"`
	At      time.Time `json:"at"` // when this entry was made
	// History holds earlier entries in short, oldest first, the last ten.
	History []LetterMark `json:"history,omitempty"`
}

// LetterAttempt is one try of a run that died.
type LetterAttempt struct {
	At           time.Time `json:"at"`
	Step         string    `json:"step,omitempty"`
	Class        string    `json:"class,omitempty"`
	Status       int       `json:"status,omitempty"`
	Code         string    `json:"code,omitempty"`
	Error        string    `json:"error,omitempty"`
	Held         bool      `json:"held,omitempty"`       // the fleet's gate held it back: the provider was not asked
	RequestID    string    `json:"request_id,omitempty"` // the provider's
	RetryAfterMs int64     `json:"retry_after_ms,omitempty"`
}

// LetterMark is an earlier entry of the chain in short.
type LetterMark struct {
	State  LetterState `json:"state"`
	Run    int         `json:"run"`
	Class  LetterClass `json:"class,omitempty"`
	Reason plan.Reason `json:"reason,omitempty"`
	By     string      `json:"by,omitempty"`
	Why    string      `json:"why,omitempty"`
	At     time.Time   `json:"at"`
}

// ID names the letter's chain.
func (l *Letter) ID() LetterID { return LetterID{Tenant: l.Tenant, Job: l.Job} }

// Fingerprint groups letters that died of the same thing: by class, status, code and step, never by text.
func Fingerprint(class LetterClass, status int, code, step string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(class), strconv.Itoa(status), code, step}, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// MalformedID is the job under which a request without a usable id is kept: the same for each delivery of it.
func MalformedID(tenant string, queued uint64, body []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%d\x00", tenant, queued)
	h.Write(body)
	return "malformed-" + hex.EncodeToString(h.Sum(nil)[:12])
}

// AddAttempt appends a try; beyond ten the first and the last nine are kept, because how it began and how it ended
// tell most.
func (l *Letter) AddAttempt(a LetterAttempt) {
	a.Error = clipText(a.Error)
	l.AttemptCount++
	if len(l.Attempts) >= maxLetterAttempts {
		l.Attempts = append(l.Attempts[:1:1], l.Attempts[2:]...)
	}
	l.Attempts = append(l.Attempts, a)
}

// next is the entry that follows l: it remembers l in short.
func (l Letter) next(state LetterState, at time.Time) Letter {
	mark := LetterMark{State: l.State, Run: l.Run, Class: l.Class, Reason: l.Reason, By: l.By, Why: l.Why, At: l.At}
	history := append(append([]LetterMark(nil), l.History...), mark)
	l.History = history[max(0, len(history)-maxLetterHistory):]
	l.State, l.At, l.By, l.Why = state, at, "", ""
	return l
}

func (l *Letter) validate() error {
	switch {
	case !plan.ValidToken(l.Tenant), !plan.ValidToken(l.Job), l.Run < 0:
		return fmt.Errorf("%w: a dead letter needs tenant, job and run", ErrInvalid)
	case l.Class == "" || !l.Reason.Valid():
		return fmt.Errorf("%w: a dead letter needs a class and a reason", ErrInvalid)
	}
	return nil
}

func clipText(s string) string { return clipTo(s, maxLetterText) }

// clipTo cuts s to at most n bytes and a mark, never inside a character.
func clipTo(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// AfterReplay says what a replay's outcome makes of its letter: resolved when the run came to an end of its own,
// dead again when nothing ran.
func AfterReplay(outcome plan.Outcome) LetterState {
	switch outcome {
	case plan.OutcomeExited, plan.OutcomeTimedOut, plan.OutcomeOutputLimit, plan.OutcomeCanceled, plan.OutcomeOpened,
		plan.OutcomeEnded:
		return LetterResolved
	case plan.OutcomeDenied, plan.OutcomeExpired, plan.OutcomeFailed, plan.OutcomeLost:
		return LetterDead
	}
	return LetterDead
}
