package terminal

import (
	"context"
	"errors"

	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/sprites"
)

// sharedGate holds the gateway's calls to the provider to the same gate as the workers'.
type sharedGate struct{ gate *lease.Gate }

var _ sprites.Gate = sharedGate{}

// Enter asks for one call.
func (g sharedGate) Enter(ctx context.Context, op sprites.Operation, tenant string) (sprites.Pass, error) {
	pass, err := g.gate.Enter(ctx, string(op), tenant)
	var closed *lease.GateClosed
	if errors.As(err, &closed) {
		return "", &sprites.GateClosed{Op: op, Class: sprites.ClassUnavailable, RetryAfter: closed.RetryAfter}
	}
	return sprites.Pass(pass), err
}

// Report says how the call ended.
func (g sharedGate) Report(ctx context.Context, op sprites.Operation, pass sprites.Pass, o sprites.Outcome) {
	g.gate.Report(ctx, string(op), string(pass), string(o.Class), o.RetryAfter)
}
