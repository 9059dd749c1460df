// Command setup makes the streams, consumers and the bucket of a deployment, or brings them to the release's settings. It
// runs under a NATS user of its own, so that no worker needs the right to make or change a stream. Running it again
// changes nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
)

// patience bounds the whole set-up: the broker makes files for each stream.
const patience = 2 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		stop()
		os.Exit(1)
	}
	fmt.Println("setup: streams and consumers are as this release wants them")
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	settings, warnings, err := config.Load(config.RoleSetup, os.LookupEnv, os.Environ())
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "setup: warning:", w)
	}
	b, err := bus.Connect(ctx, bus.Config{
		URL: settings.NATSURL.Reveal(), Creds: settings.NATSCreds, NKey: settings.NATSNKey, CA: settings.NATSCA,
		Cert: settings.NATSCert, Key: settings.NATSKey, Name: "wakebus setup", InboxPrefix: settings.NATSInboxPrefix,
		TenantBacklog: settings.TenantBacklog, Replicas: settings.Replicas, Limits: bus.Limits{Sandbox: settings.QueueBytes.Bytes(), Jobs: settings.JournalBytes.Bytes(), Output: settings.OutputBytes.Bytes()},
	})
	if err != nil {
		return err
	}
	defer b.Close()
	return b.Setup(ctx)
}
