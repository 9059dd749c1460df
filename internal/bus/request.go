package bus

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// The limits of a request. Sizes are in bytes.
const (
	MaxStdin        = 64 << 10
	MaxCommand      = 16 << 10
	MaxArgv         = 256
	MaxEnv          = 128
	MaxEnvBytes     = 32 << 10
	DefaultTimeout  = 120 * time.Second
	MinTimeout      = 100 * time.Millisecond
	MaxTimeout      = 12 * time.Hour
	MaxDeadline     = 12 * time.Hour
	DefaultDeadline = 10 * time.Minute
)

// ExecRequest is the body of sandbox.exec: run a command in a conversation's sandbox. See ParseExec for what is checked.
type ExecRequest struct {
	V              int               `json:"v"`
	JobID          string            `json:"job_id"`
	ConversationID string            `json:"conversation_id"`
	DriveID        string            `json:"drive_id,omitempty"`
	Argv           []string          `json:"argv,omitempty"`
	Shell          string            `json:"shell,omitempty"`
	Cwd            string            `json:"cwd,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	Stdin          []byte            `json:"stdin,omitempty"`
	TimeoutMs      int64             `json:"timeout_ms,omitempty"`
	StreamBytes    int64             `json:"stream_bytes,omitempty"`
	OnOutputLimit  string            `json:"on_output_limit,omitempty"`
	Deadline       *time.Time        `json:"deadline,omitempty"`
	OnLimit        string            `json:"on_limit,omitempty"`
	Order          string            `json:"order,omitempty"`
	FreshStart     bool              `json:"fresh_start,omitempty"`
}

// The values of ExecRequest's closed fields; the first of each pair is the default.
const (
	OnOutputLimitTrim = "trim"
	OnOutputLimitKill = "kill"
	OnLimitDeny       = "deny"
	OnLimitWait       = "wait"
	OrderParallel     = "parallel"
	OrderSerial       = "serial"
)

// TerminalRequest is the body of terminal.open: a slot and an awake Sprite for a page's PTY.
type TerminalRequest struct {
	V        int        `json:"v"`
	OpenID   string     `json:"open_id"`
	PageID   string     `json:"page_id"`
	DriveID  string     `json:"drive_id,omitempty"`
	Cols     int        `json:"cols"`
	Rows     int        `json:"rows"`
	Deadline *time.Time `json:"deadline,omitempty"`
}

// EndRequest is the body of sandbox.end: the session is over, tear its sandbox down. Exactly one of the two ids is set.
type EndRequest struct {
	V              int    `json:"v"`
	JobID          string `json:"job_id"`
	ConversationID string `json:"conversation_id,omitempty"`
	PageID         string `json:"page_id,omitempty"`
	DriveID        string `json:"drive_id,omitempty"`
}

// CancelRequest is the optional body of a cancel: who asks and why.
type CancelRequest struct {
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
}

// RequestHash is the hex SHA-256 of a request's body: what Wb-Request says of a job, and what a grant may be bound to.
func RequestHash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
