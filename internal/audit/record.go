package audit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// Kind is what a record is about.
type Kind string

// The closed set of kinds.
const (
	KindRun      Kind = "run"
	KindBlock    Kind = "block"
	KindOpen     Kind = "open"
	KindClose    Kind = "close"
	KindTeardown Kind = "teardown"
	KindReplay   Kind = "replay"
	KindRelease  Kind = "release"
	KindFile     Kind = "file"
	KindOperate  Kind = "operate"
)

// Kinds lists the closed set. The caller may keep the slice.
func Kinds() []Kind {
	return []Kind{KindRun, KindBlock, KindOpen, KindClose, KindTeardown, KindReplay, KindRelease, KindFile, KindOperate}
}

// Valid reports whether k is one of the closed set.
func (k Kind) Valid() bool {
	switch k {
	case KindRun, KindBlock, KindOpen, KindClose, KindTeardown, KindReplay, KindRelease, KindFile, KindOperate:
		return true
	}
	return false
}

// Actor is who did it.
type Actor struct {
	User      string    `json:"user,omitempty"`
	Tier      plan.Tier `json:"tier,omitempty"`
	AgentPage string    `json:"agent_page,omitempty"`
	Drive     string    `json:"drive,omitempty"`
	// Operator is set when an operator did it, or asked for it in the user's stead.
	Operator string `json:"operator,omitempty"`
}

// Usage is what a run used, for whoever meters.
type Usage struct {
	// ActiveS is how many seconds the command ran.
	ActiveS float64 `json:"active_s"`
	// Wakes is how many sleeping VMs were woken for it.
	Wakes int `json:"wakes"`
	// Bytes is how much output it produced.
	Bytes int64     `json:"bytes"`
	Tier  plan.Tier `json:"tier,omitempty"`
}

// Record is one audit record. Tenant, Kind and ID make its subject.
type Record struct {
	V      int       `json:"v"`
	Time   time.Time `json:"time"`
	Kind   Kind      `json:"kind"`
	Tenant string    `json:"tenant"`
	// ID is one or more tokens of [A-Za-z0-9_-] joined by dots; a run's is RunID.
	ID    string `json:"id"`
	Actor Actor  `json:"actor"`
	// Action is what was asked for: exec, terminal, end, file_read, file_write, or an operator's verb.
	Action       string `json:"action,omitempty"`
	Job          string `json:"job_id,omitempty"`
	Run          int    `json:"run,omitempty"`
	Conversation string `json:"conversation_id,omitempty"`
	Page         string `json:"page_id,omitempty"`
	// Command is redacted and capped, see Command.
	Command string `json:"command,omitempty"`
	Path    string `json:"path,omitempty"`
	// Outcome of a file call is exited (it was done), denied or failed.
	Outcome  plan.Outcome `json:"outcome,omitempty"`
	Reason   plan.Reason  `json:"reason,omitempty"`
	ExitCode *int         `json:"exit_code,omitempty"`
	// Detail is redacted and capped too.
	Detail     string      `json:"detail,omitempty"`
	DurationMs int64       `json:"duration_ms"`
	Anomaly    bool        `json:"anomaly"`
	Sandbox    string      `json:"sandbox,omitempty"`
	Plan       plan.Action `json:"plan,omitempty"`
	Why        plan.Why    `json:"why,omitempty"`
	Lease      string      `json:"lease,omitempty"`
	Fence      int64       `json:"fence,omitempty"`
	Worker     string      `json:"worker,omitempty"`
	Usage      *Usage      `json:"usage,omitempty"`
}

// RunID is the id of a run's one record.
func RunID(job string, run int) string { return job + "." + strconv.Itoa(run) }

// Validate reports what keeps the record from having a subject.
func (r Record) Validate() error {
	var errs []error
	if !r.Kind.Valid() {
		errs = append(errs, fmt.Errorf("audit kind %q is not known", r.Kind))
	}
	if !plan.ValidToken(r.Tenant) {
		errs = append(errs, errors.New("audit tenant is no token"))
	}
	tokens := strings.Split(r.ID, ".")
	if len(tokens) > 4 {
		errs = append(errs, errors.New("audit id has more than four tokens"))
	}
	for _, token := range tokens {
		if !plan.ValidToken(token) {
			errs = append(errs, errors.New("audit id is not made of tokens"))
			break
		}
	}
	return errors.Join(errs...)
}

// cleaned is the record with its free text redacted and capped.
func (r Record) cleaned() Record {
	r.Command = capped(Redact(r.Command), MaxCommand)
	r.Path = capped(Redact(r.Path), MaxCommand)
	r.Detail = capped(Redact(r.Detail), MaxCommand)
	return r
}
