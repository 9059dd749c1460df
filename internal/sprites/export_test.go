package sprites

import (
	"context"
	"net/http"
	"time"
)

// What black-box tests need to see of the pure parts.
var (
	GuardScript   = guardScript
	InputScript   = inputScript
	InspectScript = inspectScript
	WarmupScript  = warmupScript
	EnterScript   = enterScript
)

const NoCode = noCode

// Parsed is a frame, for tests.
type Parsed struct {
	Output, Ended, Info bool
	Stream              Stream
	Data                []byte
	Code                int
	ID                  string
	Created             int64
	TTY                 bool
}

func export(f frame) Parsed {
	return Parsed{
		Output: f.kind == frameOutput, Ended: f.kind == frameEnded, Info: f.kind == frameInfo,
		Stream: f.stream, Data: f.data, Code: f.code, ID: f.info.id, Created: f.info.created, TTY: f.info.tty,
	}
}

func ParseBinary(b []byte) Parsed { return export(parseBinary(b)) }

func ParseText(b []byte) Parsed { return export(parseText(b)) }

func ParseErrorBody(b []byte) (string, time.Duration) { return parseErrorBody(b) }

func ParseGuard(lines []string) (GuardState, bool) { return parseGuard(lines) }

func Marked(out []byte, marker string) []string { return marked(out, marker) }

func Skew(unix int64, began, ended time.Time) time.Duration { return skew(unix, began, ended) }

func Refusal(status int, header http.Header, body []byte, now time.Time) *Error {
	return refusal(OpGet, status, header, body, now)
}

// Align feeds a replay in pieces and returns what would be given out, and whether that is proven.
func Align(tail []byte, delivered int64, replay [][]byte) ([]byte, bool) {
	a := newAligner(tail, delivered)
	for i, piece := range replay {
		a.feed(Stream(1+i%2), piece)
	}
	rest, ok := a.result()
	var out []byte
	for _, p := range rest {
		out = append(out, p.data...)
	}
	return out, ok
}

// Tries returns how often op is tried when it keeps failing with class, by the table.
func Tries(op Operation, class Class) int {
	r := retryTable[op]
	if r.retries(&Error{Op: op, Class: class}) {
		return r.tries
	}
	return 1
}

// RunBare runs a command without a guard, as the SDKs do, and returns its output.
func (c *Client) RunBare(ctx context.Context, sprite string, argv ...string) ([]byte, error) {
	return c.run(ctx, probe{sprite: sprite, argv: argv, limit: time.Minute})
}
