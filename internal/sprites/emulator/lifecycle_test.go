package emulator_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func itoa(n int) string { return strconv.Itoa(n) }

func (b *bench) status(name string) emulator.Status {
	for _, s := range b.Sprites() {
		if s.Name == name {
			return s.Status
		}
	}
	return "none"
}

func TestSleepFreezesAndDropsAndAttachFindsTheSameProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := command("sh", "-c", "echo up; read x; echo got $x")
	q.Set("stdin", "true")
	q.Set("max_run_after_disconnect", "0")
	r := b.open("one", q)
	id := r.session()
	r.until("up")
	if err := b.Sleep("one"); err != nil {
		t.Fatal(err)
	}
	if r.wait(); r.exit != -1 || r.lastErr == nil {
		t.Fatalf("the socket survived: exit %d", r.exit)
	}
	if got := b.status("one"); got != emulator.Warm {
		t.Fatal(got)
	}
	if code, body := b.call("GET", "/v1/sprites/one", nil); code != 200 || !strings.Contains(body, `"status":"warm"`) {
		t.Fatalf("%d %s", code, body)
	}
	a := b.attach("one", id, nil)
	a.until("up")
	a.send([]byte("\x00x\n")...)
	if a.wait(); a.out.String() != "up\ngot x\n" || a.exit != 0 {
		t.Fatalf("%q %d", a.out.String(), a.exit)
	}
}

func TestColdLosesProcessesAndKeepsFilesAndPolicy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.sh("one", `echo kept > "$1"; echo gone > /tmp/scratch-$$`, "/workspace/f")
	b.call("POST", "/v1/sprites/one/policy/network", `{"rules":[{"domain":"*","action":"deny"}]}`)
	r := b.open("one", command("sh", "-c", "echo up; sleep 1000"))
	id := r.session()
	r.until("up")
	if err := b.Cold("one"); err != nil {
		t.Fatal(err)
	}
	r.wait()
	if _, res, err := b.dial("/v1/sprites/one/exec/"+id, nil); err == nil || res.StatusCode != 404 {
		t.Fatalf("session survived a cold boot: %v", err)
	}
	if r := b.sh("one", `cat "$1"`, "/workspace/f"); r.out.String() != "kept\n" {
		t.Fatalf("%q", r.err.String())
	}
	if _, body := b.call("GET", "/v1/sprites/one/policy/network", nil); !strings.Contains(body, `"deny"`) {
		t.Fatal(body)
	}
}

func TestIdleSpriteFallsAsleepAndThenColdByItself(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.Idle, c.ColdAfter = 20*time.Millisecond, 20*time.Millisecond })
	b.create("one")
	if r := b.sh("one", "true"); r.exit != 0 {
		t.Fatal(r.exit)
	}
	b.eventually("cold", func() bool { return b.status("one") == emulator.Cold })
	if r := b.sh("one", "exit 4"); r.exit != 4 {
		t.Fatal(r.exit)
	}
}

func TestSpritesAndFilesSurviveARestartOfTheEmulator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Run("first", func(t *testing.T) {
		b := setup(t, func(c *emulator.Config) { c.Dir = dir })
		b.create("one")
		b.sh("one", `echo kept > "$1"`, "/workspace/f")
		if _, err := emulator.New(emulator.Config{Dir: dir}); err == nil {
			t.Fatal("two emulators on one folder")
		}
	})
	b := setup(t, func(c *emulator.Config) { c.Dir = dir })
	if got := b.status("one"); got != emulator.Cold {
		t.Fatal(got)
	}
	if r := b.sh("one", `cat "$1"`, "/workspace/f"); r.out.String() != "kept\n" {
		t.Fatalf("%q", r.err.String())
	}
}

func TestDeleteFreesTheNameAndLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.sh("one", `echo old > "$1"; mkdir -p "$2"; chmod 0 "$2"`, "/workspace/f", "/workspace/closed/in")
	if code, _ := b.call("DELETE", "/v1/sprites/one", nil); code != 204 {
		t.Fatal(code)
	}
	if code, _ := b.call("DELETE", "/v1/sprites/one", nil); code != 404 {
		t.Fatal(code)
	}
	b.create("one")
	if r := b.sh("one", `cat "$1"`, "/workspace/f"); r.exit == 0 {
		t.Fatal("old file: ", r.out.String())
	}
}
