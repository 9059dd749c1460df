package survival_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/tests/rig"
)

func goTool(t *testing.T, args ...string) string {
	t.Helper()
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go tool to ask about the release build")
	}
	out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestOnlyTheStoppointBuildCanBeStopped(t *testing.T) {
	t.Parallel()
	const pkg, file = "github.com/wakebus/wakebus/internal/job", "step_stoppoint.go"
	list := []string{"list", "-f", `{{join .GoFiles "\n"}}`}
	release := strings.Fields(goTool(t, append(list, pkg)...))
	testing := strings.Fields(goTool(t, append(append(list, "-tags", "stoppoint"), pkg)...))
	if slices.Contains(release, file) || !slices.Contains(testing, file) {
		t.Errorf("release is built of %v, the testing build of %v", release, testing)
	}
}

// By hand, since it links a binary: WAKEBUS_BINARIES=1.
func TestTheReleaseBinaryDoesNotKnowTheStoppoint(t *testing.T) {
	t.Parallel()
	if os.Getenv("WAKEBUS_BINARIES") == "" {
		t.Skip("WAKEBUS_BINARIES is not set")
	}
	path := filepath.Join(t.TempDir(), "worker")
	goTool(t, "build", "-o", path, "github.com/wakebus/wakebus/cmd/worker")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "WAKEBUS_TEST_STOP") {
		t.Error("the release binary reads WAKEBUS_TEST_STOP")
	}
}

// By hand, since it links a binary and waits out the real ack wait: WAKEBUS_BINARIES=1. The time is printed; that it is
// bounded is what AckWait promises.
func TestAKilledBinaryIsSucceededWithinTheAckWait(t *testing.T) {
	if os.Getenv("WAKEBUS_BINARIES") == "" {
		t.Skip("WAKEBUS_BINARIES is not set")
	}
	binary := filepath.Join(t.TempDir(), "worker")
	goTool(t, "build", "-tags", "stoppoint", "-o", binary, "github.com/wakebus/wakebus/cmd/worker")
	w := newWorld(t, workers(-1))
	env := filepath.Join(t.TempDir(), "env")
	var text strings.Builder
	for k, v := range w.inst.Env() {
		fmt.Fprintf(&text, "%s=%s\n", k, v)
	}
	if err := os.WriteFile(env, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	dying := startBinary(t, binary, env, "WAKEBUS_TEST_STOP=started", "WAKEBUS_TEST_STOP_JOB=victim")
	dying.says(t, "ready")
	j := w.exec(bus.ExecRequest{JobID: "victim", Shell: ticking})
	dying.says(t, "stoppoint: started "+rig.Tenant+"/victim.0")
	startBinary(t, binary, env).says(t, "ready")
	if err := dying.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	w.until(j, bus.EventStarted) // an empty Redis makes it wait before that
	w.until(j, bus.EventTakenOver)
	t.Logf("taken over %s after the kill", time.Since(killed))
	w.goneOn(j)
}

// binary is a worker process of the built binary.
type binary struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startBinary(t *testing.T, path, envFile string, env ...string) *binary {
	t.Helper()
	b := &binary{cmd: exec.Command(path, "run", "--env-file", envFile)}
	b.cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b.cmd.Stdout, b.cmd.Stderr = w, w
	b.lines = bufio.NewScanner(r)
	if err := errors.Join(b.cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill() // it may have ended
		_ = b.cmd.Wait()
		_ = r.Close()
	})
	return b
}

// says waits for a line with this text.
func (b *binary) says(t *testing.T, text string) {
	t.Helper()
	var all strings.Builder
	for b.lines.Scan() {
		if strings.Contains(b.lines.Text(), text) {
			return
		}
		all.WriteString(b.lines.Text() + "\n")
	}
	t.Fatalf("the worker ended before it said %q:\n%s", text, all.String())
}
