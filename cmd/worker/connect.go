package main

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/lease"
)

// unreachable reports whether NATS or Redis did not answer, or did not let us in.
func unreachable(err error) bool {
	return errors.Is(err, bus.ErrUnreachable) || errors.Is(err, bus.ErrUnauthorized) || errors.Is(err, bus.ErrClosed) ||
		errors.Is(err, errNoServer) || errors.Is(err, lease.ErrUnavailable)
}

// errNoServer: nothing says where a server is.
var errNoServer = errors.New("nothing says where the server is")

// needs says which setting is missing and what would set it.
func needs(variable string) error {
	return &noServerError{variable}
}

type noServerError struct{ variable string }

func (e *noServerError) Error() string {
	return e.variable + " is not set, and there is no dev instance here (start one with: worker dev)"
}

func (e *noServerError) Unwrap() error { return errNoServer }

// misnamed makes wrong usage of settings that the bus cannot use, such as a file that is not there.
func misnamed(err error) error {
	if errors.Is(err, bus.ErrInvalid) {
		return usage("%w", err)
	}
	return err
}

// connect opens the bus for a client command. A dev instance whose file is there and whose server is gone says so.
func (c *cli) connect(ctx context.Context) (*bus.Bus, config.Client, error) {
	settings, err := c.settings()
	if err != nil {
		return nil, settings, err
	}
	if settings.NATSURL == "" {
		return nil, settings, needs("NATS_URL")
	}
	log := zerolog.Nop()
	b, err := bus.Connect(ctx, bus.Config{
		URL: settings.NATSURL.Reveal(), Creds: settings.NATSCreds, NKey: settings.NATSNKey, CA: settings.NATSCA,
		Cert: settings.NATSCert, Key: settings.NATSKey, Name: "wakebus cli", InboxPrefix: settings.NATSInboxPrefix,
		TenantBacklog: settings.TenantBacklog, Replicas: settings.Replicas,
		Limits: bus.Limits{Sandbox: settings.QueueBytes.Bytes(), Jobs: settings.JournalBytes.Bytes(), Output: settings.OutputBytes.Bytes()},
		Now:    c.now, Logger: &log,
	})
	if err != nil {
		if settings.File != nil && errors.Is(err, bus.ErrUnreachable) {
			return nil, settings, settings.File.Gone(err)
		}
		return nil, settings, misnamed(err)
	}
	if c.person {
		where := settings.NATSURL.String()
		if settings.File != nil {
			where += " (the dev instance of " + settings.File.Dir + ")"
		}
		c.say("nats: %s", where)
	}
	return b, settings, nil
}
