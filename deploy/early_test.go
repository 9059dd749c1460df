package deploy_test

import (
	"errors"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
)

// A process that comes before setup is told so at the first stream, and not that the broker is away.
func TestAWorkerBeforeSetupIsToldToRunIt(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "nats.conf")
	err := b.connect("worker").Setup(within(t))
	var missing *bus.NotSetUpError
	if !errors.As(err, &missing) || errors.Is(err, bus.ErrUnreachable) {
		t.Fatalf("a worker before setup: %v", err)
	}
	b.setUp()
	if err := b.connect("worker").Setup(within(t)); err != nil {
		t.Errorf("after setup: %v", err)
	}
}

func TestWhoMayNotLookAtStreamsIsToldAtOnce(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "nats.conf")
	b.setUp()
	if err := b.connect("web").Verify(within(t)); !errors.Is(err, bus.ErrUnauthorized) || errors.Is(err, bus.ErrUnreachable) {
		t.Errorf("the web app looks at the streams: %v", err)
	}
}

// Every reply would be lost, and every call would look like a broker that is away.
func TestAnInboxThatIsNotTheRolesOwnIsRefusedOnConnecting(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "nats.conf")
	for _, user := range []string{"web", "gateway", "worker", "ops", "setup", "backup"} {
		for _, prefix := range []string{"", "_INBOX_wrong"} {
			conn, err := bus.Connect(within(t), bus.Config{URL: b.url(user), InboxPrefix: prefix})
			var inbox *bus.InboxError
			if !errors.As(err, &inbox) {
				t.Errorf("%s with inbox %q: %v", user, prefix, err)
			}
			if err == nil {
				conn.Close()
			}
		}
		b.connect(user)
	}
}
