package bus

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/wakebus/wakebus/internal/plan"
)

// The streams and buckets of one deployment.
const (
	StreamSandbox = "SANDBOX"
	StreamRetry   = "SANDBOX_RETRY"
	StreamJobs    = "SANDBOX_JOBS"
	StreamOutput  = "SANDBOX_OUTPUT"
	StreamControl = "SANDBOX_CONTROL"
	StreamDLQ     = "SANDBOX_DLQ"
	StreamAudit   = "SANDBOX_AUDIT"
	BucketLinks   = "SANDBOX_LINKS"
)

// The fixed subjects and subject prefixes of the contract.
const (
	SubjectExec        = "sandbox.exec"
	SubjectTerminal    = "terminal.open"
	SubjectEnd         = "sandbox.end"
	SubjectRetryAt     = "sandbox.retry.at"
	SubjectRetryDue    = "sandbox.retry.due"
	SubjectEvent       = "sandbox.event"
	SubjectReply       = "sandbox.reply"
	SubjectCancel      = "sandbox.cancel"
	SubjectExecution   = "sandbox.control.execution"
	SubjectDLQ         = "sandbox.dlq"
	SubjectAudit       = "sandbox.audit"
	SubjectCallExec    = "sandbox.call.exec"
	SubjectFileRead    = "sandbox.file.read"
	SubjectFileWrite   = "sandbox.file.write"
	SubjectHistory     = "sandbox.history"
	SubjectJobs        = "sandbox.jobs"
	SubjectAuthzAnswer = "authz.can_run_code"
)

// Kind is what a request asks for; it is also the last but one token of a due retry's subject.
type Kind string

// The closed set of kinds.
const (
	KindExec     Kind = "exec"
	KindTerminal Kind = "terminal"
	KindEnd      Kind = "end"
)

// RunKey names one run of one job of one tenant. All three parts stand in every subject that is derived from it,
// so that no tenant can reach another's.
type RunKey struct {
	Tenant string
	Job    string
	Run    int
}

// String is the key as people read it: tenant/job.run.
func (k RunKey) String() string { return k.Tenant + "/" + k.Job + "." + strconv.Itoa(k.Run) }

// ParseRunKey reads what String wrote.
func ParseRunKey(s string) (RunKey, error) {
	tenant, rest, ok := strings.Cut(s, "/")
	dot := strings.LastIndexByte(rest, '.')
	if !ok || dot < 0 {
		return RunKey{}, fmt.Errorf("%q names no run", s)
	}
	run, err := strconv.Atoi(rest[dot+1:])
	key := RunKey{Tenant: tenant, Job: rest[:dot], Run: run}
	if err != nil || !key.Valid() {
		return RunKey{}, fmt.Errorf("%q names no run", s)
	}
	return key, nil
}

// Valid reports whether the parts may become subject tokens.
func (k RunKey) Valid() bool {
	return plan.ValidToken(k.Tenant) && plan.ValidToken(k.Job) && k.Run >= 0
}

func (k RunKey) tokens() string { return k.Tenant + "." + k.Job + "." + strconv.Itoa(k.Run) }

// StateEventSubject is where an owner publishes the run's journal.
func (k RunKey) StateEventSubject() string { return SubjectEvent + "." + k.tokens() + ".state" }

// OutputEventSubject is where an owner publishes the run's output.
func (k RunKey) OutputEventSubject() string { return SubjectEvent + "." + k.tokens() + ".out" }

// StateReplySubject is the journal's subject as stored and as readers see it.
func (k RunKey) StateReplySubject() string { return SubjectReply + "." + k.tokens() + ".state" }

// OutputReplySubject is the output's subject as stored and as readers see it.
func (k RunKey) OutputReplySubject() string { return SubjectReply + "." + k.tokens() + ".out" }

// RetryAtSubject is the one subject on which this run may be parked; a second publish replaces the first.
func (k RunKey) RetryAtSubject() string { return SubjectRetryAt + "." + k.tokens() }

// JobReplySubject matches all events of all runs of a job. It is what callers subscribe to.
func JobReplySubject(tenant, job string) string {
	return SubjectReply + "." + tenant + "." + job + ".>"
}

// DLQSubject is the chain of a job's dead letters.
func DLQSubject(tenant, job string) string { return SubjectDLQ + "." + tenant + "." + job }

// CancelJobSubject is where a job is marked as canceled.
func CancelJobSubject(tenant, job string) string { return SubjectCancel + "." + tenant + ".job." + job }

// CancelConversationSubject is where a conversation's jobs are marked as canceled.
func CancelConversationSubject(tenant, conversation string) string {
	return SubjectCancel + "." + tenant + ".conversation." + conversation
}

// RequestSubject is where a request of this kind is published for a tenant; without one it is the untenanted
// subject, which sandbox.end does not have.
func RequestSubject(kind Kind, tenant string) string {
	base := SubjectExec
	switch kind {
	case KindExec:
	case KindTerminal:
		base = SubjectTerminal
	case KindEnd:
		base = SubjectEnd
	}
	if tenant == "" || tenant == plan.NoTenant {
		return base
	}
	return base + "." + tenant
}

// ParseRunSubject reads the run's key and the last token (state or out) from a subject made by RunKey.
func ParseRunSubject(subject string) (RunKey, string, error) {
	rest, ok := strings.CutPrefix(subject, SubjectReply+".")
	if !ok {
		rest, ok = strings.CutPrefix(subject, SubjectEvent+".")
	}
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 4 {
		return RunKey{}, "", fmt.Errorf("subject %q names no run", subject)
	}
	run, err := strconv.Atoi(parts[2])
	key := RunKey{Tenant: parts[0], Job: parts[1], Run: run}
	if err != nil || !key.Valid() {
		return RunKey{}, "", fmt.Errorf("subject %q names no run", subject)
	}
	return key, parts[3], nil
}
