package bus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/plan"
)

// The classes of failure that callers tell apart with errors.Is.
var (
	// ErrUnreachable: the broker did not answer in time, or there is no connection to it. Whether a publish was stored
	// is then unknown to whoever gets this error, unless the method says that it looked.
	ErrUnreachable = errors.New("nats is not reachable")
	// ErrUnauthorized: the broker refused the credentials, or the permissions do not allow the call.
	ErrUnauthorized = errors.New("nats refused the credentials or the permission")
	// ErrNotSetUp: a stream, consumer or bucket is missing.
	ErrNotSetUp = errors.New("a stream or consumer is missing")
	// ErrNoJournal: nobody has claimed this run.
	ErrNoJournal = errors.New("the run has no journal")
	// ErrFenced: another owner's event stands where ours should be. Who gets it says nothing more about the run.
	ErrFenced = errors.New("another owner holds the run")
	// ErrTooLarge: the message is larger than the broker or the stream takes.
	ErrTooLarge = errors.New("the message is larger than the broker takes")
	// ErrFull: a stream is at its byte limit and discards what is new.
	ErrFull = errors.New("the stream is full")
	// ErrEnded: the run's result is stored; nothing may follow it.
	ErrEnded = errors.New("the run has its result")
	// ErrClosed: the Bus, Reader or Chain was closed by its owner.
	ErrClosed = errors.New("closed")
	// ErrPhase: the phase asked for comes before the run's present one.
	ErrPhase = errors.New("phases only go forward")
	// ErrInvalid: an argument cannot be used, and no message was sent.
	ErrInvalid = errors.New("invalid argument")
	// ErrStoreLocked: another server already runs on the store; a *StoreLockedError says which.
	ErrStoreLocked = errors.New("another server runs on this store")
	// ErrNoReply: nobody serves the endpoint that was asked.
	ErrNoReply = errors.New("nobody serves this endpoint")
)

// The error codes of the server that decide behaviour and that nats.go has no names for (nats-server errors.json).
const (
	codeStreamStoreFailed     jetstream.ErrorCode = 10077 // a limit of the stream with discard new
	codeInsufficientResources jetstream.ErrorCode = 10023
	codeStorageExceeded       jetstream.ErrorCode = 10047
)

// ConflictError says that another owner already has the run, or took it first. Last is what it published last.
type ConflictError struct {
	Key    RunKey
	Last   *Event
	Record Record
}

// Error names the run and its owner.
func (e *ConflictError) Error() string {
	if e.Last == nil {
		return fmt.Sprintf("run %s is held by another owner", e.Key)
	}
	return fmt.Sprintf("run %s is at %q, held by %s", e.Key, e.Last.Kind, e.Last.Owner)
}

// Is makes a conflict one way of being fenced.
func (e *ConflictError) Is(target error) bool { return target == ErrFenced }

// Refused is the broker's refusal to queue a request. Nothing was stored.
type Refused struct {
	Reason  plan.Reason
	Tenant  string
	Message string
	cause   error
}

// Error says what was refused and why.
func (e *Refused) Error() string { return fmt.Sprintf("queue refused the request: %s", e.Message) }

// Unwrap gives the broker's own error.
func (e *Refused) Unwrap() error { return e.cause }

// StoreLockedError says who has the store of an embedded broker. It is an ErrStoreLocked.
type StoreLockedError struct {
	Dir string
	// PID is the process that runs on the store; 0 when that is not known.
	PID int
}

// Error names the store and the process.
func (e *StoreLockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another server runs on the store %s", e.Dir)
	}
	return fmt.Sprintf("another server, process %d, runs on the store %s", e.PID, e.Dir)
}

// Is makes it one way of being locked out.
func (e *StoreLockedError) Is(target error) bool { return target == ErrStoreLocked }

// NotSetUpError says that a stream, bucket or consumer is missing, or is not as this release wants it, and that this
// user of NATS may not make or change it. It is an ErrNotSetUp.
type NotSetUpError struct {
	Object string // what it is, and its name
}

// Error names the object and what makes it.
func (e *NotSetUpError) Error() string {
	return e.Object + " is missing or of another release, and this NATS user may not make it: run setup as the user setup"
}

// Is makes it one way of not being set up.
func (e *NotSetUpError) Is(target error) bool { return target == ErrNotSetUp }

// InboxError says that a user may not listen where its replies would arrive, so that every call would time out. It is an
// ErrUnauthorized.
type InboxError struct {
	Prefix string
}

// Error names the prefix and the setting.
func (e *InboxError) Error() string {
	return "this NATS user may not listen on " + e.Prefix + ".>: set WAKEBUS_INBOX_PREFIX to its own"
}

// Is makes it one way of being refused.
func (e *InboxError) Is(target error) bool { return target == ErrUnauthorized }

// DriftError says that a stream or consumer exists with a setting that Setup may not change by itself.
type DriftError struct {
	Object string // stream, or stream and consumer
	Field  string
	Want   string
	Have   string
}

// Error names the object, the field and both values.
func (e *DriftError) Error() string {
	return fmt.Sprintf("%s: %s is %s, must be %s", e.Object, e.Field, e.Have, e.Want)
}

// isConflict reports whether the broker refused a compare-and-set. With replicas the code is mostly the second one.
func isConflict(err error) bool {
	code := apiCode(err)
	return code == jetstream.JSErrCodeStreamWrongLastSequence || code == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

func apiCode(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}

// isFull reports whether a limit of the stream, or of the server's store, refused the message.
func isFull(err error) bool {
	code := apiCode(err)
	return code == codeStreamStoreFailed || code == codeInsufficientResources || code == codeStorageExceeded
}

// classify puts one of our classes in front of an error of nats.go, once.
func classify(err error) error {
	if err == nil {
		return nil
	}
	class := classOf(err)
	if class == nil || errors.Is(err, class) {
		return err
	}
	return fmt.Errorf("%w: %w", class, err)
}

func classOf(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrPermissionViolation):
		return ErrUnauthorized
	case errors.Is(err, nats.ErrMaxPayload), apiCode(err) == jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return ErrTooLarge
	case isFull(err):
		return ErrFull
	case errors.Is(err, nats.ErrConnectionClosed):
		return ErrClosed
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound),
		errors.Is(err, jetstream.ErrBucketNotFound), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return ErrNotSetUp
	case errors.As(err, &api) && api.Code == 503:
		return ErrUnreachable
	case errors.As(err, &api):
		return nil
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoServers),
		errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrReconnectBufExceeded),
		errors.Is(err, nats.ErrConnectionReconnecting), isNetwork(err):
		return ErrUnreachable
	}
	return nil
}

// isNetwork reports whether an error is the network's own: a name that does not resolve, a refused dial, a connection
// that broke, a server that cannot prove who it is.
func isNetwork(err error) bool {
	var network net.Error
	var untrusted *tls.CertificateVerificationError
	return errors.As(err, &network) || errors.As(err, &untrusted) || errors.Is(err, io.EOF)
}

// isAmbiguous reports whether a publish that failed so may have been stored all the same: nats.go keeps requests
// in a buffer while it reconnects and sends them later.
func isAmbiguous(err error) bool {
	class := classOf(err)
	return errors.Is(class, ErrUnreachable) || errors.Is(class, ErrNotSetUp)
}
