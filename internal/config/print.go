package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Value is the setting's value in c as it may be printed: secrets are dots, addresses lose user and password, an
// unset one is "".
func (s Setting) Value(c Config) string {
	switch v := reflect.ValueOf(c).FieldByName(s.Field).Interface().(type) {
	case time.Duration:
		return shortDuration(v)
	case fmt.Stringer:
		return v.String()
	default:
		return fmt.Sprint(v)
	}
}

// shortDuration drops the zero units that Duration.String ends with: 24h0m0s is 24h.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Markdown is docs/configuration.md: the table, for people.
func Markdown() string {
	var b strings.Builder
	b.WriteString(markdownHead)
	for _, role := range []struct {
		role  Role
		title string
		text  string
	}{
		{RoleWorker, "`worker run`", "Read by the worker."},
		{RoleGateway, "`terminal-gw serve`", "Read by the terminal gateway."},
		{RoleSetup, "`setup`", "Read by `deploy/setup`, which makes the streams and changes them to what these say. `worker check` reads the last five as well, to compare the streams with them: run it with the same."},
		{RoleClient, "Client commands", "Read by `worker exec`, `jobs`, `files`, `grant`, `dlq`, `leases`, `sandboxes`, `execution`, `status`, `check`, `plan` and `terminal-gw attach`. None is required until a command needs it."},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| variable | type | default | range or unit | meaning |\n|---|---|---|---|---|\n", role.title, role.text)
		for _, s := range Settings() {
			if s.ReadBy(role.role) {
				b.WriteString(s.row())
			}
		}
	}
	b.WriteString(markdownTail)
	return b.String()
}

func (s Setting) row() string {
	deflt, unit, kind := "", s.Unit, s.Type
	if s.Default != "" {
		deflt = "`" + s.Default + "`"
	}
	if s.Min != "" {
		unit = strings.TrimSpace(s.Min + " to " + s.Max + " " + s.Unit)
		if what, only, listed := strings.Cut(s.Unit, ": "); listed {
			unit = only + " " + what
		}
	}
	if s.Secret && kind != "secret" {
		kind += ", secret"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", s.Variable, kind, deflt, unit, s.Doc)
}

const markdownHead = `# Configuration

<!-- Generated from the settings table in internal/config by "go generate ./internal/config"; a test fails when it differs. -->

Every setting is an environment variable. Contract names that other tools know stand without a prefix, everything
else begins with ` + "`WAKEBUS_`" + `; a misspelt ` + "`WAKEBUS_`" + ` variable is warned about with the nearest name.

- All problems are reported at once, each naming its variable and never its value.
- A variable that is set and empty is an error, not the default.
- Durations need units (` + "`90s`, `5m`" + `); sizes take ` + "`B`, `KiB`, `MiB`, `GiB`" + `.
- Every secret ` + "`X`" + ` may come from a file named by ` + "`X_FILE`" + ` (one line, 64 KiB at most); both set is an error.
- A malformed setting that a process does not read is a warning for it, not an error.
- ` + "`worker check --config`" + ` prints the settings in force, secrets redacted.
- ` + "`worker run --env-file F` and `terminal-gw serve --env-file F`" + ` read KEY=VALUE lines; the environment wins over
  them. They never read a dev instance's file unless told. Client commands take a flag, else the environment, else ` + "`.wakebus/env`" + ` in this folder or the nearest parent (mode 0600, own user); that file is left
  alone when ` + "`NATS_URL`" + ` was given otherwise.
`

const markdownTail = `
## Rules between settings

- ` + "`CODE_EXECUTION_ENABLED=true` needs `SPRITES_API_TOKEN` and a `SANDBOX_SESSION_SECRET`" + ` of 32 bytes or more, else
  ` + "`worker run`" + ` does not start. With execution off it starts without them and denies ` + "`kill_switch_off`" + `.
- ` + "`AUTHZ_MODE`" + ` grant and callout need ` + "`GRANT_KEYS_FILE`" + `; dev is refused unless NATS, Redis and Sprites are all on
  loopback.
- ` + "`NATS_CERT` and `NATS_KEY`" + ` go together; ` + "`NATS_CREDS` and `NATS_NKEY`" + ` exclude each other.
- ` + "`WAKEBUS_STREAM_BYTES` is at most `WAKEBUS_STREAM_HARD_CAP`" + `.
- ` + "`WAKEBUS_LIMIT_TENANT`" + ` is not below the largest tier of ` + "`WAKEBUS_LIMIT_EXEC` and `WAKEBUS_LIMIT_TERMINAL`" + `.
- ` + "`WAKEBUS_DIAL_TIMEOUT`" + ` is 5s or more, so that a cold wake fits.
- Fixed beside these: leases are renewed every quarter of ` + "`WAKEBUS_LEASE_TTL`" + `; a message in work is kept every 3 s of
  an acknowledgement time of 9 s.

## Tracing

Traces are off, at no cost, until one of the OpenTelemetry variables asks for them: ` + "`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_TRACES_EXPORTER=otlp`" + `.
` + "`OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none`" + ` switch them off again. The exporter speaks OTLP over HTTP and
reads the other standard variables (` + "`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`" + `, …).
`
