package job

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/sprites"
)

// providerGate lets the Sprites client ask the gate that all workers share in Redis.
type providerGate struct{ gate *lease.Gate }

var _ sprites.Gate = providerGate{}

// Enter asks for one call.
func (g providerGate) Enter(ctx context.Context, op sprites.Operation, tenant string) (sprites.Pass, error) {
	pass, err := g.gate.Enter(ctx, string(op), tenant)
	var closed *lease.GateClosed
	if !errors.As(err, &closed) {
		return sprites.Pass(pass), err
	}
	class := sprites.Class(closed.Why)
	switch class {
	case sprites.ClassRateLimited, sprites.ClassConcurrentLimit, sprites.ClassUnavailable:
	case sprites.ClassConflict, sprites.ClassNotFound, sprites.ClassUnauthorized, sprites.ClassInvalid, sprites.ClassTimeout,
		sprites.ClassCanceled, sprites.ClassTransport:
		class = sprites.ClassUnavailable
	default:
		class = sprites.ClassRateLimited // a tenant's share, or somebody else is probing
	}
	return "", &sprites.GateClosed{Op: op, Class: class, RetryAfter: closed.RetryAfter}
}

// Report says how the call ended.
func (g providerGate) Report(ctx context.Context, op sprites.Operation, pass sprites.Pass, o sprites.Outcome) {
	g.gate.Report(ctx, string(op), string(pass), string(o.Class), o.RetryAfter)
}

// fleetSwitch holds the fleet-wide switch as last heard.
type fleetSwitch struct{ isOff atomic.Bool }

func (s *fleetSwitch) off() bool    { return s.isOff.Load() }
func (s *fleetSwitch) set(off bool) { s.isOff.Store(off) }
