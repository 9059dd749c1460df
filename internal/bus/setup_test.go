package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/bus"
)

// limits keeps a test's streams within what a small disk reserves.
func limits() bus.Limits {
	return bus.Limits{Sandbox: 8 << 20, Jobs: 32 << 20, Output: 32 << 20, Control: 2 << 20, DLQ: 4 << 20, Audit: 4 << 20, Links: 2 << 20}
}

// rig is a broker of the test's own with a connection to it, set up.
type rig struct {
	t      *testing.T
	server *bus.Server
	bus    *bus.Bus
	raw    *nats.Conn // another client, for what the Bus must not be able to do or for what a caller would do
	js     jetstream.JetStream
}

func startServer(t *testing.T, cfg bus.ServerConfig) *bus.Server {
	t.Helper()
	server, err := bus.StartServer(t.Context(), cfg)
	if err != nil {
		t.Fatalf("start the broker: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close the broker: %v", err)
		}
	})
	return server
}

func connect(t *testing.T, server *bus.Server, change ...func(*bus.Config)) *bus.Bus {
	t.Helper()
	cfg := bus.Config{URL: server.URL(), Limits: limits(), PublishTimeout: 5 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	b, err := bus.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(b.Close)
	return b
}

func setup(t *testing.T, change ...func(*bus.Config)) *rig {
	t.Helper()
	server := startServer(t, bus.ServerConfig{})
	b := connect(t, server, change...)
	if err := b.Setup(t.Context()); err != nil {
		t.Fatalf("set up: %v", err)
	}
	raw, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatalf("connect the other client: %v", err)
	}
	t.Cleanup(raw.Close)
	js, err := jetstream.New(raw)
	if err != nil {
		t.Fatalf("open jetstream: %v", err)
	}
	return &rig{t: t, server: server, bus: b, raw: raw, js: js}
}

// within bounds a test's wait; a wait that is not met is a failure, never a measurement.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestSetupIsIdempotentAndSafeWhenSeveralStartAtOnce(t *testing.T) {
	t.Parallel()
	server := startServer(t, bus.ServerConfig{})
	var wg sync.WaitGroup
	errs := make([]error, 5)
	for i := range errs {
		b := connect(t, server)
		wg.Go(func() { errs[i] = b.Setup(within(t)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("concurrent set-up: %v", err)
	}
	b := connect(t, server)
	if err := b.Setup(within(t)); err != nil {
		t.Fatalf("second set-up: %v", err)
	}
	if err := b.Verify(within(t)); err != nil {
		t.Fatalf("verify: %v", err)
	}
}

func TestSetupBringsChangedSettingsBack(t *testing.T) {
	t.Parallel()
	r := setup(t)
	stream, err := r.js.Stream(within(t), bus.StreamOutput)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	if cfg.Metadata["io.nats.monitor.enabled"] != "true" {
		t.Errorf("its metadata is %v", cfg.Metadata)
	}
	cfg.MaxAge = time.Hour
	cfg.Metadata["io.nats.monitor.msgs-warn"], cfg.Metadata["io.nats.monitor.enabled"] = "5", "false"
	if _, err := r.js.UpdateStream(within(t), cfg); err != nil {
		t.Fatal(err)
	}
	err = r.bus.Verify(within(t))
	var drift *bus.DriftError
	if !errors.As(err, &drift) || drift.Field != "MaxAge" || drift.Object != "stream "+bus.StreamOutput {
		t.Fatalf("verify: got %v, want the drift of MaxAge on %s", err, bus.StreamOutput)
	}
	if err := r.bus.Setup(within(t)); err != nil {
		t.Fatalf("set up: %v", err)
	}
	if err := r.bus.Verify(within(t)); err != nil {
		t.Fatalf("verify after set-up: %v", err)
	}
	if stream, err = r.js.Stream(within(t), bus.StreamOutput); err != nil {
		t.Fatal(err)
	}
	if m := stream.CachedInfo().Config.Metadata; m["io.nats.monitor.msgs-warn"] != "5" || m["io.nats.monitor.enabled"] != "false" {
		t.Errorf("what an operator set was not kept: %v", m)
	}
}

func TestSetupNamesTheStreamAndFieldItCannotChange(t *testing.T) {
	t.Parallel()
	server := startServer(t, bus.ServerConfig{})
	b := connect(t, server)
	raw, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	js, err := jetstream.New(raw)
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(within(t), jetstream.StreamConfig{Name: bus.StreamSandbox, Subjects: []string{"sandbox.exec"}, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	err = b.Setup(within(t))
	var drift *bus.DriftError
	if !errors.As(err, &drift) || drift.Object != "stream "+bus.StreamSandbox {
		t.Fatalf("got %v, want a drift of %s", err, bus.StreamSandbox)
	}
}

func TestVerifyReportsEverythingThatIsMissing(t *testing.T) {
	t.Parallel()
	b := connect(t, startServer(t, bus.ServerConfig{}))
	if err := b.Verify(within(t)); !errors.Is(err, bus.ErrNotSetUp) {
		t.Fatalf("got %v, want ErrNotSetUp", err)
	}
}

func TestConnectTellsUnreachableFromUnauthorized(t *testing.T) {
	t.Parallel()
	server := startServer(t, bus.ServerConfig{})
	_, err := bus.Connect(within(t), bus.Config{URL: "nats://wakebus:wrong@" + server.URL()[len(server.URL())-len("127.0.0.1:00000"):]})
	if !errors.Is(err, bus.ErrUnauthorized) {
		t.Errorf("wrong password: got %v, want ErrUnauthorized", err)
	}
	url := server.URL()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Connect(within(t), bus.Config{URL: url}); !errors.Is(err, bus.ErrUnreachable) {
		t.Errorf("no server: got %v, want ErrUnreachable", err)
	}
	if _, err := bus.Connect(within(t), bus.Config{URL: "nats://nowhere.invalid:4222"}); !errors.Is(err, bus.ErrUnreachable) {
		t.Errorf("a name that does not resolve: got %v, want ErrUnreachable", err)
	}
}

func TestConfigReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	_, err := bus.Connect(within(t), bus.Config{Replicas: 2, AckWait: time.Millisecond, Cert: "c.pem", TenantBacklog: -1})
	var joined interface{ Unwrap() []error }
	if !errors.Is(err, bus.ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 4 {
		t.Fatalf("got %v, want four problems", err)
	}
}

func TestTwoServersNeverShareAStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	startServer(t, bus.ServerConfig{Dir: dir})
	_, err := bus.StartServer(within(t), bus.ServerConfig{Dir: dir})
	var locked *bus.StoreLockedError
	if !errors.Is(err, bus.ErrStoreLocked) || !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.Dir != dir {
		t.Fatalf("got %v, want ErrStoreLocked by this process", err)
	}
}
