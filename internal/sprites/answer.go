package sprites

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// hintCap bounds a provider's retry hint, so that a nonsense value parks nobody for a day.
	hintCap = 15 * time.Minute
	// defaultHint is what a 429 without any hint means.
	defaultHint = 10 * time.Second

	codeConcurrentLimit = "concurrent_sprite_limit_exceeded" // Sprites API reference, errors
)

// codeShape is what may pass as a machine-readable code; sentences and echoes of our own request may not.
var codeShape = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,63}$`)

// refusal makes the Error for an answer with an unwanted status. Only the code is taken from the body: its sentences may
// echo the request. body may be cut short.
func refusal(op Operation, status int, header http.Header, body []byte, now time.Time) *Error {
	e := &Error{Op: op, Status: status, RequestID: requestID(header)}
	code, hint := parseErrorBody(body)
	e.Code = code
	e.Class = classOfStatus(status, e.Code)
	if hint == 0 {
		hint = parseRetryAfter(header.Get("Retry-After"), now)
	}
	if hint == 0 && e.Class == ClassRateLimited {
		hint = defaultHint
	}
	e.RetryAfter = min(hint, hintCap)
	return e
}

func requestID(header http.Header) string {
	for _, key := range []string{"X-Request-Id", "Fly-Request-Id"} {
		if id := header.Get(key); id != "" && len(id) <= 128 && isPrintable(id) {
			return id
		}
	}
	return ""
}

func isPrintable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// classOfStatus maps a status. A 500 is not "not found", though an early server said so: only 404 and 410 are.
func classOfStatus(status int, code string) Class {
	switch {
	case status == http.StatusTooManyRequests && code == codeConcurrentLimit:
		return ClassConcurrentLimit
	case status == http.StatusTooManyRequests:
		return ClassRateLimited
	case status == http.StatusNotFound, status == http.StatusGone:
		return ClassNotFound
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ClassUnauthorized
	case status == http.StatusConflict:
		return ClassConflict
	case status == http.StatusRequestTimeout:
		return ClassTimeout
	case status >= 500, status < 300:
		return ClassUnavailable
	}
	return ClassInvalid
}

// parseErrorBody takes the code and the hint out of an error body, whichever of the known shapes it has: {"error":code,
// "retry_after_seconds":n}, {"error":text,"code":code}, {"errors":[...]}, or plain text. It never fails.
func parseErrorBody(body []byte) (code string, hint time.Duration) {
	var shape struct {
		Error             json.RawMessage `json:"error"`
		Code              json.RawMessage `json:"code"`
		RetryAfterSeconds json.RawMessage `json:"retry_after_seconds"`
	}
	if json.Unmarshal(body, &shape) != nil {
		return "", 0
	}
	for _, raw := range []json.RawMessage{shape.Code, shape.Error} {
		var s string
		if json.Unmarshal(raw, &s) == nil && codeShape.MatchString(s) {
			code = s
			break
		}
	}
	var seconds float64
	if json.Unmarshal(shape.RetryAfterSeconds, &seconds) == nil && seconds > 0 {
		hint = time.Duration(min(seconds, hintCap.Seconds()) * float64(time.Second))
	}
	return code, hint
}

// parseRetryAfter reads a Retry-After header: seconds or an HTTP date.
func parseRetryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		if !(seconds > 0) {
			return 0
		}
		return time.Duration(min(seconds, hintCap.Seconds()) * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), hintCap)
	}
	return 0
}
