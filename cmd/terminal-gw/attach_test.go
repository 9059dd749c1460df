package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// cliVariable makes this binary the command itself, for a terminal that a test drives.
const cliVariable = "WAKEBUS_TEST_CLI"

func TestMain(m *testing.M) {
	emulator.MaybeInit()
	if os.Getenv(cliVariable) != "" {
		os.Exit(run(context.Background(), newCLI(), os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// pane is a real terminal: a pane of a tmux server of its own.
type pane struct {
	t      *testing.T
	socket string
}

func (p pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", p.socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// runs starts the command in the pane; its exit code is shown behind it.
func (p pane) runs(args string) {
	p.t.Helper()
	p.types(fmt.Sprintf("clear; %s=1 /proc/%d/exe %s; echo code-$?", cliVariable, os.Getpid(), args), "Enter")
}

func (p pane) types(keys ...string) { p.t.Helper(); p.tmux(append([]string{"send-keys"}, keys...)...) }

// sees waits until the pane shows a line.
func (p pane) sees(line string) {
	p.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		screen := p.tmux("capture-pane", "-p")
		for l := range strings.Lines(screen) {
			if strings.TrimRight(l, " \n") == line {
				return
			}
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("waited in vain for %q; the pane shows\n%s", line, screen)
		}
	}
}

// The client in a real terminal: raw keys, its size, the way out, the way back, the shell's own exit code, and a viewer
// who only looks.
func TestAttachWorksInARealTerminal(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	inst, err := instance.Start(t.Context(), instance.Config{Terminal: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inst.Close() })
	p := pane{t: t, socket: filepath.Join(t.TempDir(), "tmux")}
	p.tmux("new-session", "-d", "-x", "90", "-y", "20", "env", "PS1=outer ", "sh")
	t.Cleanup(func() { p.tmux("kill-server") })
	p.tmux("set-option", "-g", "window-size", "manual")
	attach := "attach --page home --url " + inst.Env()["TERMINAL_URL"]

	p.runs(attach)
	p.types("PS1='inner '; kept=yes; stty size", "Enter")
	p.sees("20 90")
	p.tmux("resize-window", "-x", "70", "-y", "15")
	p.types("clear; sleep 1000", "Enter")
	p.types("C-c")
	p.types("stty size", "Enter")
	p.sees("15 70")
	p.types("C-]", "d")
	p.sees("code-0")

	p.runs(attach + " --viewer")
	p.sees("15 70")
	p.types("echo typed by a viewer", "Enter")
	p.types("C-]", "d")
	p.sees("code-0")

	p.runs(attach)
	p.types("clear; echo kept-$kept", "Enter")
	p.sees("kept-yes")
	p.types("exit 5", "Enter")
	p.sees("code-5")
}

// The end of a piped input ends the shell, though the shell is not yet reading when it is first typed.
func TestAttachEndsWithItsInput(t *testing.T) {
	inst, err := instance.Start(t.Context(), instance.Config{Terminal: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inst.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, fmt.Sprintf("/proc/%d/exe", os.Getpid()), "attach", "--url", inst.Env()["TERMINAL_URL"])
	cmd.Env = append(os.Environ(), cliVariable+"=1") // standard input is /dev/null
	if out, err := cmd.CombinedOutput(); err != nil || ctx.Err() != nil {
		t.Fatalf("attach </dev/null: %v: %s", err, out)
	}
}

func TestCompletionRefusesAShellItDoesNotKnow(t *testing.T) {
	cmd := exec.Command(fmt.Sprintf("/proc/%d/exe", os.Getpid()), "completion", "tcsh")
	cmd.Env = append(os.Environ(), cliVariable+"=1")
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != codeUsage {
		t.Fatalf("ended with %v, want %d", err, codeUsage)
	}
}
