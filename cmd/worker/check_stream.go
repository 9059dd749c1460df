package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
)

// warned says what is odd about a setting. One that the streams are compared by must be readable here too, although no
// other client command needs it.
func (u *checkup) warned(w config.Warning) {
	for _, s := range config.Settings() {
		if s.Variable == w.Variable && s.ReadBy(config.RoleSetup) {
			u.say(verdictFail, w.Variable+" "+w.Why, "set it as setup and the workers have it")
			return
		}
	}
	u.say(verdictNote, w.Variable+" "+w.Why, "set it right, or unset it")
}

// nats checks the broker and returns the connection, nil when there is none.
func (u *checkup) nats(ctx context.Context, s config.Client) *bus.Bus {
	b, _, err := u.c.quietly().connect(ctx)
	if err != nil {
		u.say(verdictFail, "nats "+s.NATSURL.String()+": "+err.Error(), natsHint(err))
		return nil
	}
	u.say(verdictOK, "nats "+s.NATSURL.String()+": "+b.Server(), "")
	if n := b.MaxPayload(); n < minPayload {
		u.say(verdictFail, fmt.Sprintf("nats max_payload is %d bytes", n), "set it to 1MB or more: results would not fit")
	}
	found := each(b.Verify(ctx))
	if len(found) == 0 {
		u.say(verdictOK, "streams, consumers and bucket are as they must be", "")
	}
	for _, err := range found {
		u.stream(err)
	}
	u.fleet(ctx, b)
	return b
}

func natsHint(err error) string {
	var inbox *bus.InboxError
	switch {
	case errors.As(err, &inbox):
		return "an operator's is _INBOX_ops"
	case errors.Is(err, bus.ErrUnauthorized):
		return "set NATS_URL with the right user and password, or NATS_CREDS"
	case errors.Is(err, bus.ErrInvalid):
		return "set it right"
	}
	return "start it, or set NATS_URL"
}

// stream says what is wrong with one stream, consumer or bucket.
func (u *checkup) stream(err error) {
	var drift *bus.DriftError
	switch {
	case errors.As(err, &drift):
		u.say(verdictFail, drift.Error(), driftHint(drift))
	case errors.Is(err, bus.ErrUnauthorized):
		u.say(verdictNote, "streams cannot be looked at with these credentials", "check with an operator's")
	case errors.Is(err, bus.ErrNotSetUp):
		u.say(verdictFail, err.Error(), "run setup as the user setup; where every user may make streams, a worker does it")
	default:
		u.say(verdictFail, err.Error(), "try again")
	}
}

// sizedBy is the setting that bounds each stream which has one.
var sizedBy = map[string]string{"stream SANDBOX": "WAKEBUS_QUEUE_BYTES", "stream SANDBOX_JOBS": "WAKEBUS_JOURNAL_BYTES",
	"stream SANDBOX_OUTPUT": "WAKEBUS_OUTPUT_BYTES"}

// driftHint names the setting that a difference comes from, where one does.
func driftHint(d *bus.DriftError) string {
	variable := ""
	switch d.Field {
	case "MaxBytes":
		variable = sizedBy[d.Object]
	case "Replicas":
		variable = "WAKEBUS_REPLICAS"
	case "MaxMsgsPerSubject":
		if d.Object == "stream SANDBOX" {
			variable = "WAKEBUS_TENANT_BACKLOG"
		}
	}
	if variable == "" {
		return "run setup of this release as the user setup"
	}
	return "set " + variable + " here as the workers have it, or run setup with this one"
}

// each takes joined errors apart, so that each has a line of its own.
func each(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // only a join itself is taken apart
	if !ok || slices.ContainsFunc(joined.Unwrap(), isClass) {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, each(one)...)
	}
	return all
}

// isClass reports whether an error is a class in front of its cause, as "%w: %w" puts it: those two are one.
func isClass(err error) bool {
	return slices.Contains([]error{bus.ErrUnauthorized, bus.ErrNotSetUp, bus.ErrUnreachable}, err)
}
