package main

import (
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
)

// A deployment of other sizes is compared with its own, and each difference has a line that names the setting.
func TestCheckComparesStreamsWithTheSizesThatAreSet(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *bus.Config) {
		c.TenantBacklog = 7
		c.Limits = bus.Limits{Sandbox: 16 << 20, Jobs: 17 << 20, Output: 18 << 20}
	})
	sizes := map[string]string{"WAKEBUS_TENANT_BACKLOG": "7", "WAKEBUS_QUEUE_BYTES": "16MiB", "WAKEBUS_JOURNAL_BYTES": "17MiB", "WAKEBUS_OUTPUT_BYTES": "18MiB"}
	told := r.run("check").out
	for variable, value := range sizes {
		if !strings.Contains(told, "set "+variable+" here") {
			t.Errorf("no line names %s:\n%s", variable, told)
		}
		r.env[variable] = value
	}
	if got := r.run("check"); got.code != 0 || strings.Contains(got.out, "fail") {
		t.Errorf("with the sizes of the workers: %s", got)
	}
	r.env["WAKEBUS_QUEUE_BYTES"] = "16MB"
	got := r.run("check")
	if got.code != 1 || strings.Count(got.out+got.err, "WAKEBUS_QUEUE_BYTES ") != 2 {
		t.Errorf("a mistyped size is told once, and what it leads to once: %s", got)
	}
}

func TestCheckSaysEachMissingObjectOnALineOfItsOwn(t *testing.T) {
	t.Parallel()
	server, err := bus.StartServer(t.Context(), bus.ServerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	r := &rig{t: t, dir: t.TempDir(), listening: make(chan struct{}), env: map[string]string{"NATS_URL": server.URL(), "AUTHZ_MODE": "dev"}}
	missing := 0
	for line := range strings.Lines(r.run("check").out) {
		if strings.HasPrefix(line, "fail  read ") && strings.Contains(line, "run setup") {
			missing++
		}
	}
	if missing < 8 {
		t.Errorf("%d missing objects have a line:\n%s", missing, r.run("check").out)
	}
}

func TestASettingsFileThatIsNotThereIsWrongUsage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.env["NATS_CREDS"] = "/nowhere.creds"
	r.run("status").want(t, "status", 2, "")
	r.run("check", "--env-file", "x").want(t, "a flag that would be ignored", 2, "")
	r.run("check", "--role", "worker").want(t, "a flag that would be ignored", 2, "")
}
