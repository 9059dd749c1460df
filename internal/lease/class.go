package lease

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/redis/go-redis/v9"
)

// Class says what kind of trouble Redis made.
type Class string

// The classes.
const (
	ClassTransport    Class = "transport"    // no connection, or it broke
	ClassTimeout      Class = "timeout"      // no answer in time
	ClassLoading      Class = "loading"      // reading its data set
	ClassReadOnly     Class = "read_only"    // a replica, after a failover
	ClassDown         Class = "down"         // cluster or primary down, too few replicas, too many clients
	ClassFull         Class = "full"         // out of memory under noeviction
	ClassUnauthorized Class = "unauthorized" // wrong password, or not permitted
	ClassEviction     Class = "eviction"     // a policy that may drop leases
	ClassRefused      Class = "refused"      // any other refusal
)

// classify judges by the client's typed errors, never by text.
func classify(err error) Class {
	var netErr net.Error
	var server redis.Error
	switch {
	case redis.IsLoadingError(err):
		return ClassLoading
	case redis.IsReadOnlyError(err):
		return ClassReadOnly
	case redis.IsClusterDownError(err), redis.IsMasterDownError(err), redis.IsTryAgainError(err),
		redis.IsMaxClientsError(err), redis.IsNoReplicasError(err):
		return ClassDown
	case redis.IsOOMError(err):
		return ClassFull
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return ClassUnauthorized
	case errors.As(err, &server):
		return ClassRefused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout),
		errors.As(err, &netErr) && netErr.Timeout():
		return ClassTimeout
	case errors.Is(err, io.EOF), errors.As(err, &netErr):
		return ClassTransport
	default:
		return ClassTransport
	}
}

// mayHaveRun says whether the server may have executed a call that failed so:
// not when it answered with an error, and not when it was never dialled.
func mayHaveRun(err error) bool {
	var server redis.Error
	if errors.As(err, &server) {
		return false
	}
	var never *unsent
	if errors.As(err, &never) {
		return false
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	return !errors.Is(err, redis.ErrPoolTimeout)
}
