package bus

import (
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

const (
	// DefaultStreamBytes is how much output is delivered when the request names no cap, in bytes.
	DefaultStreamBytes = 8 << 20
	// DefaultHardCap is the most that a request may ask for and a command may produce, in bytes.
	DefaultHardCap = 64 << 20
	// MaxPath is the longest path or working directory, in bytes.
	MaxPath = 4096
	// clockSkew is how far a caller's clock may be ahead of ours before a deadline counts as too far away.
	clockSkew = 5 * time.Second
)

// ParseOption changes one limit of a parser.
type ParseOption func(*parseLimits)

type parseLimits struct{ hardCap int64 }

// WithHardCap sets the most that stream_bytes may ask for, in bytes. Defaults to DefaultHardCap.
func WithHardCap(n int64) ParseOption { return func(l *parseLimits) { l.hardCap = n } }

// ParseExec reads the body of sandbox.exec. Every error is an *InvalidRequest that names the first fault: unknown,
// double, null or mistyped fields, sizes and ranges, ids that could not become subject tokens, both or none of argv
// and shell. The deadline is checked by Check, because it needs a clock. It does not block and is safe for
// concurrent use.
func ParseExec(data []byte, options ...ParseOption) (*ExecRequest, error) {
	limits := parseLimits{hardCap: DefaultHardCap}
	for _, o := range options {
		o(&limits)
	}
	r := new(ExecRequest)
	has, fault := decodeStrict(data, r)
	if fault != nil {
		return nil, fault
	}
	err := firstFault(
		checkVersion(r.V),
		checkToken("job_id", r.JobID),
		checkToken("conversation_id", r.ConversationID),
		checkPrincipal("drive_id", r.DriveID, has["drive_id"]),
		checkCommand(r, has["argv"], has["shell"]),
		checkCwd(r.Cwd, has["cwd"]),
		checkEnv(r.Env),
		checkStdin(r.Stdin),
		checkRange("timeout_ms", r.TimeoutMs, MinTimeout.Milliseconds(), MaxTimeout.Milliseconds(), has["timeout_ms"],
			"must be 100 to 43200000"),
		checkRange("stream_bytes", r.StreamBytes, 1, limits.hardCap, has["stream_bytes"],
			"must be at least 1 and at most the hard cap"),
		checkOneOf("on_output_limit", r.OnOutputLimit, has["on_output_limit"], OnOutputLimitTrim, OnOutputLimitKill),
		checkOneOf("on_limit", r.OnLimit, has["on_limit"], OnLimitDeny, OnLimitWait),
		checkOneOf("order", r.Order, has["order"], OrderParallel, OrderSerial),
		checkWait(r),
	)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// checkCommand judges an empty command before a command of two forms: whoever sends argv [] wants to be told that.
func checkCommand(r *ExecRequest, argv, shell bool) *InvalidRequest {
	switch {
	case argv && shell:
		return invalid("argv", "and shell exclude each other")
	case argv && len(r.Argv) > MaxArgv:
		return invalid("argv", "must have at most 256 items")
	case argv && (len(r.Argv) == 0 || r.Argv[0] == ""):
		return &InvalidRequest{"argv", "names no program", plan.ReasonEmptyCommand}
	case shell && strings.TrimSpace(r.Shell) == "":
		return &InvalidRequest{"shell", "is empty", plan.ReasonEmptyCommand}
	case !argv && !shell:
		return &InvalidRequest{"argv", "or shell must be there", plan.ReasonEmptyCommand}
	case r.CommandSize() > MaxCommand:
		field := "shell"
		if argv {
			field = "argv"
		}
		return &InvalidRequest{field, "is larger than 16 KiB", plan.ReasonCommandTooLarge}
	}
	return nil
}

// CommandSize is the size that the limit counts, in bytes: shell, or argv joined by NUL.
func (r *ExecRequest) CommandSize() int {
	if r.Shell != "" {
		return len(r.Shell)
	}
	n := max(0, len(r.Argv)-1)
	for _, a := range r.Argv {
		n += len(a)
	}
	return n
}

func checkCwd(cwd string, present bool) *InvalidRequest {
	if present && (cwd == "" || len(cwd) > MaxPath) {
		return invalid("cwd", "must be 1 to 4096 bytes")
	}
	return nil
}

func checkEnv(env map[string]string) *InvalidRequest {
	if len(env) > MaxEnv {
		return invalid("env", "must have at most 128 names")
	}
	size := 0
	for name, value := range env {
		size += len(name) + len(value)
		switch {
		case !validEnvName(name):
			return invalid("env", "names must be A-Z a-z 0-9 _ and not begin with a digit")
		case strings.HasPrefix(name, "WAKEBUS_"), name == "LD_PRELOAD":
			return invalid("env", "must not set WAKEBUS_* or LD_PRELOAD")
		}
	}
	if size > MaxEnvBytes {
		return invalid("env", "must have at most 32 KiB in all")
	}
	return nil
}

func validEnvName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func checkStdin(stdin []byte) *InvalidRequest {
	if len(stdin) > MaxStdin {
		return invalid("stdin", "must have at most 64 KiB")
	}
	return nil
}

// checkWait: without a deadline a waiting request would wait for ever.
func checkWait(r *ExecRequest) *InvalidRequest {
	if r.OnLimit == OnLimitWait && r.Deadline == nil {
		return invalid("deadline", "is required with on_limit wait")
	}
	return nil
}

// Check judges the deadline at now: ErrDeadlinePassed when the request may no longer start, an *InvalidRequest when
// it lies more than 12 hours away (and 5 seconds, for clocks that differ).
func (r *ExecRequest) Check(now time.Time) error { return checkDeadline(r.Deadline, now) }

func checkDeadline(deadline *time.Time, now time.Time) error {
	switch {
	case deadline == nil:
		return nil
	case !deadline.After(now):
		return ErrDeadlinePassed
	case deadline.Sub(now) > MaxDeadline+clockSkew:
		return invalid("deadline", "must be at most 12 hours away")
	}
	return nil
}

// Timeout is how long the command may run, by the wall clock from open.
func (r *ExecRequest) Timeout() time.Duration {
	if r.TimeoutMs == 0 {
		return DefaultTimeout
	}
	return time.Duration(r.TimeoutMs) * time.Millisecond
}

// OutputCap is how many bytes of output are delivered; fallback stands for what the request does not say, and 0 for
// DefaultStreamBytes.
func (r *ExecRequest) OutputCap(fallback int64) int64 {
	switch {
	case r.StreamBytes > 0:
		return r.StreamBytes
	case fallback > 0:
		return fallback
	}
	return DefaultStreamBytes
}

// Kills reports whether the command is stopped at its output cap rather than trimmed.
func (r *ExecRequest) Kills() bool { return r.OnOutputLimit == OnOutputLimitKill }

// Waits reports whether the request waits for a free slot rather than being denied.
func (r *ExecRequest) Waits() bool { return r.OnLimit == OnLimitWait }

// Serial reports whether the request runs alone in its conversation.
func (r *ExecRequest) Serial() bool { return r.Order == OrderSerial }
