package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// underRoles is a rig whose broker runs the shipped configuration: a real worker under the worker's role, and a command
// line under the operators'. Not for parallel tests: the passwords come from the environment.
func underRoles(t *testing.T) (*rig, *instance.Instance) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	users := []string{"WEB", "WEB_ACME", "GATEWAY", "WORKER", "OPS", "SETUP", "BACKUP", "SYS"}
	for _, user := range users {
		t.Setenv("WAKEBUS_NATS_"+user+"_PASSWORD", "pw-of-"+strings.ToLower(user))
	}
	t.Setenv("WAKEBUS_NATS_SERVER_NAME", "under-test")
	file := filepath.Join(t.TempDir(), "nats.conf")
	// The monitoring port is fixed in the file.
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), `http: "0.0.0.0:8222"`, "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := bus.StartServer(t.Context(), bus.ServerConfig{ConfigFile: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	as := func(user string) string {
		return strings.Replace(server.URL(), "://", "://"+user+":pw-of-"+user+"@", 1)
	}
	setup, err := bus.Connect(t.Context(), bus.Config{URL: as("setup"), InboxPrefix: "_INBOX_setup"})
	if err != nil {
		t.Fatal(err)
	}
	err = setup.Setup(t.Context())
	setup.Close()
	if err != nil {
		t.Fatal(err)
	}
	inst, err := instance.Start(context.Background(), instance.Config{NATSURL: as("worker"),
		Settings: map[string]string{"WAKEBUS_CREATE_PATIENCE": "2s"},
		Emulator: func(c *emulator.Config) { c.WarmWake, c.ColdWake = -1, -1 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inst.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, dir: t.TempDir(), listening: make(chan struct{}), env: inst.Env()}
	r.env["NATS_URL"], r.env["WAKEBUS_INBOX_PREFIX"], r.env["USER"] = as("ops"), "_INBOX_ops", "olga"
	return r, inst
}

func TestEveryOperatorsCommandWorksUnderTheOperatorsRole(t *testing.T) {
	r, inst := underRoles(t)
	file := filepath.Join(r.dir, "f")
	if err := os.WriteFile(file, []byte("by ops\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.run("exec", "--job", "j1", "--", "echo", "hello").want(t, "exec", 0, "hello\n")
	if err := inst.Emulator().AddFaults(emulator.Fault{Route: "sprite.create", Do: emulator.FaultStatus, Status: 400, Body: `{"error":"invalid"}`}); err != nil {
		t.Fatal(err)
	}
	r.run("exec", "--job", "j2", "--conversation", "c2", "--", "echo", "at last").want(t, "a failing exec", 125, "")
	inst.Emulator().ClearFaults()
	r.awaitLetter("j2")
	for _, step := range []struct {
		line string
		says string
	}{
		{"status", "WORKER"},
		{"status --json", `"runs":`},
		{"jobs list", "j1"},
		{"jobs show j1", "exited"},
		{"jobs show j1 --output", "hello"},
		{"dlq list", "dev/j2"},
		{"dlq stats", "provision_invalid"},
		{"dlq show j2", "provision_invalid"},
		{"dlq replay j2 --why try --wait", "j2"},
		{"leases list", ""},
		{"sandboxes list", "default"},
		{"sandboxes show --conversation default", "default"},
		{"sandboxes sweep --dry-run", ""},
		{"files put " + file + " f --conversation default", ""},
		{"files get f - --conversation default", "by ops"},
		{"execution show", ""},
		{"execution off --why drill", "off"},
		{"execution on --why drill", "on"},
		{"check", ""},
		{"plan --authorised --link live", "resume"},
		{"exec --detach --job j3 -- sleep 600", "j3"},
		{"jobs cancel j3 --why enough", "j3"},
		{"sandboxes end --conversation default --why over", "teardown"},
	} {
		got := r.run(strings.Fields(step.line)...)
		if got.code != 0 || !strings.Contains(got.out, step.says) || strings.Contains(got.err, "warning") {
			t.Errorf("worker %s: %s", step.line, got)
		}
	}
}

// awaitLetter waits until a job's dead letter is stored: it follows the result.
func (r *rig) awaitLetter(job string) {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for r.run("dlq", "show", job).code != 0 {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s has no dead letter", job)
		}
	}
}
