package sprites

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Gate is back-pressure and breaker in one, per operation, shared by all workers. Enter is asked before each try and
// answered by exactly one Report. Both must be safe for concurrent use and return promptly.
type Gate interface {
	// Enter returns a pass to let the try through, or *GateClosed. Any other error means the gate itself is broken: it
	// then stops creations (a limit that nobody counts is no limit) and nothing else.
	Enter(ctx context.Context, op Operation, tenant string) (Pass, error)
	// Report says how a try that was let through ended.
	Report(ctx context.Context, op Operation, pass Pass, outcome Outcome)
}

// Pass is the gate's own mark on a try that it let through, handed back with the try's report.
type Pass string

// Outcome is how one try ended, for the gate.
type Outcome struct {
	// Class is empty when the try succeeded.
	Class Class
	// RetryAfter is the provider's hint, or 0.
	RetryAfter time.Duration
}

// GateClosed says that an operation is held back for a while.
type GateClosed struct {
	Op Operation
	// Class is why: ClassRateLimited, ClassConcurrentLimit or, after an outage, ClassUnavailable.
	Class Class
	// RetryAfter is when to ask again.
	RetryAfter time.Duration
}

// Error says which operation is held back and for how long.
func (e *GateClosed) Error() string {
	return fmt.Sprintf("gate for %s is closed for %s", e.Op, e.RetryAfter)
}

// openGate lets everything through.
type openGate struct{}

var _ Gate = openGate{}

func (openGate) Enter(context.Context, Operation, string) (Pass, error) { return "", nil }

func (openGate) Report(context.Context, Operation, Pass, Outcome) {}

// enter asks the gate, and turns its refusal into an Error.
func (c *Client) enter(ctx context.Context, op Operation, tenant string) (Pass, error) {
	if !op.gated() {
		return "", nil
	}
	pass, err := c.gate.Enter(ctx, op, tenant)
	if err == nil {
		return pass, nil
	}
	var closed *GateClosed
	if errors.As(err, &closed) {
		class := closed.Class
		if class == "" {
			class = ClassUnavailable
		}
		return "", &Error{Op: op, Class: class, RetryAfter: closed.RetryAfter, cause: closed}
	}
	if op == OpCreate {
		return "", &Error{Op: op, Class: ClassUnavailable, cause: fmt.Errorf("ask gate: %w", err)}
	}
	c.log.Warn().Err(err).Str("op", string(op)).Msg("gate cannot be asked; letting the call through")
	return "", nil
}
