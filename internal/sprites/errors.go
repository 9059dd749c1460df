package sprites

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"
)

// Error is how every failed call ends. It holds no URL, body, token or environment.
type Error struct {
	// Op is what was asked.
	Op Operation
	// Class decides what to do about it.
	Class Class
	// Status is the HTTP status, or 0 when there was no answer.
	Status int
	// Code is the provider's machine-readable code (sprite_creation_rate_limited, ENOENT), or empty.
	Code string
	// RetryAfter is the provider's hint, the body's before the header's, at most 15 minutes; 0 when there was none.
	RetryAfter time.Duration
	// RequestID is the provider's id for this request, or empty.
	RequestID string
	// Opened tells that the socket had opened: a command may have run, so the dial must not be repeated.
	Opened bool

	cause error
}

// Error renders the operation, the class and what is known of the answer.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sprites %s: %s", e.Op, e.Class)
	if e.Status != 0 {
		fmt.Fprintf(&b, " (status %d", e.Status)
		if e.Code != "" {
			fmt.Fprintf(&b, ", code %s", e.Code)
		}
		if e.RequestID != "" {
			fmt.Fprintf(&b, ", request %s", e.RequestID)
		}
		b.WriteByte(')')
	}
	if e.Opened {
		b.WriteString(" after open")
	}
	if e.cause != nil {
		fmt.Fprintf(&b, ": %v", e.cause)
	}
	return b.String()
}

// Unwrap returns the cause, for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.cause }

// ClassOf returns the class of the first [Error] in err's chain, or "" when there is none.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return ""
}

// Sentinels that an [Error] or a call's error may wrap.
var (
	// ErrNoExit: the socket ended without an exit frame. It is never an exit code.
	ErrNoExit = errors.New("connection ended without an exit frame")
	// ErrSilent: nothing was heard for the keepalive limit.
	ErrSilent = errors.New("connection fell silent")
	// ErrNoSessionInfo: the socket opened but did not introduce its session.
	ErrNoSessionInfo = errors.New("no session_info")
	// ErrReplaced: the session id now names another process (ids are PIDs and come round again).
	ErrReplaced = errors.New("session id names another process")
	// ErrNoInstance: the control plane named no instance id, so no lockdown could be proven.
	ErrNoInstance = errors.New("sprite has no instance id")
	// ErrWorkspaceUnwritable: /workspace cannot be made or written.
	ErrWorkspaceUnwritable = errors.New("workspace is not writable")
	// ErrGuardUnwritable: the guard could not create its file, so nothing ran.
	ErrGuardUnwritable = errors.New("guard folder is not writable")
	// ErrPolicyMismatch: the network policy read back is not the one that was set.
	ErrPolicyMismatch = errors.New("network policy read back differs")
	// ErrIncomplete: a progress stream ended without its terminal event, or with an error as the last word.
	ErrIncomplete = errors.New("stream ended without completion")
	// ErrTooLarge: an answer exceeded its bound.
	ErrTooLarge = errors.New("answer too large")
	// ErrShortWrite: the file service reports another size than was sent.
	ErrShortWrite = errors.New("written size differs")
	// ErrMalformed: an answer could not be understood.
	ErrMalformed = errors.New("malformed answer")
	// ErrClosed: the process, terminal or client was closed here.
	ErrClosed = errors.New("closed")
)

// GuardTaken tells that this command was already started by another dial: it must not be started again, and
// [Client.Rejoin] finds out what became of it.
type GuardTaken struct {
	// State is what the guard's file said. Its Nonce is empty when the owner had not yet written it.
	State GuardState
}

// Error says by which process the guard is held.
func (e *GuardTaken) Error() string {
	return fmt.Sprintf("guard is taken by process %d", e.State.Pid)
}

// stripURL removes the URL that net/http puts into its errors: an exec's URL carries the caller's environment.
func stripURL(err error) error {
	for {
		var ue *url.Error
		if !errors.As(err, &ue) {
			return err
		}
		err = ue.Err
	}
}

// cut replaces a connection's EOF, which must not pass for the io.EOF by which a process says that it ended.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// failure classifies an error that came without an HTTP answer. ctx is the caller's, which outranks our own deadlines.
func failure(ctx context.Context, op Operation, err error) *Error {
	var already *Error
	if errors.As(err, &already) {
		return already
	}
	e := &Error{Op: op, Class: ClassTransport, cause: cut(stripURL(err))}
	var ne net.Error
	switch {
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Class, e.cause = ClassCanceled, context.Cause(ctx)
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		e.Class = ClassTimeout
	case errors.Is(err, context.Canceled):
		e.Class = ClassCanceled
	case errors.Is(err, ErrTooLarge):
		e.Class = ClassInvalid
	}
	return e
}

// refused makes the error for a request that is not even sent.
func refused(op Operation, format string, args ...any) *Error {
	return &Error{Op: op, Class: ClassInvalid, cause: fmt.Errorf(format, args...)}
}
