package sprites_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
)

// shells are what /bin/sh is likely to be.
func shells(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for name, argv := range map[string][]string{"dash": {"dash"}, "bash": {"bash", "--posix"}} {
		if _, err := exec.LookPath(argv[0]); err == nil {
			found[name] = argv
		}
	}
	if len(found) == 0 {
		t.Skip("neither dash nor bash is here")
	}
	return found
}

// eachShell runs a test under each of them.
func eachShell(t *testing.T, test func(t *testing.T, sh []string)) {
	t.Helper()
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, sh)
		})
	}
}

type guarded struct {
	sh    []string
	file  string
	nonce string
	limit string
	cwd   string
	stdin string
}

// command builds the guarded command in a session of its own, as the service runs it.
func (g guarded) command(argv ...string) *exec.Cmd {
	args := append(append([]string{}, g.sh[1:]...), "-c", sprites.GuardScript, "wakebus", g.file, g.nonce, g.limit, "job-1", g.cwd)
	cmd := exec.Command(g.sh[0], append(args, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdin = strings.NewReader(g.stdin)
	return cmd
}

func (g guarded) run(t *testing.T, argv ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := g.command(argv...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// inspect reads the guard's file as the client does, by the script under the same shell.
func (g guarded) inspect(t *testing.T, wait, signal string) sprites.GuardState {
	t.Helper()
	args := append(append([]string{}, g.sh[1:]...), "-c", sprites.InspectScript, "wakebus", "M", g.file, wait, signal)
	out, err := exec.Command(g.sh[0], args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	state, ok := sprites.ParseGuard(sprites.Marked(out, "M"))
	if !ok {
		t.Fatalf("cannot read %q", out)
	}
	return state
}

func newGuarded(t *testing.T, sh []string) guarded {
	t.Helper()
	dir := t.TempDir()
	guards := filepath.Join(dir, "guards")
	t.Cleanup(func() {
		for os.RemoveAll(guards) != nil { // a guard may just be leaving its stamp, behind the command's end
			runtime.Gosched()
		}
	})
	return guarded{sh: sh, file: filepath.Join(guards, "dev.job.0"), nonce: "n1", limit: "60", cwd: dir}
}

func TestTheGuardRunsACommandAndWritesHowItEnded(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		g := newGuarded(t, sh)
		g.stdin = "in"
		out, errs, code := g.run(t, "sh", "-c", `cat; echo " $WAKEBUS_JOB"; echo err >&2; exit 7`)
		if out != "in job-1\n" || errs != "err\n" || code != 7 {
			t.Errorf("got %q, %q, %d", out, errs, code)
		}
		state := g.inspect(t, "0", "")
		if !state.Exists || state.Pid == 0 || state.Nonce != "n1" || state.Exit == nil || *state.Exit != 7 || state.Alive || state.LimitHit {
			t.Errorf("got %+v", state)
		}
	})
}

// After 48 h the same id is a new job; however many dials find the old file, one of them runs.
func TestAnOldGuardFileLetsOneDialRunAgain(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		g := newGuarded(t, sh)
		effects := filepath.Join(g.cwd, "effects")
		run := func(nonce string) int {
			one := g
			one.nonce = nonce
			_, _, code := one.run(t, "sh", "-c", `echo ran >>"$1"; exit 5`, "sh", effects)
			return code
		}
		if code := run("first"); code != 5 {
			t.Fatalf("the first dial ended with %d", code)
		}
		young := time.Now().Add(-47 * time.Hour)
		if err := os.Chtimes(g.file, young, young); err != nil {
			t.Fatal(err)
		}
		if code := run("early"); code != 97 {
			t.Errorf("a dial before 48 h ended with %d", code)
		}
		old := time.Now().Add(-49 * time.Hour)
		if err := os.Chtimes(g.file, old, old); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		codes := make([]int, 8)
		for i := range codes {
			wg.Go(func() { codes[i] = run(fmt.Sprintf("n%d", i)) })
		}
		wg.Wait()
		slices.Sort(codes)
		if codes[0] != 5 || codes[1] != 97 {
			t.Errorf("the dials ended with %v", codes)
		}
		if data, err := os.ReadFile(effects); err != nil || string(data) != "ran\nran\n" {
			t.Errorf("it ran as %q, %v", data, err)
		}
	})
}

// A taker sends all of the input again, behind whatever came through the connection that was lost: nothing, a part that
// the service discards with its message, all of it, or all of it and its end.
func TestACommandSeesItsInputOnceHoweverOftenItIsSent(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		input := strings.Repeat("0123456789abcdef", 4096)
		for _, sent := range []int{1, 2, 3} {
			g := newGuarded(t, sh)
			g.file += strconv.Itoa(sent)
			g.stdin = strings.Repeat(input, sent)
			out, errs, code := g.run(t, append(append([]string{}, sh...), "-c", sprites.InputScript, "wakebus", strconv.Itoa(len(input)),
				"sh", "-c", `cat; echo err >&2; exit 7`)...)
			if out != input || errs != "err\n" || code != 7 {
				t.Errorf("sent %d times: got %d bytes, %q, %d", sent, len(out), errs, code)
			}
		}
		g := newGuarded(t, sh)
		g.stdin = input
		if out, _, code := g.run(t, append(append([]string{}, sh...), "-c", sprites.InputScript, "wakebus", strconv.Itoa(len(input)),
			"sh", "-c", "echo deaf; exit 3")...); out != "deaf\n" || code != 3 {
			t.Errorf("a command that reads nothing: got %q, %d", out, code)
		}
	})
}

func TestTheGuardLetsOneOfManyDialsRun(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		g := newGuarded(t, sh)
		effects := filepath.Join(g.cwd, "effects")
		var wg sync.WaitGroup
		codes := make([]int, 8)
		for i := range codes {
			wg.Go(func() {
				one := g
				one.nonce = fmt.Sprintf("n%d", i)
				_, _, codes[i] = one.run(t, "sh", "-c", `echo ran >>"$1"; exit 5`, "sh", effects)
			})
		}
		wg.Wait()
		ran, err := os.ReadFile(effects)
		if err != nil || string(ran) != "ran\n" {
			t.Errorf("effects %q, %v", ran, err)
		}
		winners := 0
		for i, code := range codes {
			switch code {
			case 5:
				winners++
				if state := g.inspect(t, "0", ""); state.Nonce != fmt.Sprintf("n%d", i) {
					t.Errorf("the file names %s, not the winner n%d", state.Nonce, i)
				}
			case 97:
			default:
				t.Errorf("dial %d ended with %d", i, code)
			}
		}
		if winners != 1 {
			t.Errorf("%d dials ran", winners)
		}
	})
}

func TestTheGuardTakesArgvAsAProgramNeverAsABuiltin(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		for _, argv := range [][]string{{"exit", "3"}, {"cd", "/"}, {"wakebus_take"}, {"A=b", "true"}, {"no such program"}} {
			g := newGuarded(t, sh)
			_, errs, code := g.run(t, argv...)
			if state := g.inspect(t, "0", ""); code != 127 || state.Exit == nil || *state.Exit != 127 {
				t.Errorf("%q: code %d, file %+v", argv, code, state)
			}
			if !strings.Contains(errs, "not found") {
				t.Errorf("%q: stderr %q does not say why", argv, errs)
			}
		}
	})
}

func TestCase08ADeletedWorkingDirectoryIsRecreated(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		g := newGuarded(t, sh)
		g.cwd = filepath.Join(g.cwd, `a/b $(touch pwned);`+"`touch pwned`"+`"'*`)
		out, _, code := g.run(t, "sh", "-c", `pwd; exit 9`)
		if out != g.cwd+"\n" || code != 9 {
			t.Errorf("got %q, %d", out, code)
		}
		_ = filepath.WalkDir(filepath.Dir(filepath.Dir(g.cwd)), func(path string, _ os.DirEntry, _ error) error {
			if filepath.Base(path) == "pwned" {
				t.Errorf("the working directory was run: %s", path)
			}
			return nil
		})
	})
}

func TestCase08AWorkingDirectoryThatCannotBeIsSaid(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		g := newGuarded(t, sh)
		g.cwd = "/proc/none/such"
		_, errs, code := g.run(t, "true")
		if state := g.inspect(t, "0", ""); code != 126 || errs == "" || state.Exit == nil || *state.Exit != 126 {
			t.Errorf("got %q, %d, %+v", errs, code, state)
		}
	})
}

func TestCase08ATerminalEntersItsDirectoryAndBecomesTheCommand(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		dir := filepath.Join(t.TempDir(), "gone $(exit 1)")
		args := append(append([]string{}, sh[1:]...), "-c", sprites.EnterScript, "wakebus", dir, "sh", "-c", `pwd; kill -TERM $$`)
		cmd := exec.Command(sh[0], args...)
		out, err := cmd.Output()
		var exit *exec.ExitError
		if string(out) != dir+"\n" || !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("got %q, %v", out, err)
		}
	})
}

func TestTheGuardOutlivesASignalToItsGroup(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
			if signal.Ignored(sig) {
				continue // started by nohup or the like: what is ignored is inherited, and nobody can receive it
			}
			g := newGuarded(t, sh)
			cmd := g.command("sh", "-c", "echo up; exec sleep 30")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var errs bytes.Buffer
			cmd.Stderr = &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
				t.Fatal(err)
			}
			if state := g.inspect(t, "0", ""); !state.Alive || state.Pid != cmd.Process.Pid || state.Exit != nil {
				t.Errorf("while it runs: %+v", state)
			}
			_ = syscall.Kill(-cmd.Process.Pid, sig)
			_ = cmd.Wait()
			want := 128 + int(sig)
			if state := g.inspect(t, "0", ""); state.Exit == nil || *state.Exit != want || cmd.ProcessState.ExitCode() != want {
				t.Errorf("%v: code %d, file %+v", sig, cmd.ProcessState.ExitCode(), state)
			}
			if errs.Len() > 0 {
				t.Errorf("the shell spoke on the command's stderr: %q", errs.String())
			}
		}
	})
}

func TestTheGuardEndsACommandThatNobodyWatches(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		g := newGuarded(t, sh)
		g.limit = "1"
		if _, _, code := g.run(t, "sleep", "60"); code != 143 {
			t.Errorf("code %d", code)
		}
		if state := g.inspect(t, "0", ""); !state.LimitHit || state.Alive {
			t.Errorf("got %+v", state)
		}
	})
}

func TestTheGuardLeavesNoProcessBehind(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		var groups []int
		for range 20 { // a command that ends at once races the watcher's start
			g := newGuarded(t, sh)
			g.limit = "4711"
			cmd := g.command("true")
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			groups = append(groups, cmd.Process.Pid)
		}
		awaitGroupsGone(t, groups...)
	})
}

// awaitGroupsGone waits until nothing but zombies is left of the process groups.
func TestTheGuardPrunesWhatADayAndMoreHasLeftOnceAnHour(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		for name, c := range map[string]struct {
			stamp string
			gone  bool
		}{
			"never pruned":                {"", true},
			"pruned just now":             {"uptime", false},
			"pruned before the last boot": {"99999999999", true},
			"a stamp that is none":        {"x; rm -rf /", true},
			"a stamp beyond all numbers":  {"99999999999999999999999", true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				g := newGuarded(t, sh)
				folder := filepath.Dir(g.file)
				old, young := filepath.Join(folder, "dev.old.0"), filepath.Join(folder, "dev.young.0")
				write(t, old, "1 1 n\nexit 0\n")
				write(t, young, "1 1 n\nexit 0\n")
				past := time.Now().Add(-49 * time.Hour)
				if err := os.Chtimes(old, past, past); err != nil {
					t.Fatal(err)
				}
				if c.stamp == "uptime" {
					up, err := os.ReadFile("/proc/uptime")
					if err != nil {
						t.Fatal(err)
					}
					c.stamp, _, _ = strings.Cut(string(up), ".")
				}
				if c.stamp != "" {
					write(t, filepath.Join(folder, ".pruned"), c.stamp+"\n")
				}
				for i := range 4 { // the watcher of a command that ends at once may be gone before it can prune
					g.file = filepath.Join(folder, fmt.Sprintf("dev.job%d.0", i))
					cmd := g.command("true")
					if err := cmd.Run(); err != nil {
						t.Fatal(err)
					}
					awaitGroupsGone(t, cmd.Process.Pid)
				}
				if _, err := os.Stat(old); errors.Is(err, os.ErrNotExist) != c.gone {
					t.Errorf("the old file: %v, want it gone: %t", err, c.gone)
				}
				for _, kept := range []string{young, g.file} {
					if _, err := os.Stat(kept); err != nil {
						t.Error(err)
					}
				}
			})
		}
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func awaitGroupsGone(t *testing.T, pgids ...int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		left := ""
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, stat := range stats {
			b, _ := os.ReadFile(stat)
			_, rest, _ := strings.Cut(string(b), ") ")
			if f := strings.Fields(rest); len(f) > 2 && f[0] != "Z" && slices.ContainsFunc(pgids, func(id int) bool { return f[2] == strconv.Itoa(id) }) {
				left = string(b)
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %s", left)
		}
	}
}

func TestInspectWaitsForTheEndAndStopsTheGroup(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		g := newGuarded(t, sh)
		cmd := g.command("sh", "-c", "echo up; sleep 60 & wait")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }() // reaps it, else it stays a zombie
		state := g.inspect(t, "5", "TERM")
		<-done
		if state.Exit == nil || *state.Exit != 143 {
			t.Errorf("got %+v", state)
		}
		awaitGroupsGone(t, cmd.Process.Pid)
	})
}

func TestAnUnfinishedExitLineDoesNotCount(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		for content, want := range map[string]sprites.GuardState{
			"":                                    {Exists: true},
			"4000000 1 n1":                        {Exists: true},
			"4000000 1 n1\nexit 1":                {Exists: true, Pid: 4000000, Start: "1", Nonce: "n1"},
			"4000000 1 n1\nexit 999\n":            {Exists: true, Pid: 4000000, Start: "1", Nonce: "n1"},
			"forged\nexit 0\n":                    {Exists: true},
			"4000000 1 n1\nlimit\n":               {Exists: true, Pid: 4000000, Start: "1", Nonce: "n1", LimitHit: true},
			fmt.Sprintf("%d 1 n1\n", os.Getpid()): {Exists: true, Pid: os.Getpid(), Start: "1", Nonce: "n1"}, // another's PID
		} {
			g := newGuarded(t, sh)
			if err := os.MkdirAll(filepath.Dir(g.file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(g.file, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			got := g.inspect(t, "0", "")
			code := got.Exit
			got.Exit = nil
			if wantCode := content == "forged\nexit 0\n"; got != want || (code != nil) != wantCode {
				t.Errorf("%q: got %+v, exit %v", content, got, code)
			}
		}
	})
}

func TestTheWarmUpMakesBothFoldersAndPrunesOldGuards(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, sh []string) {
		dir := t.TempDir()
		guards := filepath.Join(dir, "guards")
		_ = os.MkdirAll(guards, 0o755)
		old, young := filepath.Join(guards, "old"), filepath.Join(guards, "young")
		for _, f := range []string{old, young} {
			if err := os.WriteFile(f, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		past := time.Now().Add(-49 * time.Hour)
		if err := os.Chtimes(old, past, past); err != nil {
			t.Fatal(err)
		}
		args := append(append([]string{}, sh[1:]...), "-c", sprites.WarmupScript, "wakebus", "M", filepath.Join(dir, "w/s"), guards)
		out, err := exec.Command(sh[0], args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"M workspace yes\n", "M guard yes\n", "M done yes\n", "M time "} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%q is missing in %q", want, out)
			}
		}
		if _, err := os.Stat(old); err == nil {
			t.Error("the old guard file is still there")
		}
		if _, err := os.Stat(young); err != nil {
			t.Error("the young guard file is gone")
		}
	})
}

func TestA97IsJudgedByTheGuardsFile(t *testing.T) {
	t.Parallel()
	ours := "ours"
	for name, tt := range map[string]struct {
		lines []string
		check func(err error) bool
	}{
		"ours": {[]string{"41 1 " + ours, "exit 97"}, func(err error) bool { return err == io.EOF }},
		"another's": {[]string{"17 1 theirs"}, func(err error) bool {
			var taken *sprites.GuardTaken
			return errors.As(err, &taken) && taken.State.Pid == 17 && taken.State.Nonce == "theirs"
		}},
		"empty": {[]string{}, func(err error) bool {
			var taken *sprites.GuardTaken
			return errors.As(err, &taken) && taken.State.Nonce == ""
		}},
		"no file": {nil, func(err error) bool { return errors.Is(err, sprites.ErrGuardUnwritable) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.setGuard(true, tt.lines...)
			if tt.lines != nil && len(tt.lines) == 0 {
				f.guard = []string{}
			}
			f.on("GET /box/exec", f.exec(func(p *peer) {
				p.info("41", 7)
				p.exit(97)
				p.wait()
			}))
			proc, err := f.client(func(c *sprites.Config) { c.Nonce = func() string { return ours } }).Start(t.Context(), command())
			if err != nil {
				t.Fatal(err)
			}
			defer proc.Close()
			_, _, err = collect(t.Context(), proc)
			if !tt.check(err) {
				t.Errorf("got %v", err)
			}
			if exit, ok := proc.Exit(); ok != (name == "ours") || ok && exit.Code != 97 {
				t.Errorf("exit %+v, %v", exit, ok)
			}
		})
	}
}

func TestARedialThatFindsTheGuardTakenSaysSoBeforeItCountsAsStarted(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.setGuard(true, "17 1 theirs")
	f.on("GET /box/exec", f.exec(func(p *peer) {
		p.info("41", 7)
		p.exit(97)
		p.wait()
	}))
	cmd := command()
	cmd.Contested = true
	_, err := f.client().Start(t.Context(), cmd)
	var taken *sprites.GuardTaken
	if !errors.As(err, &taken) || taken.State.Pid != 17 {
		t.Errorf("got %v", err)
	}
	f.allClosed()
}

func TestRejoinAttachesToTheSessionOfTheGuardsPid(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.setGuard(true, "17 1 theirs")
	f.on("GET /box/exec", f.exec(nil))
	f.on("GET /box/exec/17", f.accept(func(p *peer) {
		p.info("17", 7)
		p.wait()
	}))
	got, err := f.client().Rejoin(t.Context(), sprites.AttachRequest{Sprite: "box", Guard: "dev.job.0"}, time.Minute)
	if err != nil || got.Fate != sprites.FateRunning || got.Process.Session().ID != "17" {
		t.Fatalf("got %+v, %v", got, err)
	}
	_ = got.Process.Close()
	f.allClosed()
}

func TestRejoinStopsWhatHasNoSessionAndCallsItLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.setGuard(true, "17 1 theirs")
	var signals []string
	probe := f.accept(func(p *peer) {
		if sig := p.r.URL.Query()["cmd"][7]; sig != "" {
			signals = append(signals, sig)
			f.setGuard(sig == "TERM", "17 1 theirs")
		}
		p.probe()
	})
	f.on("GET /box/exec", probe)
	f.on("GET /box/exec/{id}", respond(404, "session not found: 17"))
	got, err := f.client().Rejoin(t.Context(), sprites.AttachRequest{Sprite: "box", Guard: "dev.job.0"}, 0)
	if err != nil || got.Fate != sprites.FateLost {
		t.Fatalf("got %+v, %v", got, err)
	}
	if fmt.Sprint(signals) != "[TERM KILL]" {
		t.Errorf("signals %v", signals)
	}
}

func TestRejoinDoesNotCallAnUnreachableCommandLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", respond(503, ""))
	got, err := f.client().Rejoin(context.Background(), sprites.AttachRequest{Sprite: "box", Guard: "dev.job.0"}, 0)
	if sprites.ClassOf(err) != sprites.ClassUnavailable || got.Fate != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}
