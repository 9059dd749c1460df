package rig

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/wakebus/wakebus/internal/bus"
)

// Broker is an embedded broker that can be stopped and started again on its port with its store.
type Broker struct {
	// URL is its address, the same over restarts.
	URL string

	cfg    bus.ServerConfig
	server *bus.Server
}

// StartBroker starts one with its store in dir. Stop ends it.
func StartBroker(ctx context.Context, dir string) (*Broker, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port for the broker: %w", err)
	}
	b := &Broker{cfg: bus.ServerConfig{Dir: dir, Port: l.Addr().(*net.TCPAddr).Port, Password: "password-of-the-rig"}}
	if err := errors.Join(l.Close(), b.Start(ctx)); err != nil {
		return nil, err
	}
	return b, nil
}

// Start starts it, again after Stop.
func (b *Broker) Start(ctx context.Context) error {
	server, err := bus.StartServer(ctx, b.cfg)
	if err != nil {
		return err
	}
	b.server, b.URL = server, server.URL()
	return nil
}

// Stop ends it. It may be called more than once.
func (b *Broker) Stop() error {
	if b.server == nil {
		return nil
	}
	server := b.server
	b.server = nil
	return server.Close()
}
