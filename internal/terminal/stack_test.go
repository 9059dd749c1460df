package terminal_test

import (
	"context"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/coder/websocket"
	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/telemetry"
	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// stack is everything real around gateways: broker, Redis, emulator and a worker.
type stack struct {
	t        testing.TB
	settings map[string]string
	emulator *emulator.Server
	redis    *miniredis.Miniredis
	log      *telemetry.Log
}

func newStack(t testing.TB) *stack {
	t.Helper()
	return newStackWith(t, nil)
}

// newStackWith changes settings of all its processes.
func newStackWith(t testing.TB, change map[string]string) *stack {
	t.Helper()
	ctx := context.Background()
	nats, err := bus.StartServer(ctx, bus.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nats.Close() })
	redis := miniredis.RunT(t)
	nop := zerolog.Nop()
	em, err := emulator.New(emulator.Config{Dir: t.TempDir(), Logger: nop, WarmWake: 20 * time.Millisecond, ColdWake: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := em.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { em.Close() })
	s := &stack{t: t, emulator: em, redis: redis, log: telemetry.NewLog(telemetry.LogConfig{Output: io.Discard}), settings: map[string]string{
		"NATS_URL": nats.URL(), "REDIS_URL": "redis://" + redis.Addr(), "SPRITES_API_URL": em.URL(), "SPRITES_API_TOKEN": em.Token(),
		"SANDBOX_SESSION_SECRET": strings.Repeat("s", 40), "CODE_EXECUTION_ENABLED": "true", "AUTHZ_MODE": "dev",
		"WAKEBUS_TERMINAL_ADDR": "127.0.0.1:0", "WAKEBUS_LEASE_TTL": "8s"}}
	maps.Copy(s.settings, change)
	worker, err := job.NewApp(ctx, s.config(config.RoleWorker), job.AppConfig{Log: s.log, Quarantine: time.Millisecond, Build: &telemetry.Build{Version: "0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	s.run(worker.Run)
	return s
}

func (s *stack) config(role config.Role) config.Config {
	s.t.Helper()
	cfg, _, err := config.Load(role, func(k string) (string, bool) { v, ok := s.settings[k]; return v, ok }, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return cfg
}

// run runs a process's part until the test ends, or until the function it returns is called.
func (s *stack) run(part func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	ended := false
	stop = func() {
		if cancel(); !ended {
			ended = true
			if err := <-done; err != nil {
				s.t.Errorf("ended with %v", err)
			}
		}
	}
	s.t.Cleanup(stop)
	return stop
}

// gateway starts a gateway process's App.
func (s *stack) gateway(change ...func(*terminal.Config)) (*terminal.App, func()) {
	s.t.Helper()
	app, err := terminal.NewApp(context.Background(), s.config(config.RoleGateway), terminal.AppConfig{Log: s.log, Quarantine: time.Millisecond,
		Gateway: func(c *terminal.Config) {
			for _, f := range change {
				f(c)
			}
		}})
	if err != nil {
		s.t.Fatal(err)
	}
	return app, s.run(app.Run)
}

// dial opens a page as the dev instance's user.
func (s *stack) dial(app *terminal.App, page string, opts ...dialOption) *peer {
	s.t.Helper()
	return s.dialURL(app.URL(), page, opts...)
}

func (s *stack) dialURL(base, page string, opts ...dialOption) *peer {
	s.t.Helper()
	hello := frame.Client{Type: frame.TypeHello, Page: page, ClientID: "c-" + page, Size: frame.Size{Cols: 80, Rows: 24}}
	o := &websocket.DialOptions{Subprotocols: []string{frame.Protocol}}
	for _, opt := range opts {
		opt(&hello, o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(base, "http")+"/v1/terminal", o)
	if err != nil {
		s.t.Fatal(err)
	}
	p, err := newPeer(s.t, conn, hello)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// sandboxes asks the emulator's API as the product's own client does.
func (s *stack) client() *sprites.Client {
	s.t.Helper()
	c, err := sprites.New(nil, sprites.Config{BaseURL: s.emulator.URL(), Token: s.emulator.Token()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// shellSessions counts the terminals that run in all sandboxes.
func (s *stack) shellSessions() int {
	s.t.Helper()
	c, n := s.client(), 0
	for _, sp := range s.emulator.Sprites() {
		list, err := c.Sessions(context.Background(), sp.Name)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, one := range list {
			if one.TTY {
				n++
			}
		}
	}
	return n
}
