package bus

import (
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// EventKind is the word in Wb-Event.
type EventKind string

// The closed set of events. The first group are state events (JSON), the second output events.
const (
	EventAccepted  EventKind = "accepted"
	EventWaiting   EventKind = "waiting"
	EventPlanned   EventKind = "planned"
	EventDialing   EventKind = "dialing"
	EventStarted   EventKind = "started"
	EventStopping  EventKind = "stopping"
	EventTakenOver EventKind = "taken_over"
	EventHeartbeat EventKind = "heartbeat"
	EventResult    EventKind = "result"

	EventStdout EventKind = "stdout"
	EventStderr EventKind = "stderr"
	EventGap    EventKind = "gap"
)

// IsOutput reports whether the kind belongs to the output chain.
func (k EventKind) IsOutput() bool { return k == EventStdout || k == EventStderr || k == EventGap }

// Event is one stored event of a run, as a reader gets it. Data is raw bytes for stdout and stderr, JSON otherwise.
type Event struct {
	Kind         EventKind
	Key          RunKey
	Seq          uint64 // Wb-Seq: 1, 2, 3 … over state and output together
	Owner        string // <worker>.<epoch>, or NoOwner
	Request      string // hex SHA-256 of the request's body
	StdoutOffset int64  // bytes of stdout delivered before this event
	StderrOffset int64
	Traceparent  string
	Time         time.Time // when the broker stored it; zero for a live copy
	StreamSeq    uint64    // the stream's own sequence; the expected value of the next compare-and-set
	Data         []byte
}

// Actor is who a request was verified to come from. It is kept in the journal; retries and take-overs use it.
type Actor struct {
	Tenant       string    `json:"tenant"`
	User         string    `json:"user"`
	Tier         plan.Tier `json:"tier"`
	Drive        string    `json:"drive,omitempty"`
	AgentPage    string    `json:"agent_page,omitempty"`
	Conversation string    `json:"conversation,omitempty"`
	Page         string    `json:"page,omitempty"`
	// Operator is who asked for a replay; the other fields are then the original actor.
	Operator string `json:"operator,omitempty"`
}

// Stop is an announced stop.
type Stop struct {
	Reason plan.StopReason `json:"reason"`
	By     string          `json:"by,omitempty"`
	Why    string          `json:"why,omitempty"`
	At     time.Time       `json:"at"`
	// Lost is set when the owner could not follow the command any more: the run then ends as lost, with a dead letter of
	// this class, and not with the reason's outcome.
	Lost LetterClass `json:"lost,omitempty"`
}

// Record is the whole state of a run. Every state event carries it, so that a taker reads one message.
type Record struct {
	Phase    plan.Phase  `json:"phase"`
	Attempt  int         `json:"attempt"`
	Crashes  int         `json:"crashes"`
	Queued   uint64      `json:"queued"`
	QueuedAt time.Time   `json:"queued_at,omitzero"`
	Kind     Kind        `json:"kind,omitempty"`
	Actor    *Actor      `json:"actor,omitempty"`
	Sandbox  string      `json:"sandbox,omitempty"`
	Plan     plan.Action `json:"plan,omitempty"`
	Why      plan.Why    `json:"why,omitempty"`
	Fresh    bool        `json:"fresh,omitempty"`
	Woke     string      `json:"woke,omitempty"`
	Lease    string      `json:"lease,omitempty"`
	Fence    int64       `json:"fence,omitempty"`
	Instance string      `json:"instance,omitempty"`
	Session  string      `json:"session,omitempty"`
	Created  int64       `json:"created,omitempty"`
	LimitAt  time.Time   `json:"limit_at,omitzero"`
	Stop     *Stop       `json:"stop,omitempty"`
	// Detached is true once the run changed hands after its command was dialled.
	Detached bool `json:"detached,omitempty"`
	// Timing holds what earlier owners have measured so far.
	Timing Timing `json:"timing,omitzero"`
	// StartedAt is when the command was known to run.
	StartedAt time.Time `json:"started_at,omitzero"`
	// TryingSince is when preparing the sandbox first failed; the creation's patience counts from it.
	TryingSince time.Time `json:"trying_since,omitzero"`
	// Failures are the latest failures to prepare the sandbox, oldest first, at most MaxFailures.
	Failures []Failure `json:"failures,omitempty"`
}

// MaxFailures is how many failures a record keeps; the oldest go first, except the very first.
const MaxFailures = 10

// Failure is one failed try to prepare a run's sandbox. It holds no text of the provider's.
type Failure struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	// Step is what was tried: create, resume, delete, dial.
	Step      string `json:"step"`
	Class     string `json:"class"`
	Status    int    `json:"status,omitempty"`
	Code      string `json:"code,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	// Held is true when the fleet's gate held the try back: the provider was not asked.
	Held bool `json:"held,omitempty"`
}

// Fail notes a failed try. One that was held back counts no attempt, and replaces the one before it that was held back, too.
func (r *Record) Fail(f Failure, since time.Time) {
	f.Attempt = r.Attempt
	kept := append([]Failure(nil), r.Failures...)
	switch n := len(kept); {
	case f.Held && n > 0 && kept[n-1].Held:
		kept = kept[:n-1]
	case n >= MaxFailures:
		kept = append(kept[:1], kept[2:]...)
	}
	r.Failures = append(kept, f)
	if !f.Held {
		r.Attempt++
	}
	if r.TryingSince.IsZero() {
		r.TryingSince = since
	}
}

// Timing is how long each stage took, in milliseconds.
type Timing struct {
	Queued    int64 `json:"queued"`
	Authorize int64 `json:"authorize"`
	Lease     int64 `json:"lease"`
	Plan      int64 `json:"plan"`
	Provision int64 `json:"provision"`
	Wake      int64 `json:"wake"`
	Run       int64 `json:"run"`
	Total     int64 `json:"total"`
	Attempts  int   `json:"attempts"`
	Detached  bool  `json:"detached"`
}

// WaitFor says what a parked run waits for.
type WaitFor string

// The closed set of what a run may wait for.
const (
	WaitLimit    WaitFor = "limit"
	WaitRate     WaitFor = "rate"
	WaitCapacity WaitFor = "capacity"
	WaitLink     WaitFor = "link"
	WaitSerial   WaitFor = "serial"
	WaitRedis    WaitFor = "redis"
	WaitWorker   WaitFor = "worker"
)

// WaitCauses lists the closed set of what a run may wait for. The caller may keep the slice.
func WaitCauses() []WaitFor {
	return []WaitFor{WaitLimit, WaitRate, WaitCapacity, WaitLink, WaitSerial, WaitRedis, WaitWorker}
}

// AcceptedBody is the body of accepted.
type AcceptedBody struct {
	Actor *Actor `json:"actor,omitempty"`
	Run   Record `json:"run"`
}

// WaitingBody is the body of waiting: nobody owns the run until then.
type WaitingBody struct {
	For   WaitFor   `json:"for"`
	Scope string    `json:"scope,omitempty"`
	Until time.Time `json:"until"`
	// Why says more than the word: the class and step of the failure that made it wait.
	Why string `json:"why,omitempty"`
	Run Record `json:"run"`
}

// PlannedBody is the body of planned.
type PlannedBody struct {
	Plan plan.Action `json:"plan"`
	Why  plan.Why    `json:"why"`
	Run  Record      `json:"run"`
}

// DialingBody is the body of dialing: from here on the command may run.
type DialingBody struct {
	Try   int    `json:"try"`
	Fresh bool   `json:"fresh"`
	Run   Record `json:"run"`
}

// StartedBody is the body of started: the command runs and its stdin is in.
type StartedBody struct {
	Run Record `json:"run"`
}

// StoppingBody is the body of stopping: nobody signals a process before this is stored.
type StoppingBody struct {
	Reason plan.StopReason `json:"reason"`
	By     string          `json:"by,omitempty"`
	Run    Record          `json:"run"`
}

// TakenOverBody is the body of taken_over.
type TakenOverBody struct {
	From string `json:"from"`
	Run  Record `json:"run"`
}

// HeartbeatBody is the body of heartbeat, at most one in 30 s.
type HeartbeatBody struct {
	RunningMs   int64  `json:"running_ms"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	Run         Record `json:"run"`
}

// GapBody is the body of gap. Bytes is nil where the number cannot be known.
type GapBody struct {
	Stream string `json:"stream"`
	Bytes  *int64 `json:"bytes"`
	Why    string `json:"why"`
}

// The closed sets of GapBody's fields.
const (
	GapStdout       = "stdout"
	GapStderr       = "stderr"
	GapBoth         = "both"
	GapWhyCap       = "cap"
	GapWhyTakeover  = "takeover"
	GapWhyRetention = "retention"
)

// Preview is the head and tail of one output stream; Tail is absent when Head is all of it. Base64 in JSON.
type Preview struct {
	Head []byte `json:"head"`
	Tail []byte `json:"tail,omitempty"`
}

// OutputPreviews holds 32 KiB of head and tail for each stream.
type OutputPreviews struct {
	Stdout Preview `json:"stdout"`
	Stderr Preview `json:"stderr"`
}

// ResultBody is the body of result, the one event that ends a run.
type ResultBody struct {
	Outcome  plan.Outcome `json:"outcome"`
	Reason   plan.Reason  `json:"reason,omitempty"`
	Message  string       `json:"message,omitempty"` // a sentence for a person; names the field of an invalid request
	Class    string       `json:"class,omitempty"`
	ExitCode *int         `json:"exit_code,omitempty"` // 0 to 255, only with exited
	Signal   string       `json:"signal,omitempty"`
	Hint     string       `json:"hint,omitempty"`
	// ExitSource is frame or file, only with exited.
	ExitSource   string      `json:"exit_source,omitempty"`
	Retryable    bool        `json:"retryable,omitempty"`
	RetryAfterMs int64       `json:"retry_after_ms,omitempty"`
	DeadLetter   string      `json:"dead_letter,omitempty"` // the dead letter's ID: tenant/job
	LimitMs      int64       `json:"limit_ms,omitempty"`
	Stopped      string      `json:"stopped,omitempty"` // confirmed or not_confirmed, when we stopped it
	By           string      `json:"by,omitempty"`
	Sandbox      string      `json:"sandbox,omitempty"`
	Plan         plan.Action `json:"plan,omitempty"`
	Why          plan.Why    `json:"why,omitempty"`
	Fresh        bool        `json:"fresh"`
	Woke         string      `json:"woke,omitempty"` // warm, cold, none or unknown
	StdoutBytes  int64       `json:"stdout_bytes"`
	StderrBytes  int64       `json:"stderr_bytes"`
	// ProducedBytes is what the command wrote in all; more than the two above when output was cut.
	ProducedBytes int64           `json:"produced_bytes,omitempty"`
	Truncated     bool            `json:"truncated"`
	Output        *OutputPreviews `json:"output,omitempty"`
	Timing        Timing          `json:"timing"`
	// LeaseTicket goes with opened.
	LeaseTicket *LeaseTicket `json:"lease,omitempty"`
	// Pending and Canceled go with ended.
	Pending  *bool    `json:"pending,omitempty"`
	Canceled []string `json:"canceled,omitempty"`
	Run      Record   `json:"run"`
}

// LeaseTicket is what a gateway needs to take a terminal's lease over: acquiring the same id transfers it.
type LeaseTicket struct {
	ID      string    `json:"id"`
	Fence   int64     `json:"fence"`
	Expires time.Time `json:"expires"`
}
