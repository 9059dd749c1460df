package bus

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/wakebus/wakebus/internal/plan"
)

// EndpointError is the answer of an endpoint that did not do what it was asked, on both sides: handlers return it and
// clients get it.
type EndpointError struct {
	Reason plan.Reason
	// Message is a sentence for a person. Defaults to the reason's.
	Message string
	// Retryable says that asking again may help.
	Retryable bool
	// RetryAfter is how long to wait first; 0 when nothing is known.
	RetryAfter time.Duration
}

// NewEndpointError makes an error with what is fixed about its reason; message may be empty.
func NewEndpointError(reason plan.Reason, message string) *EndpointError {
	return &EndpointError{Reason: reason, Message: message, Retryable: reason.Retryable()}
}

// Error is the sentence.
func (e *EndpointError) Error() string {
	if e.Message == "" {
		return e.Reason.Sentence()
	}
	return e.Message
}

// asEndpointError puts any failure into the closed set of reasons. known is false for what nobody foresaw: its text
// goes to the log, not to the caller.
func asEndpointError(err error) (out *EndpointError, known bool) {
	var given *EndpointError
	var bad *InvalidRequest
	var refused *Refused
	switch {
	case errors.As(err, &given):
		return given, true
	case errors.As(err, &bad):
		return NewEndpointError(bad.Reason, bad.Error()), true
	case errors.As(err, &refused):
		out = NewEndpointError(refused.Reason, refused.Message)
		out.RetryAfter = time.Second
		return out, true
	case errors.Is(err, ErrTooLarge):
		return NewEndpointError(plan.ReasonContentTooLarge, ""), true
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrNotSetUp), errors.Is(err, ErrClosed), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return NewEndpointError(plan.ReasonWorkerUnavailable, ""), true
	}
	return NewEndpointError(plan.ReasonError, ""), false
}

// headers are how an error travels: an empty body and the headers of NATS services (ADR-32) with two of ours.
func (e *EndpointError) headers() nats.Header {
	h := nats.Header{}
	h.Set(micro.ErrorCodeHeader, string(e.Reason))
	h.Set(micro.ErrorHeader, oneLine(e.Error()))
	h.Set(HeaderRetryable, strconv.FormatBool(e.Retryable))
	if e.RetryAfter > 0 {
		h.Set(HeaderRetryAfterMs, strconv.FormatInt(e.RetryAfter.Milliseconds(), 10))
	}
	return h
}

// oneLine keeps a sentence within a header: no line break may end it early.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, clipTo(s, maxShown))
}

// endpointErrorIn reads the error from an answer's headers; nil when there is none.
func endpointErrorIn(h Header) error {
	code := h.Get(micro.ErrorCodeHeader)
	if code == "" {
		return nil
	}
	e := &EndpointError{Reason: plan.Reason(code), Message: h.Get(micro.ErrorHeader), Retryable: h.Get(HeaderRetryable) == "true"}
	if ms, err := strconv.ParseInt(h.Get(HeaderRetryAfterMs), 10, 64); err == nil && ms > 0 {
		e.RetryAfter = time.Duration(min(ms, time.Hour.Milliseconds())) * time.Millisecond
	}
	return e
}
