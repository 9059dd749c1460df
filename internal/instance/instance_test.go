package instance_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func TestMain(m *testing.M) {
	emulator.MaybeInit()
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, cfg instance.Config) *instance.Instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), instance.ReadyWithin)
	defer cancel()
	inst, err := instance.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inst.Close(); err != nil {
			t.Error(err)
		}
	})
	return inst
}

// exec publishes one command and returns its output and result.
func exec(t *testing.T, inst *instance.Instance, id, shell string) (string, bus.ResultBody) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := inst.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	reader, err := client.Subscribe(ctx, "dev", id)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	body, err := json.Marshal(bus.ExecRequest{V: 1, JobID: id, ConversationID: "kept", Shell: shell})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Publish(ctx, bus.KindExec, "dev", nil, body); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var result bus.ResultBody
	for {
		e, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out.String(), result
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case bus.EventStdout:
			out.Write(e.Data)
		case bus.EventResult:
			if err := json.Unmarshal(e.Data, &result); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestARestartInTheSameFolderFindsTheSandboxAndItsFilesAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, instance.Config{Dir: dir})
	if _, result := exec(t, first, "one", "echo kept > f"); result.Outcome != plan.OutcomeExited {
		t.Fatalf("first command: %s %s", result.Outcome, result.Message)
	}
	env := first.Env()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again := start(t, instance.Config{Dir: dir, Ports: ports(t, env), Secrets: map[string]string{
		"nats": password(t, env["NATS_URL"]), "sprites": env["SPRITES_API_TOKEN"], "SANDBOX_SESSION_SECRET": env["SANDBOX_SESSION_SECRET"],
	}})
	out, result := exec(t, again, "two", "cat f")
	if out != "kept\n" || result.Plan != plan.ActionResume {
		t.Fatalf("second command printed %q, plan %s, %s %s", out, result.Plan, result.Outcome, result.Message)
	}
	if got := again.Env()["NATS_URL"]; got != env["NATS_URL"] {
		t.Errorf("the broker moved from %s to %s although its port was free", env["NATS_URL"], got)
	}
	// The journal survived as well: the first id is known and runs nothing again.
	if _, result := exec(t, again, "one", "echo again > f"); result.Outcome != plan.OutcomeExited {
		t.Fatalf("repeated id: %s", result.Outcome)
	}
	if out, _ := exec(t, again, "three", "cat f"); out != "kept\n" {
		t.Fatalf("a repeated id ran again: f is %q", out)
	}
}

var semantic = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

func TestTheWorkersOfAnInstanceAreListedWithTheirSlots(t *testing.T) {
	t.Parallel()
	inst := start(t, instance.Config{Workers: 2, Settings: map[string]string{"WAKEBUS_SLOTS": "3"}})
	client, err := inst.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	want := map[string]bool{inst.App(0).Worker().ID(): true, inst.App(1).Worker().ID(): true}
	deadline := time.Now().Add(20 * time.Second)
	for {
		workers, err := client.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, w := range workers {
			if !semantic.MatchString(w.Version) {
				t.Errorf("%s says it is %q", w.ID, w.Version)
			}
			if want[w.ID] && w.Slots == 3 && !w.Draining {
				found++
			}
		}
		if found == len(want) && len(workers) == len(want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("listed %+v, want %v", workers, want)
		}
	}
}

func TestTheGatewayOfAnInstanceIsInItsEnvironment(t *testing.T) {
	t.Parallel()
	inst := start(t, instance.Config{Terminal: true})
	if u, err := url.Parse(inst.Env()["TERMINAL_URL"]); err != nil || u.Hostname() != "127.0.0.1" {
		t.Fatalf("TERMINAL_URL is %q", inst.Env()["TERMINAL_URL"])
	}
	for part, address := range inst.Addresses() {
		if strings.Contains(address, "@") {
			t.Errorf("the address of %s shows credentials", part)
		}
	}
}

func TestATemporaryFolderIsGoneAfterClose(t *testing.T) {
	t.Parallel()
	inst := start(t, instance.Config{Workers: -1})
	dir := inst.Dir()
	if err := inst.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is still there: %v", dir, err)
	}
}

func ports(t *testing.T, env map[string]string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for name, variable := range map[string]string{"nats": "NATS_URL", "redis": "REDIS_URL", "sprites": "SPRITES_API_URL"} {
		u, err := url.Parse(env[variable])
		if err != nil {
			t.Fatal(err)
		}
		out[name], err = strconv.Atoi(u.Port())
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func password(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := u.User.Password()
	return p
}
