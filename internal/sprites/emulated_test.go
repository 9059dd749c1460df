package sprites_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

// box is a running emulator with a client and one provisioned Sprite, box.
type box struct {
	*sprites.Client
	t    *testing.T
	emu  *emulator.Server
	made sprites.Provisioned
}

// attachModes are the ways in which the service may replay: all of exact and merged with and without an offset, from what
// we would like to what was reported. Every test on the emulator runs in each.
var attachModes = map[string]func(*emulator.Config){
	"exact with offset":      func(c *emulator.Config) { c.Attach, c.Offset = emulator.AttachExact, true },
	"exact, without offset":  func(c *emulator.Config) { c.Attach, c.Offset = emulator.AttachExact, false },
	"merged with offset":     func(c *emulator.Config) { c.Attach, c.Offset = emulator.AttachMerged, true },
	"merged, without offset": func(c *emulator.Config) { c.Attach, c.Offset = emulator.AttachMerged, false },
}

// eachMode runs a test in each.
func eachMode(t *testing.T, test func(t *testing.T, b *box), change ...func(*emulator.Config)) {
	t.Helper()
	for name, mode := range attachModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBox(t, slices.Concat(change, []func(*emulator.Config){mode})...))
		})
	}
}

func newBox(t *testing.T, change ...func(*emulator.Config)) *box {
	t.Helper()
	cfg := emulator.Config{WarmWake: time.Millisecond, ColdWake: time.Millisecond, Idle: time.Hour}
	for _, f := range change {
		f(&cfg)
	}
	emu, err := emulator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := emu.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	c, err := sprites.New(nil, sprites.Config{BaseURL: emu.URL(), Token: emu.Token()})
	if err != nil {
		t.Fatal(err)
	}
	b := &box{Client: c, t: t, emu: emu}
	t.Cleanup(func() {
		_ = c.Close()
		if err := emu.Close(); err != nil {
			t.Error(err)
		}
	})
	b.made, err = c.Provision(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// script is a shell command of its own run.
func (b *box) script(run, text string) sprites.Command {
	return sprites.Command{
		Sprite: "box", Tenant: "dev", Guard: "dev." + run + ".0", Job: run, Shell: text, HasBash: b.made.HasBash, Limit: time.Minute,
	}
}

func (b *box) start(cmd sprites.Command) *sprites.Process {
	b.t.Helper()
	p, err := b.Start(b.t.Context(), cmd)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = p.Close() })
	return p
}

// run runs a script to its end.
func (b *box) run(run, text string) (stdout string, code int) {
	b.t.Helper()
	return b.finish(b.start(b.script(run, text)))
}

func (b *box) finish(p *sprites.Process) (stdout string, code int) {
	b.t.Helper()
	stdout, stderr, err := collect(b.t.Context(), p)
	if err != io.EOF {
		b.t.Fatalf("%v (stderr %q)", err, stderr)
	}
	exit, _ := p.Exit()
	return stdout, exit.Code
}

func (b *box) fault(f emulator.Fault) {
	b.t.Helper()
	if err := b.emu.AddFaults(f); err != nil {
		b.t.Fatal(err)
	}
}

// settle waits until the server holds no socket of ours.
func (b *box) settle() {
	b.t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for b.emu.Connections() > 0 {
		if time.Now().After(deadline) {
			b.t.Fatalf("%d sockets are still open", b.emu.Connections())
		}
		time.Sleep(time.Millisecond) // the emulator has no signal for it
	}
}

func TestACommandRunsInTheWorkspaceAndItsGuardRemembersIt(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		out, code := b.run("one", `pwd; echo "$HOME $WAKEBUS_JOB"; cat; exit 42`)
		if out != "/workspace\n/home/sprite one\n" || code != 42 {
			t.Errorf("got %q, %d", out, code)
		}
		state, err := b.Guard(t.Context(), "box", "dev.one.0")
		if err != nil || !state.Exists || state.Exit == nil || *state.Exit != 42 || state.Alive {
			t.Errorf("got %+v, %v", state, err)
		}
		if none, err := b.Guard(t.Context(), "box", "dev.none.0"); err != nil || none.Exists {
			t.Errorf("got %+v, %v", none, err)
		}
		b.settle()
	})
}

func TestTheSessionsIDIsTheGuardsPid(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		p := b.start(b.script("pid", "echo up; sleep 60"))
		if _, err := p.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		state, err := b.Guard(t.Context(), "box", "dev.pid.0")
		if err != nil || strconv.Itoa(state.Pid) != p.Session().ID || !state.Alive {
			t.Errorf("session %v, guard %+v, %v", p.Session(), state, err)
		}
	})
}

func TestStdinReachesTheCommand(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		cmd := b.script("stdin", "wc -c")
		cmd.Stdin = bytes.Repeat([]byte("x"), 64<<10)
		if out, code := b.finish(b.start(cmd)); strings.TrimSpace(out) != "65536" || code != 0 {
			t.Errorf("got %q, %d", out, code)
		}
	})
}

// A full message of input into a command that never looks at it delays nothing and is no failure.
func TestCase07StdinThatNobodyReadsHoldsNothingUp(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	cmd := b.script("deaf", "exit 6")
	cmd.Stdin = make([]byte, sprites.InputMax)
	if _, code := b.finish(b.start(cmd)); code != 6 {
		t.Errorf("code %d", code)
	}
}

func TestCase04TheFirstExecOnASleepingSpriteIsRedialled(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		for i, nap := range []func(string) error{b.emu.Sleep, b.emu.Cold} {
			if err := nap("box"); err != nil {
				t.Fatal(err)
			}
			b.fault(emulator.Fault{Do: emulator.FaultDropWake})
			before := b.emu.Count("exec.ws", "box")
			run := fmt.Sprint("wake", i)
			if out, code := b.run(run, "echo ran >>/workspace/"+run+"; cat /workspace/"+run); out != "ran\n" || code != 0 {
				t.Errorf("got %q, %d", out, code)
			}
			if n := b.emu.Count("exec.ws", "box") - before; n < 2 {
				t.Errorf("%d dials: the fault did not bite", n)
			}
			b.emu.ClearFaults()
		}
		b.settle()
	})
}

// The command starts, but the answer to the handshake is lost: the redial must find it, not run it again.
func TestCase04ALostHandshakeDoesNotRunTheCommandTwice(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		for i, text := range []string{"echo ran >>/workspace/ran; exit 5", "echo ran >>/workspace/ran; sleep 1; echo end; exit 5"} {
			_, _ = b.run(fmt.Sprint("clear", i), "rm -f /workspace/ran")
			run := fmt.Sprint("lost", i)
			b.fault(emulator.Fault{Route: "exec.ws", Nth: 1, Times: 1, Do: emulator.FaultLost})
			p, err := b.Start(t.Context(), b.script(run, text))
			var taken *sprites.GuardTaken
			if err == nil { // the redial came first to the file's turn: its 97 tells at the end
				_, _, err = collect(t.Context(), p)
				_ = p.Close()
			}
			if !errors.As(err, &taken) {
				t.Fatalf("got %v, want taken", err)
			}
			b.emu.ClearFaults()
			got, err := b.Rejoin(t.Context(), sprites.AttachRequest{Sprite: "box", Guard: "dev." + run + ".0"}, 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			switch got.Fate {
			case sprites.FateRunning:
				if _, code := b.finish(got.Process); code != 5 {
					t.Errorf("attached, code %d", code)
				}
				_ = got.Process.Close()
			case sprites.FateExited:
				if got.Exit.Code != 5 || got.Exit.Source != sprites.ExitFile {
					t.Errorf("got %+v", got.Exit)
				}
			default:
				t.Errorf("fate %s", got.Fate)
			}
			if out, _ := b.run(fmt.Sprint("look", i), "cat /workspace/ran"); out != "ran\n" {
				t.Errorf("it ran %q", out)
			}
		}
		b.settle()
	})
}

func TestCase03AFastCommandThatReturnsNothingIsAnsweredByItsGuard(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		for _, do := range []emulator.Action{emulator.FaultEmpty, emulator.FaultNoExit} {
			run := string(do)
			b.fault(emulator.Fault{Route: "exec.ws", Times: 1, Do: do})
			p, err := b.Start(t.Context(), b.script(run, "exit 9"))
			if err == nil {
				_, _, err = collect(t.Context(), p)
				_ = p.Close()
			}
			var e *sprites.Error
			if !errors.As(err, &e) || !e.Opened {
				t.Fatalf("%s: got %v", do, err)
			}
			got := sprites.Rejoined{Fate: sprites.FateNever}
			for err = nil; err == nil && got.Fate == sprites.FateNever; { // it may only be starting
				got, err = b.Rejoin(t.Context(), sprites.AttachRequest{Sprite: "box", Guard: "dev." + run + ".0"}, 10*time.Second)
			}
			if err == nil && got.Fate == sprites.FateRunning { // still ending: its exit then comes over the socket
				_, code := b.finish(got.Process)
				_ = got.Process.Close()
				got.Fate, got.Exit.Code = sprites.FateExited, code
			}
			if err != nil || got.Fate != sprites.FateExited || got.Exit.Code != 9 {
				t.Errorf("%s: got %+v, %v", do, got, err)
			}
		}
		b.settle()
	})
}

func TestCase08TheSandboxSurvivesTheLossOfItsWorkspace(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		_, _ = b.run("rm", "cd /; rm -rf /workspace/* /workspace/.[!.]*; rmdir /workspace; rm -rf /home/sprite/.wakebus; true")
		out, code := b.run("after", "pwd; exit 3")
		if out != "/workspace\n" || code != 3 {
			t.Errorf("got %q, %d", out, code)
		}
		cmd := b.script("deep", "pwd; exit 4")
		cmd.Cwd = "/workspace/a/$(touch pwned) b"
		if out, code := b.finish(b.start(cmd)); out != cmd.Cwd+"\n" || code != 4 {
			t.Errorf("got %q, %d", out, code)
		}
	})
}

func TestCase10ATimeoutStopsTheWholeGroup(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		for name, text := range map[string]string{
			"plain":    "echo up; sleep 600 & sleep 600",
			"stubborn": "trap '' TERM; echo up; while :; do sleep 0.1; done",
		} {
			p := b.start(b.script(name, text))
			if _, err := p.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			killed, err := b.Stop(t.Context(), "box", p.Session(), time.Second)
			if err != nil || killed != sprites.KillConfirmed {
				t.Errorf("%s: %s, %v", name, killed, err)
			}
			if out, _ := b.run("look-"+name, `grep -lz "^WAKEBUS_JOB=`+name+`$" /proc/[0-9]*/environ 2>/dev/null; true`); out != "" {
				t.Errorf("%s: still running: %q", name, out)
			}
			_ = p.Close()
		}
	})
}

func TestCase14AKillNeedsNoSocket(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		p := b.start(b.script("nosocket", "echo up; sleep 600"))
		if _, err := p.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = p.Close()
		if killed, err := b.Kill(t.Context(), "box", p.Session(), sprites.SignalKill, time.Second); err != nil || killed != sprites.KillConfirmed {
			t.Errorf("%s, %v", killed, err)
		}
		if killed, err := b.Kill(t.Context(), "box", p.Session(), sprites.SignalKill, time.Second); err != nil || killed != sprites.KillGone {
			t.Errorf("again: %s, %v", killed, err)
		}
		state, err := b.Guard(t.Context(), "box", "dev.nosocket.0")
		if err != nil || state.Exit != nil || state.Alive {
			t.Errorf("after KILL the file says %+v, %v", state, err)
		}
	})
}

func TestCase38ASessionIDThatCameRoundAgainIsNotTakenForTheOldOne(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		p := b.start(b.script("old", "echo up; sleep 600"))
		if _, err := p.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		old := p.Session()
		_ = p.Close()
		if err := b.emu.Cold("box"); err != nil {
			t.Fatal(err)
		}
		_, _, err := b.Attach(t.Context(), sprites.AttachRequest{Sprite: "box", Session: sprites.Session{ID: old.ID, Created: old.Created - 60}})
		if sprites.ClassOf(err) != sprites.ClassNotFound {
			t.Errorf("attach: %v", err)
		}
		another := b.start(b.script("another", "echo another; sleep 600"))
		_, _, err = b.Attach(t.Context(), sprites.AttachRequest{Sprite: "box", Session: sprites.Session{ID: another.Session().ID, Created: another.Session().Created - 60}})
		if !errors.Is(err, sprites.ErrReplaced) {
			t.Errorf("attach to an id that another has by now: %v", err)
		}
		_ = another.Close()
		got, err := b.Rejoin(t.Context(), sprites.AttachRequest{Sprite: "box", Session: old, Guard: "dev.old.0"}, 0)
		if err != nil || got.Fate != sprites.FateLost {
			t.Errorf("rejoin: %+v, %v", got, err)
		}
	})
}

// A reader that leaves in the middle and another that takes over must together see every byte once, or be told.
func TestATakeOverContinuesTheOutput(t *testing.T) {
	t.Parallel()
	const count = 20_000
	eachMode(t, func(t *testing.T, b *box) {
		cmd := b.script("seq", "seq 1 "+strconv.Itoa(count)+"; read x; seq 1 10 >&2; exit 7")
		cmd.Stdin = []byte("go\n")
		p := b.start(cmd)
		var journal []byte
		for len(journal) < 30_000 {
			chunk, err := p.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			journal = append(journal, chunk.Data...)
		}
		_ = p.Close()
		got, err := b.Rejoin(t.Context(), sprites.AttachRequest{
			Sprite: "box", Session: p.Session(), Guard: "dev.seq.0",
			Delivered: int64(len(journal)), Tail: journal[len(journal)-sprites.TailMax:],
		}, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got.Fate == sprites.FateExited { // it was quicker than we: nothing to attach to, but a true code
			if got.Exit.Code != 7 {
				t.Errorf("got %+v", got.Exit)
			}
			return
		}
		if got.Fate != sprites.FateRunning {
			t.Fatalf("fate %s", got.Fate)
		}
		defer got.Process.Close()
		rest, errs, err := collect(t.Context(), got.Process)
		if exit, _ := got.Process.Exit(); err != io.EOF || exit.Code != 7 {
			t.Fatalf("%v, %+v", err, exit)
		}
		if got.Alignment.Kind == sprites.AlignGap {
			t.Logf("a gap was said")
			return
		}
		var want strings.Builder
		for _, n := range []int{count, 10} {
			for i := 1; i <= n; i++ {
				fmt.Fprintln(&want, i)
			}
		}
		if all := string(journal) + rest + errs; all != want.String() {
			t.Errorf("%s: %d bytes, want %d", got.Alignment.Kind, len(all), want.Len())
		}
	})
}

// A long-running command, so that the session certainly lives: here the kind itself is asserted.
func TestATakeOverIsProvenWhereItCanBe(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		cmd := b.script("tick", "seq 1 5000; while [ ! -e /workspace/go ]; do sleep 0.05; done; echo end; exit 7")
		p := b.start(cmd)
		var journal []byte
		for !bytes.HasSuffix(journal, []byte("\n2000\n")) && len(journal) < 15_000 {
			chunk, err := p.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			journal = append(journal, chunk.Data[:min(len(chunk.Data), 15_000-len(journal))]...)
		}
		_ = p.Close()
		next, alignment, err := b.Attach(t.Context(), sprites.AttachRequest{
			Sprite: "box", Session: p.Session(), Guard: "dev.tick.0",
			Delivered: int64(len(journal)), Tail: journal[len(journal)-sprites.TailMax:],
		})
		if err != nil || alignment.Kind == sprites.AlignGap {
			t.Fatalf("got %+v, %v", alignment, err)
		}
		defer next.Close()
		if _, err := b.WriteFile(t.Context(), "box", "go", nil, 0); err != nil {
			t.Fatal(err)
		}
		rest, code := b.finish(next)
		var want strings.Builder
		for i := 1; i <= 5000; i++ {
			fmt.Fprintln(&want, i)
		}
		want.WriteString("end\n")
		if string(journal)+rest != want.String() || code != 7 {
			t.Errorf("%s: %d bytes, want %d; code %d", alignment.Kind, len(journal)+len(rest), want.Len(), code)
		}
		b.settle()
	})
}

// The command has printed more than the scrollback holds while nobody was attached: whatever the mode, what is given out is
// the end of the output without a repeat, at most a chunk more than the bound, and that some is missing is said.
func TestATakeOverBehindABoundedScrollbackSaysItsGap(t *testing.T) {
	t.Parallel()
	const scrollback = 32 << 10
	eachMode(t, func(t *testing.T, b *box) {
		p := b.start(b.script("much", "seq 1 2000; while [ ! -e /workspace/go ]; do sleep 0.05; done; seq 2001 40000; touch /workspace/said; while [ ! -e /workspace/end ]; do sleep 0.05; done; exit 7"))
		var journal []byte
		for !bytes.HasSuffix(journal, []byte("\n2000\n")) {
			chunk, err := p.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			journal = append(journal, chunk.Data...)
		}
		_ = p.Close()
		b.settle()
		_, _ = b.run("go", "touch go; while [ ! -e said ]; do sleep 0.05; done")
		next, alignment, err := b.Attach(t.Context(), sprites.AttachRequest{
			Sprite: "box", Session: p.Session(), Guard: "dev.much.0",
			Delivered: int64(len(journal)), Tail: journal[len(journal)-sprites.TailMax:],
		})
		if err != nil || alignment.Kind != sprites.AlignGap {
			t.Fatalf("got %+v, %v", alignment, err)
		}
		defer next.Close()
		_, _ = b.run("end", "touch end")
		rest, code := b.finish(next)
		var all strings.Builder
		for i := 1; i <= 40_000; i++ {
			fmt.Fprintln(&all, i)
		}
		whole := strings.HasSuffix(all.String(), rest)
		if alignment.Bytes != nil { // an offset counts what is missing, exactly
			whole = whole && int64(len(journal))+*alignment.Bytes+int64(len(rest)) == int64(all.Len())
		}
		if !whole || len(rest) > scrollback+64<<10 || code != 7 {
			t.Errorf("%d bytes after %d, %+v, code %d", len(rest), len(journal), alignment, code)
		}
	}, func(c *emulator.Config) { c.Scrollback = scrollback })
}

func TestATerminalOutlivesItsSocket(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		pty, err := b.OpenPTY(t.Context(), sprites.PTYRequest{Sprite: "box", Argv: []string{"sh"}, Cols: 100, Rows: 30, Cwd: "/workspace/not yet there"})
		if err != nil {
			t.Fatal(err)
		}
		say(t, pty, "stty size; pwd\n", "30 100", "/workspace/not yet there")
		if err := pty.Resize(t.Context(), 90, 20); err != nil {
			t.Fatal(err)
		}
		say(t, pty, "stty size; X=kept\n", "20 90")
		_ = pty.Close()
		again, err := b.AttachPTY(t.Context(), "box", pty.Session())
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		say(t, again, "echo still $X\n", "still kept")
		if _, err := again.Write([]byte("exit 6\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(again); err != nil {
			t.Error(err)
		}
		if exit, ok := again.Exit(); !ok || exit.Code != 6 {
			t.Errorf("got %+v, %v", exit, ok)
		}
		if _, err := b.AttachPTY(t.Context(), "box", pty.Session()); sprites.ClassOf(err) != sprites.ClassNotFound {
			t.Errorf("a dead terminal: %v", err)
		}
		b.settle()
	})
}

// say types a line and waits until the terminal showed each of the words.
func say(t *testing.T, pty *sprites.PTY, line string, words ...string) {
	t.Helper()
	if _, err := pty.Write([]byte(line)); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	buf := make([]byte, 4096)
	for _, word := range words {
		for !strings.Contains(seen.String(), word) {
			n, err := pty.Read(buf)
			if err != nil {
				t.Fatalf("%v after %q", err, seen.String())
			}
			seen.Write(buf[:n])
		}
	}
}

func TestFilesAreWrittenReadAndKeepTheirMode(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		for _, content := range []string{"first", "second, longer"} {
			info, err := b.WriteFile(t.Context(), "box", "deep/er/secret", []byte(content), 0o600)
			if err != nil || info.Size != int64(len(content)) {
				t.Fatalf("%+v, %v", info, err)
			}
			_, _ = b.run("chmod-"+content[:5], "chmod 644 deep/er/secret")
		}
		if _, err := b.WriteFile(t.Context(), "box", "/workspace/deep/er/secret", []byte("third"), 0o600); err != nil {
			t.Fatal(err)
		}
		data, info, err := b.ReadFile(t.Context(), "box", "deep/er/secret", 1, 3)
		if err != nil || string(data) != "hir" || info.Mode != 0o600 || info.Size != 5 || !info.Truncated {
			t.Errorf("got %q, %+v, %v", data, info, err)
		}
		if _, _, err := b.ReadFile(t.Context(), "box", "none", 0, 1); sprites.ClassOf(err) != sprites.ClassNotFound {
			t.Errorf("got %v", err)
		}
	})
}

func TestARestoreBringsTheDiskBackAndProvisionLocksDownAgain(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		if _, err := b.WriteFile(t.Context(), "box", "a", []byte("before"), 0); err != nil {
			t.Fatal(err)
		}
		point, err := b.Checkpoint(t.Context(), "box", "test")
		if err != nil || point.ID == "" {
			t.Fatalf("got %+v, %v", point, err)
		}
		if _, err := b.WriteFile(t.Context(), "box", "a", []byte("after"), 0); err != nil {
			t.Fatal(err)
		}
		if err := b.Restore(t.Context(), "box", point.ID); err != nil {
			t.Fatal(err)
		}
		data, _, err := b.ReadFile(t.Context(), "box", "a", 0, 100)
		if err != nil || string(data) != "before" {
			t.Errorf("got %q, %v", data, err)
		}
		req := request()
		req.Proof, req.Generation = b.made.Proof, b.made.Proof.Generation+1
		if got, err := b.Provision(t.Context(), req); err != nil || got.Fresh || got.Proof.Generation != 1 {
			t.Errorf("got %+v, %v", got, err)
		}
		rules, err := b.GetPolicy(t.Context(), "box")
		if err != nil || sprites.PolicyHash(rules) != b.made.Proof.PolicyHash {
			t.Errorf("policy %v, %v", rules, err)
		}
	})
}

func TestStatusAndListNeverWake(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		if err := b.emu.Sleep("box"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			got, err := b.Get(t.Context(), "box")
			if err != nil || got.Status != sprites.StatusWarm {
				t.Errorf("got %+v, %v", got, err)
			}
			list, complete, err := b.List(t.Context(), "bo")
			if err != nil || !complete || len(list) != 1 || list[0].Status != sprites.StatusWarm {
				t.Errorf("got %+v, %v, %v", list, complete, err)
			}
		}
		if woke, err := b.EnsureAwake(t.Context(), "box"); err != nil || woke != sprites.WokeWarm {
			t.Errorf("woke %s, %v", woke, err)
		}
	})
}

func TestDeleteOfWhatIsGoneIsSuccess(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		for range 2 {
			if err := b.Delete(t.Context(), "box"); err != nil {
				t.Error(err)
			}
		}
		if _, err := b.Get(t.Context(), "box"); sprites.ClassOf(err) != sprites.ClassNotFound {
			t.Errorf("got %v", err)
		}
	})
}

func TestACommandSurvivesFramesSplitAtEveryByte(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		b.fault(emulator.Fault{Route: "exec.ws", Do: emulator.FaultSplit})
		if out, code := b.run("split", "echo hello; exit 8"); out != "hello\n" || code != 8 {
			t.Errorf("got %q, %d", out, code)
		}
	})
}

func TestTheClientWorksWhereSpritesAreMappedFolders(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		if _, err := b.WriteFile(t.Context(), "box", "a/b", []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := b.run("mapped", "cat a/b; exit 4"); out != "x" || code != 4 {
			t.Errorf("got %q, %d", out, code)
		}
		if state, err := b.Guard(t.Context(), "box", "dev.mapped.0"); err != nil || state.Exit == nil || *state.Exit != 4 {
			t.Errorf("got %+v, %v", state, err)
		}
	}, func(c *emulator.Config) { c.Isolation = emulator.IsolationMapped })
}

func TestAWorkspaceThatCannotBeWrittenIsANamedError(t *testing.T) {
	t.Parallel()
	emu, err := emulator.New(emulator.Config{Workspace: guest.WorkspaceForeign, WarmWake: -1, ColdWake: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := emu.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer emu.Close()
	c, err := sprites.New(nil, sprites.Config{BaseURL: emu.URL(), Token: emu.Token()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Provision(t.Context(), request())
	if !errors.Is(err, sprites.ErrWorkspaceUnwritable) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Get(t.Context(), "box"); sprites.ClassOf(err) != sprites.ClassNotFound {
		t.Errorf("the fresh Sprite was kept: %v", err)
	}
}

func TestCase10AFrozenCommandIsStoppedAllTheSame(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *box) {
		p := b.start(b.script("frozen", "echo up; sleep 600"))
		if _, err := p.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.emu.Sleep("box"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := collect(t.Context(), p); !errors.Is(err, sprites.ErrNoExit) {
			t.Errorf("the drop says %v", err)
		}
		if killed, err := b.Stop(t.Context(), "box", p.Session(), time.Second); err != nil || killed != sprites.KillConfirmed {
			t.Errorf("%s, %v", killed, err)
		}
		if state, err := b.Guard(t.Context(), "box", "dev.frozen.0"); err != nil || state.Exit == nil || *state.Exit != 143 {
			t.Errorf("got %+v, %v", state, err)
		}
	})
}
