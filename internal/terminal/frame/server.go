package frame

import "fmt"

// Phase is how far a terminal has come, as a person may see it.
type Phase string

// The closed set of phases. What arrives between replaying and live is old: a client must not answer a terminal query
// in it.
const (
	PhaseWaking    Phase = "waking"
	PhaseAttaching Phase = "attaching"
	PhaseReplaying Phase = "replaying"
	PhaseLive      Phase = "live"
)

// Code says which recoverable or fatal error a frame of type error reports.
type Code string

// The closed set of error codes that are the edge's own; a fatal error may also carry one of the reason codes of the
// message contract (such as concurrency_limit).
const (
	CodeBadFrame       Code = "bad_frame"
	CodeInputTooLarge  Code = "input_too_large"
	CodeInputOverflow  Code = "input_overflow"
	CodeInputUncertain Code = "input_uncertain"
	CodeReadOnly       Code = "read_only"
	CodeGrantRefused   Code = "grant_refused"
	CodeGrantNeeded    Code = "grant_needed"
	CodeTooMany        Code = "too_many"
)

// CloseReason says why a terminal's socket ends.
type CloseReason string

// The closed set of close reasons.
const (
	ReasonExited     CloseReason = "exited"
	ReasonGone       CloseReason = "gone"
	ReasonDetached   CloseReason = "detached"
	ReasonRestarting CloseReason = "restarting"
	ReasonRevoked    CloseReason = "revoked"
	ReasonDenied     CloseReason = "denied"
	ReasonSlow       CloseReason = "slow"
	ReasonReplaced   CloseReason = "replaced"
	ReasonTooMany    CloseReason = "too_many"
	ReasonFailed     CloseReason = "failed"
)

// The WebSocket close codes of the edge protocol.
const (
	StatusEnded      = 1000
	StatusRestarting = 1012
	StatusRevoked    = 4401
	StatusDenied     = 4403
	StatusSlow       = 4408
	StatusReplaced   = 4409
	StatusTooMany    = 4429
)

// Status is the close code that goes with a reason. A failed open says "come back" like a restart: nothing about the
// person was refused.
func (r CloseReason) Status() int {
	switch r {
	case ReasonExited, ReasonGone, ReasonDetached:
		return StatusEnded
	case ReasonRestarting, ReasonFailed:
		return StatusRestarting
	case ReasonRevoked:
		return StatusRevoked
	case ReasonDenied:
		return StatusDenied
	case ReasonSlow:
		return StatusSlow
	case ReasonReplaced:
		return StatusReplaced
	case ReasonTooMany:
		return StatusTooMany
	}
	return StatusEnded
}

// Server is a control frame from the gateway. Which fields matter depends on Type.
type Server struct {
	Type Type `json:"type"`
	// Phase, Session and Offset go with phase; Session names the numbering of Offset.
	Phase   Phase  `json:"phase,omitempty"`
	Session string `json:"session,omitempty"`
	Offset  *int64 `json:"offset,omitempty"`
	// Input goes with ack: bytes of this client that were written to the shell, or refused by an error, so far.
	Input *int64 `json:"input,omitempty"`
	// Bytes goes with gap; it is absent where the number cannot be known: then the screen is drawn anew.
	Bytes *int64 `json:"bytes,omitempty"`
	// Code, Message, Fatal and Terminal go with error; Terminal is the page.
	Code     Code   `json:"code,omitempty"`
	Message  string `json:"message,omitempty"`
	Fatal    *bool  `json:"fatal,omitempty"`
	Terminal string `json:"terminal,omitempty"`
	// Reason, ExitCode and RetryAfterMs go with closed.
	Reason       CloseReason `json:"reason,omitempty"`
	ExitCode     *int        `json:"exit_code,omitempty"`
	RetryAfterMs int64       `json:"retry_after_ms,omitempty"`
}

// NewPhase is a phase that names its numbering and where in it the client stands.
func NewPhase(p Phase, session string, offset int64) Server {
	return Server{Type: TypePhase, Phase: p, Session: session, Offset: &offset}
}

// NewAck tells a client how much of its input has been settled.
func NewAck(input int64) Server { return Server{Type: TypeAck, Input: &input} }

// NewGap says that bytes are missing here; a negative number means that nobody knows how many.
func NewGap(bytes int64) Server {
	if bytes < 0 {
		return Server{Type: TypeGap}
	}
	return Server{Type: TypeGap, Bytes: &bytes}
}

// NewError reports an error to the terminal of that page.
func NewError(code Code, message, terminal string, fatal bool) Server {
	return Server{Type: TypeError, Code: code, Message: message, Terminal: terminal, Fatal: &fatal}
}

// Encode gives the frame as it goes over the wire.
func (s Server) Encode() []byte { return mustJSON(s) }

// ParseServer reads a gateway's control frame. Types it does not know are returned as they are, for a client ignores
// them. Every error wraps ErrMalformed.
func ParseServer(data []byte) (Server, error) {
	var s Server
	if err := decode(data, &s); err != nil {
		return Server{}, err
	}
	switch s.Type {
	case TypePhase:
		if s.Phase == "" || s.Offset != nil && *s.Offset < 0 {
			return Server{}, fmt.Errorf("%w: a phase without a name or with a negative offset", ErrMalformed)
		}
	case TypeAck:
		if s.Input == nil || *s.Input < 0 {
			return Server{}, fmt.Errorf("%w: an ack without a count", ErrMalformed)
		}
	case TypeError:
		if s.Fatal == nil {
			return Server{}, fmt.Errorf("%w: an error that does not say whether it is fatal", ErrMalformed)
		}
	case TypeGap, TypeClosed, TypeHello, TypeResize, TypeGrant, TypeDetach:
	}
	return s, nil
}
