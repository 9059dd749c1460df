package deploy_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// patience bounds each wait of a test; nothing is measured by it.
const patience = 30 * time.Second

// roles are the users of nats.conf, with the variable of each one's permissions in it.
var roles = []struct{ user, permissions string }{
	{"web", "MAY_WEB"}, {"web-acme", "MAY_WEB_ACME"}, {"gateway", "MAY_GATEWAY"}, {"worker", "MAY_WORKER"}, {"ops", "MAY_OPS"}, {"setup", "MAY_SETUP"},
}

func TestMain(m *testing.M) {
	emulator.MaybeInit() // must come first: the emulator starts this binary again as the init of each sandbox
	os.Setenv("WAKEBUS_NATS_SERVER_NAME", "under-test")
	for _, user := range append([]string{"sys"}, users()...) {
		os.Setenv(passwordVariable(user), passwordOf(user))
	}
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

// broker runs the shipped configuration on a free port. change edits its text; each edit must find its place once.
type broker struct {
	t      testing.TB
	server *bus.Server
}

type edit struct{ old, new string }

func startBroker(t testing.TB, file string, edits ...edit) *broker {
	t.Helper()
	dir := t.TempDir()
	// The monitoring port is fixed in the file, and two tests would meet on it.
	edits = append(edits, edit{`http: "0.0.0.0:8222"`, `http: "127.0.0.1:-1"`})
	for _, name := range []string{"nats.conf", "nats-tls.conf"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(apply(t, name, string(text), edits)), 0o600); err != nil {
			t.Fatal(err)
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
	return &broker{t: t, server: server}
}

func apply(t testing.TB, name, text string, edits []edit) string {
	t.Helper()
	for _, e := range edits {
		if n := strings.Count(text, e.old); name == "nats.conf" && n != 1 {
			t.Fatalf("%q stands %d times in %s", e.old, n, name)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return text
}

// url is the broker's address for a user.
func (b *broker) url(user string) string {
	b.t.Helper()
	u, err := url.Parse(b.server.URL())
	if err != nil {
		b.t.Fatal(err)
	}
	u.User = url.UserPassword(user, passwordOf(user))
	return u.String()
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
func (b *broker) setUp() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.connect("setup").Setup(ctx); err != nil {
		b.t.Fatal(err)
	}
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
