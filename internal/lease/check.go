package lease

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// selftest runs a writing script that reads TIME, and reads the eviction policy.
func (m *Manager) selftest(ctx context.Context) error {
	reply, _, err := m.call(ctx, m.requests, opSelftest, []string{m.keys.selftest(m.cfg.Owner)}, nil)
	if err != nil {
		var down *Unavailable
		if !errors.As(err, &down) {
			return err
		}
		switch down.Class {
		case ClassUnauthorized:
			return &Misconfigured{Class: ClassUnauthorized, Fix: "correct the user and password in the Redis URL, and allow EVALSHA, EVAL, SCAN, SUBSCRIBE and PUBLISH", cause: down.cause}
		case ClassRefused:
			return &Misconfigured{Class: ClassRefused, Fix: "use a Redis that runs scripts which read TIME and then write (5.0 or newer)", cause: down.cause}
		case ClassTransport, ClassTimeout, ClassLoading, ClassReadOnly, ClassDown, ClassFull, ClassEviction:
			return err
		default:
			return err
		}
	}
	if reply[0] != "ok" {
		return &Misconfigured{Class: ClassRefused, Fix: "the server's scripts do not keep 16 digits"}
	}
	policy, known, err := m.EvictionPolicy(ctx)
	if err != nil {
		return err
	}
	if known && policy != "noeviction" {
		return &Misconfigured{Class: ClassEviction, Fix: "maxmemory-policy is " + policy + ", which may drop live leases: CONFIG SET maxmemory-policy noeviction, or an instance of its own"}
	}
	if !known {
		m.log.Info().Msg("eviction policy cannot be read: make sure that it is noeviction")
	}
	return nil
}

// EvictionPolicy reads maxmemory-policy; known is false where the server does
// not tell (miniredis, some managed services). Blocks for one call at most.
func (m *Manager) EvictionPolicy(ctx context.Context) (policy string, known bool, err error) {
	node, err := m.node(ctx)
	if err != nil {
		return "", false, err
	}
	var info string
	err = m.ask(ctx, opPing, func(ctx context.Context) error {
		var err error
		info, err = node.Info(ctx, "memory").Result()
		var answer redis.Error
		if errors.As(err, &answer) && classify(err) == ClassRefused {
			return nil
		}
		return err
	})
	if err != nil {
		return "", false, err
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok {
			return value, true, nil
		}
	}
	return "", false, nil
}

// node is the server that holds our slot: INFO and SCAN speak of one server.
func (m *Manager) node(ctx context.Context) (redis.Cmdable, error) {
	cluster, ok := m.calls.(*redis.ClusterClient)
	if !ok {
		return m.calls, nil
	}
	var node redis.Cmdable
	err := m.ask(ctx, opPing, func(ctx context.Context) error {
		master, err := cluster.MasterForKey(ctx, m.keys.sys())
		node = master
		return err
	})
	return node, err
}
