package bus

import (
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// The messages of the core request/reply endpoints, of the authorisation callout and of the fleet's switch. Each
// has a JSON Schema in docs/schema.

// FileReadParams is the body of sandbox.file.read: one bounded file of a conversation's sandbox.
type FileReadParams struct {
	V              int    `json:"v"`
	ConversationID string `json:"conversation_id"`
	DriveID        string `json:"drive_id,omitempty"`
	Path           string `json:"path"`
	Offset         int64  `json:"offset,omitempty"`    // bytes from the file's start
	MaxBytes       int64  `json:"max_bytes,omitempty"` // 0 means as much as one message takes
}

// FileWriteParams is the header Wb-Params of sandbox.file.write, whose body is the file's bytes.
type FileWriteParams struct {
	V              int    `json:"v"`
	ConversationID string `json:"conversation_id"`
	DriveID        string `json:"drive_id,omitempty"`
	Path           string `json:"path"`
	Mode           string `json:"mode,omitempty"` // octal: 0644
}

// FileWritten is the answer of sandbox.file.write.
type FileWritten struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
}

// HistoryRequest is the body of sandbox.history: a run's stored events from a sequence on.
type HistoryRequest struct {
	V       int    `json:"v"`
	JobID   string `json:"job_id"`
	Run     int    `json:"run,omitempty"`
	FromSeq uint64 `json:"from_seq,omitempty"` // 0 means 1
}

// JobState says in one word where a job is.
type JobState string

// The closed set of job states: queued until its command is dialled, ended once it has its result.
const (
	JobQueued  JobState = "queued"
	JobRunning JobState = "running"
	JobEnded   JobState = "ended"
)

// JobsRequest is the body of sandbox.jobs: a tenant's jobs, newest first.
type JobsRequest struct {
	V              int      `json:"v"`
	ConversationID string   `json:"conversation_id,omitempty"`
	State          JobState `json:"state,omitempty"`
	Limit          int      `json:"limit,omitempty"` // 1 to 500; 0 means 50
}

// JobsAnswer is the answer of sandbox.jobs.
type JobsAnswer struct {
	Jobs []JobSummary `json:"jobs"`
	// Partial is true when the search ended at its bound, so that older jobs may be missing.
	Partial bool `json:"partial,omitempty"`
}

// JobSummary is one run as lists show it. LastEvent is empty while no worker has taken the request yet.
type JobSummary struct {
	JobID          string       `json:"job_id"`
	Run            int          `json:"run"`
	Kind           Kind         `json:"kind,omitempty"`
	ConversationID string       `json:"conversation_id,omitempty"`
	PageID         string       `json:"page_id,omitempty"`
	State          JobState     `json:"state"`
	LastEvent      EventKind    `json:"last_event"`
	LastAt         time.Time    `json:"last_at,omitzero"`
	WaitsFor       WaitFor      `json:"waits_for,omitempty"`
	Outcome        plan.Outcome `json:"outcome,omitempty"`
	QueuedAt       time.Time    `json:"queued_at,omitzero"`
	StartedAt      time.Time    `json:"started_at,omitzero"`
}

// AuthzAction is what somebody wants to do.
type AuthzAction string

// The closed set of actions.
const (
	AuthzExec      AuthzAction = "exec"
	AuthzTerminal  AuthzAction = "terminal"
	AuthzFileRead  AuthzAction = "file_read"
	AuthzFileWrite AuthzAction = "file_write"
)

// AuthzRequest is the body of authz.can_run_code, answered by the web app.
type AuthzRequest struct {
	V              int         `json:"v"`
	Action         AuthzAction `json:"action"`
	Tenant         string      `json:"tenant"`
	User           string      `json:"user"`
	ConversationID string      `json:"conversation_id,omitempty"`
	PageID         string      `json:"page_id,omitempty"`
	DriveID        string      `json:"drive_id,omitempty"`
	AgentPageID    string      `json:"agent_page_id,omitempty"`
	JobID          string      `json:"job_id,omitempty"`
}

// AuthzAnswer is the web app's answer: allow with a tier, or not with a reason.
type AuthzAnswer struct {
	Allow  bool        `json:"allow"`
	Tier   plan.Tier   `json:"tier,omitempty"`
	Reason plan.Reason `json:"reason,omitempty"`
}

// ExecutionSwitch is the body of sandbox.control.execution: the whole fleet's switch. Off beats every worker's own
// setting; on only takes the off away.
type ExecutionSwitch struct {
	On  bool      `json:"on"`
	By  string    `json:"by"`
	Why string    `json:"why"`
	At  time.Time `json:"at"`
	// Unreadable is true when what is stored is no switch: it counts as off, and only whoever sets the switch mends it.
	Unreadable bool `json:"unreadable,omitempty"`
}
