package guest_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

func TestMain(m *testing.M) {
	guest.MaybeInit()
	goleak.VerifyTestMain(m)
}

// start boots a machine, or skips where the host allows no namespaces.
func start(t *testing.T, iso guest.Isolation) *guest.Machine {
	t.Helper()
	return startIn(t, iso, t.TempDir())
}

func startIn(t *testing.T, iso guest.Isolation, dir string) *guest.Machine {
	t.Helper()
	m, err := guest.Start(guest.Config{Isolation: iso, Folder: dir, Hostname: "box", Stderr: os.Stderr})
	if iso == guest.Namespace && errors.Is(err, guest.ErrNamespaces) {
		t.Skipf("this host allows no namespaces: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func run(t *testing.T, m *guest.Machine, script string, args ...string) (string, int) {
	t.Helper()
	argv := append([]string{"sh", "-c", script, "sh"}, args...)
	p, err := m.Exec(guest.Command{Argv: argv, Env: []string{"HOME=/home/sprite"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Stdin.Close()
	out, _ := io.ReadAll(p.Stdout)
	errOut, _ := io.ReadAll(p.Stderr)
	_, _ = p.Stdout.Close(), p.Stderr.Close()
	<-p.Done()
	code, known := p.Exit()
	if !known {
		t.Fatal("exit code is not known")
	}
	return string(out) + string(errOut), code
}

func both(t *testing.T, f func(t *testing.T, iso guest.Isolation)) {
	t.Helper()
	for _, iso := range []guest.Isolation{guest.Namespace, guest.Mapped} {
		t.Run(string(iso), func(t *testing.T) { t.Parallel(); f(t, iso) })
	}
}

func TestCommandsShareOneMachine(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, iso guest.Isolation) {
		m := start(t, iso)
		if out, code := run(t, m, `echo kept > "$1"; exit 42`, "/workspace/a"); code != 42 {
			t.Fatalf("code %d, output %q", code, out)
		}
		if out, _ := run(t, m, `cat "$1"`, "/workspace/a"); out != "kept\n" {
			t.Fatalf("second command saw %q", out)
		}
	})
}

func TestNamespaceShowsOwnPidsReadOnlyRootAndNoCapabilities(t *testing.T) {
	t.Parallel()
	m := start(t, guest.Namespace)
	p, err := m.Exec(guest.Command{Argv: []string{"sh", "-c", "echo $$"}})
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
	for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
		_ = f.Close()
	}
	if got := strings.TrimSpace(line); got != itoa(p.PID) {
		t.Errorf("inside it is %s, outside %d", got, p.PID)
	}
	out, _ := run(t, m, `id -un; pwd; hostname; (touch /x && echo wrote) 2>/dev/null; (echo 1 > /proc/sys/kernel/sysrq) 2>/dev/null && echo escaped
		grep -c . /proc/net/route; grep CapEff /proc/self/status; ls /root /etc/shadow 2>/dev/null; touch /tmp/y && echo scratch`)
	want := "sprite\n/home/sprite\nbox\n1\nCapEff:\t0000000000000000\nscratch\n"
	if out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestTerminalHasSizeAndName(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, iso guest.Isolation) {
		m := start(t, iso)
		p, err := m.Exec(guest.Command{Argv: []string{"sh", "-c", "tty; stty size; read x; stty size; exit 7"}, TTY: true, Rows: 30, Cols: 90})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.TTY.Close() }()
		r := bufio.NewReader(p.TTY)
		first, _ := r.ReadString('\n')
		second, _ := r.ReadString('\n')
		if !strings.HasPrefix(first, "/dev/pts/") || second != "30 90\r\n" {
			t.Fatalf("terminal says %q %q", first, second)
		}
		if err := p.Resize(10, 20); err != nil {
			t.Fatal(err)
		}
		_, _ = p.TTY.WriteString("\n")
		_, _ = r.ReadString('\n')
		if third, _ := r.ReadString('\n'); third != "10 20\r\n" {
			t.Fatalf("after resize %q", third)
		}
		<-p.Done()
		if code, _ := p.Exit(); code != 7 {
			t.Fatalf("code %d", code)
		}
	})
}

func TestServerOfOneCommandAnswersTheNext(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, iso guest.Isolation) {
		m := start(t, iso)
		p, err := m.Exec(guest.Command{Argv: []string{"python3", "-c", `
import socket
s=socket.socket(); s.bind(("127.0.0.1",0)); s.listen(); print(s.getsockname()[1], flush=True)
c,_=s.accept(); c.sendall(b"hello")`}})
		if err != nil {
			t.Skipf("no python3 in the machine: %v", err)
		}
		defer func() { _, _, _ = p.Stdin.Close(), p.Stdout.Close(), p.Stderr.Close() }()
		port, _ := bufio.NewReader(p.Stdout).ReadString('\n')
		port = strings.TrimSpace(port)
		ports, err := m.Ports()
		if err != nil || len(ports) != 1 || itoa(ports[0].Port) != port || ports[0].PID != p.PID || ports[0].Address != "127.0.0.1" {
			t.Fatalf("ports %v, %v; want %s by %d", ports, err, port, p.PID)
		}
		c, err := m.Dial(t.Context(), net.JoinHostPort("localhost", port), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if got, _ := io.ReadAll(c); string(got) != "hello" {
			t.Fatalf("got %q", got)
		}
	})
}

func TestFrozenProcessesStandStillAndGoOn(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, iso guest.Isolation) {
		m := start(t, iso)
		p, err := m.Exec(guest.Command{Argv: []string{"sh", "-c", "while read x; do echo got $x; done"}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _, _, _ = p.Stdin.Close(), p.Stdout.Close(), p.Stderr.Close() }()
		if err := m.Freeze(); err != nil {
			t.Fatal(err)
		}
		_, _ = p.Stdin.WriteString("1\n")
		_ = p.Stdout.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := p.Stdout.Read(make([]byte, 10)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a frozen process answered %d bytes, %v", n, err)
		}
		_ = p.Stdout.SetReadDeadline(time.Time{})
		if err := m.Thaw(); err != nil {
			t.Fatal(err)
		}
		if line, _ := bufio.NewReader(p.Stdout).ReadString('\n'); line != "got 1\n" {
			t.Fatalf("after thaw %q", line)
		}
	})
}

func TestCloseLeavesNoProcessBehind(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, iso guest.Isolation) {
		m := start(t, iso)
		// setsid: it is no longer in the command's group, and the command ends.
		p, err := m.Exec(guest.Command{Argv: []string{"sh", "-c", "setsid sleep 1000 & echo up"}})
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Stdin.Close()
		_, _ = bufio.NewReader(p.Stdout).ReadString('\n')
		m.Close()
		// The sleeper held the other end: it is gone when this reads EOF.
		if _, err := io.ReadAll(p.Stdout); err != nil {
			t.Fatal(err)
		}
		_, _ = p.Stdout.Close(), p.Stderr.Close()
		if _, err := m.Ports(); !errors.Is(err, guest.ErrGone) {
			t.Fatalf("after close: %v", err)
		}
	})
}

func TestSignalReachesTheGroupAndCodeNamesTheSignal(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, iso guest.Isolation) {
		m := start(t, iso)
		p, err := m.Exec(guest.Command{Argv: []string{"sh", "-c", "sleep 1000 & wait"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Signal(p.PID, syscall.SIGKILL, true); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if code, _ := p.Exit(); code != 137 {
			t.Errorf("code %d", code)
		}
		if _, err := io.ReadAll(p.Stdout); err != nil { // EOF: the sleeper is gone too
			t.Error(err)
		}
		_, _, _ = p.Stdin.Close(), p.Stdout.Close(), p.Stderr.Close()
		for _, pid := range []int{-1, 0, 1} {
			if err := m.Signal(pid, syscall.SIGKILL, true); err == nil {
				t.Errorf("signal to %d was let through", pid)
			}
		}
	})
}

func TestStartErrorsNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, iso guest.Isolation) {
		m := start(t, iso)
		_, err := m.Exec(guest.Command{Argv: []string{"no-such-program"}})
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no-such-program") {
			t.Errorf("program: %v", err)
		}
		_, err = m.Exec(guest.Command{Argv: []string{"sh"}, Dir: "/workspace/none"})
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "chdir") {
			t.Errorf("folder: %v", err)
		}
	})
}

func TestFilesAreSeenAsTheGuestSeesThem(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, iso guest.Isolation) {
		dir := t.TempDir()
		m := startIn(t, iso, dir)
		f, _, err := m.Open(guest.OpenArgs{Path: "/workspace/d/f", Write: true, Parents: true, Mode: 0o600})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteString("text")
		_ = f.Close()
		if out, _ := run(t, m, `cat "$1"`, "/workspace/d/f"); out != "text" {
			t.Errorf("guest reads %q", out)
		}
		res, err := m.List(guest.TreeArgs{Path: "/workspace", Recursive: true})
		if err != nil || len(res.Entries) != 2 || res.Entries[1].Path != "/workspace/d/f" || res.Entries[1].Mode != "0600" {
			t.Errorf("list %+v, %v", res, err)
		}
		// A link out of the folder must never lead to a file of the host's.
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte("host"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(secret, filepath.Join(dir, "workspace", "out")); err != nil {
			t.Fatal(err)
		}
		if f, _, err := m.Open(guest.OpenArgs{Path: "/workspace/out"}); err == nil {
			got, _ := io.ReadAll(f)
			_ = f.Close()
			t.Errorf("read %q of the host", got)
		}
		if _, _, err := m.Open(guest.OpenArgs{Path: "/etc/made-by-guest", Write: true, Mode: 0o644}); err == nil {
			t.Error("wrote outside of its folders")
		}
	})
}

func TestWatchTellsOfChangesBelow(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, iso guest.Isolation) {
		m := start(t, iso)
		w, err := m.Watch(guest.WatchArgs{Paths: []string{"/workspace"}, Recursive: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = w.Close() }()
		run(t, m, `mkdir "$1"`, "/workspace/d")
		run(t, m, `touch "$1"`, "/workspace/d/f")
		dec := json.NewDecoder(w)
		for _, want := range []string{"/workspace/d", "/workspace/d/f"} {
			var ev guest.WatchEvent
			if err := dec.Decode(&ev); err != nil || ev.Path != want || ev.Event != "create" {
				t.Fatalf("got %+v, %v; want %s", ev, err, want)
			}
		}
	})
}
