package deploy_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// patience bounds each wait of a test; nothing is measured by it.
const patience = 30 * time.Second

// roles are the users of nats.conf, with the variable of each one's permissions in it.
var roles = []struct{ user, permissions string }{
	{"web", "MAY_WEB"}, {"web-acme", "MAY_WEB_ACME"}, {"gateway", "MAY_GATEWAY"}, {"worker", "MAY_WORKER"}, {"ops", "MAY_OPS"}, {"setup", "MAY_SETUP"},
	{"backup", "MAY_BACKUP"},
}

func TestMain(m *testing.M) {
	emulator.MaybeInit() // must come first: the emulator starts this binary again as the init of each sandbox
	os.Setenv("WAKEBUS_NATS_SERVER_NAME", "under-test")
	for _, user := range append([]string{"sys", "route"}, users()...) {
		os.Setenv(passwordVariable(user), passwordOf(user))
	}
	os.Setenv("WAKEBUS_NATS_ROUTES", routesOf(clusterPorts))
	goleak.VerifyTestMain(m)
}

func users() []string {
	var out []string
	for _, r := range roles {
		out = append(out, r.user)
	}
	return out
}

func passwordVariable(user string) string {
	return "WAKEBUS_NATS_" + strings.ToUpper(strings.ReplaceAll(user, "-", "_")) + "_PASSWORD"
}

func passwordOf(user string) string { return "pw-of-" + user }

// inboxOf is the prefix that the user may subscribe to.
func inboxOf(user string) string { return "_INBOX_" + strings.TrimPrefix(user, "web-") }

// broker runs the shipped configuration on free ports.
type broker struct {
	t       testing.TB
	servers []*bus.Server
}

// edit changes the configuration's text. Each must find its place exactly once in the files together.
type edit struct{ old, new string }

// shipped are the files that a server may be started with.
var shipped = []string{"nats.conf", "nats-tls.conf", "nats-cluster.conf"}

func startBroker(t testing.TB, file string, edits ...edit) *broker {
	t.Helper()
	return &broker{t: t, servers: []*bus.Server{startServer(t, file, edits...)}}
}

func startServer(t testing.TB, file string, edits ...edit) *bus.Server {
	t.Helper()
	dir := t.TempDir()
	// The monitoring port is fixed in the file, and two tests would meet on it.
	edits = append(edits, edit{`http: "0.0.0.0:8222"`, `http: "127.0.0.1:-1"`})
	found := make([]int, len(edits))
	for _, name := range shipped {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		for i, e := range edits {
			found[i] += strings.Count(text, e.old)
			text = strings.Replace(text, e.old, e.new, 1)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range found {
		if n != 1 {
			t.Fatalf("%q stands %d times in the shipped files", edits[i].old, n)
		}
	}
	server, err := bus.StartServer(context.Background(), bus.ServerConfig{ConfigFile: filepath.Join(dir, file)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// url is the addresses of the broker's servers for a user.
func (b *broker) url(user string) string {
	b.t.Helper()
	var all []string
	for _, s := range b.servers {
		u, err := url.Parse(s.URL())
		if err != nil {
			b.t.Fatal(err)
		}
		u.User = url.UserPassword(user, passwordOf(user))
		all = append(all, u.String())
	}
	return strings.Join(all, ",")
}

// connect opens a bus as a user.
func (b *broker) connect(user string, change ...func(*bus.Config)) *bus.Bus {
	b.t.Helper()
	cfg := bus.Config{URL: b.url(user), Name: "test " + user, InboxPrefix: inboxOf(user)}
	for _, f := range change {
		f(&cfg)
	}
	conn, err := bus.Connect(context.Background(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(conn.Close)
	return conn
}

// setUp makes the streams as the one user who may.
func (b *broker) setUp(change ...func(*bus.Config)) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.connect("setup", change...).Setup(ctx); err != nil {
		b.t.Fatal(err)
	}
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// dial is a stock client's connection as a user, until the test ends.
func (b *broker) dial(user string) *nats.Conn {
	b.t.Helper()
	nc, err := nats.Connect(b.url(user), nats.CustomInboxPrefix(inboxOf(user)))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	return nc
}

// raw is a stock client's look at JetStream as a user, until the test ends.
func (b *broker) raw(user string) jetstream.JetStream {
	b.t.Helper()
	js, err := jetstream.New(b.dial(user))
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}
