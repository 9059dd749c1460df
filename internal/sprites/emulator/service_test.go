package emulator_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

type serviceView struct {
	Name  string
	State struct {
		Status, Error string
		PID           int
		Restarts      int `json:"restart_count"`
	}
}

func (b *bench) service(name string) serviceView {
	b.t.Helper()
	var v serviceView
	_, body := b.call("GET", "/v1/sprites/one/services/"+name, nil)
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		b.t.Fatal(body)
	}
	return v
}

func (b *bench) put(name, body string) (int, []string) {
	b.t.Helper()
	code, out := b.call("PUT", "/v1/sprites/one/services/"+name+"?duration=0s", body)
	return code, strings.Split(strings.TrimSpace(out), "\n")
}

const sleeper = `{"cmd":"sleep","args":["1000"],"http_port":8080}`

func TestServiceStartsOnPutAndAStoppedOneReadsFailed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	code, lines := b.put("s", sleeper)
	if code != 200 || !strings.Contains(lines[len(lines)-1], `"type":"complete"`) {
		t.Fatal(code, lines)
	}
	before := b.service("s")
	if before.State.Status != "running" || before.State.PID == 0 {
		t.Fatal(before)
	}
	b.put("s", sleeper) // the same again changes nothing
	if after := b.service("s"); after.State.PID != before.State.PID {
		t.Fatal(after)
	}
	if code, body := b.call("POST", "/v1/sprites/one/services/s/stop", nil); code != 200 {
		t.Fatal(body)
	}
	if v := b.service("s"); v.State.Status != "failed" || v.State.Error != "exited with code 143" {
		t.Fatal(v)
	}
	if code, _ := b.call("POST", "/v1/sprites/one/services/s/stop", nil); code != 409 {
		t.Fatal(code)
	}
}

// windows remembers how long each wait was to be.
type windows struct {
	mu    sync.Mutex // protects waits
	waits map[time.Duration]bool
}

func (w *windows) Now() time.Time { return time.Now() }

func (w *windows) AfterFunc(d time.Duration, f func()) emulator.Timer {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits[d] = true
	return time.AfterFunc(d, f)
}

func (w *windows) saw(d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waits[d]
}

func TestARunningServiceDoublesTheIdleWindow(t *testing.T) {
	t.Parallel()
	for documented, want := range map[bool]bool{false: true, true: false} {
		clock := &windows{waits: map[time.Duration]bool{}}
		b := setup(t, func(c *emulator.Config) { c.Clock, c.Idle, c.Documented = clock, time.Hour, documented })
		b.create("one")
		b.sh("one", "true")
		if b.eventually("idle", func() bool { return clock.saw(time.Hour) }); clock.saw(2 * time.Hour) {
			t.Error("doubled without a service")
		}
		b.put("s", sleeper)
		b.sh("one", "true")
		if want {
			b.eventually("idle with a service", func() bool { return clock.saw(2 * time.Hour) })
		} else if clock.saw(2 * time.Hour) {
			t.Error("doubled as documented")
		}
	}
}

func TestDocumentedServicesReadStoppedAndShareNoPort(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.Documented = true })
	b.create("one")
	b.put("s", sleeper)
	if code, _ := b.put("other", sleeper); code != 409 {
		t.Error("second port: ", code)
	}
	b.call("POST", "/v1/sprites/one/services/s/stop", nil)
	if v := b.service("s"); v.State.Status != "stopped" {
		t.Error(v)
	}
}

func TestListingServicesWakesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.put("s", sleeper)
	if err := b.Sleep("one"); err != nil {
		t.Fatal(err)
	}
	b.call("GET", "/v1/sprites/one/services", nil)
	if got := b.status("one"); got != emulator.Warm {
		t.Fatal(got)
	}
}

func TestServicesSurviveAColdBootAndStopIsSticky(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.put("on", sleeper)
	b.put("off", sleeper)
	b.call("POST", "/v1/sprites/one/services/off/stop", nil)
	if err := b.Cold("one"); err != nil {
		t.Fatal(err)
	}
	b.sh("one", "true")
	b.eventually("the service runs", func() bool { return b.service("on").State.Status == "running" })
	if v := b.service("off"); v.State.PID != 0 {
		t.Fatal(v)
	}
}

func TestCrashedServiceIsStartedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.put("s", `{"cmd":"sh","args":["-c","echo up; exit 3"]}`)
	b.eventually("a restart", func() bool { return b.service("s").State.Restarts > 0 })
	log := filepath.Join(b.Sprites()[0].Folder, ".sprite/logs/services/s.log")
	if raw, err := os.ReadFile(log); err != nil || !strings.Contains(string(raw), "[stdout] up") {
		t.Fatal(string(raw), err)
	}
}

func TestServiceNamesCannotLeaveTheLogFolder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	for _, name := range []string{"..", "a%2fb", ".hidden", "%2e%2e%2fx"} {
		b.put(name, sleeper)
	}
	if _, body := b.call("GET", "/v1/sprites/one/services", nil); strings.TrimSpace(body) != "[]" {
		t.Fatal(body)
	}
}

func TestCheckpointRestoreEndsSessionsAndKeepsTheID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	id := b.Sprites()[0].ID
	b.sh("one", `echo one > "$1"`, "/workspace/f")
	if code, body := b.call("POST", "/v1/sprites/one/checkpoint", `{"comment":"c"}`); code != 200 || !strings.Contains(body, "Checkpoint v1 created") {
		t.Fatal(body)
	}
	b.sh("one", `echo two > "$1"`, "/workspace/f")
	r := b.open("one", command("sleep", "1000"))
	r.session()
	if code, body := b.call("POST", "/v1/sprites/one/checkpoints/v1/restore", nil); code != 200 || !strings.Contains(body, `"type":"complete"`) {
		t.Fatal(body)
	}
	if r.wait(); r.exit != -1 {
		t.Fatal("the session ended as if of itself: ", r.exit)
	}
	if got := b.sh("one", `cat "$1"`, "/workspace/f").out.String(); got != "one\n" || b.Sprites()[0].ID != id {
		t.Fatal(got)
	}
}

func TestCutCheckpointStreamHasNoTerminalEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.faults(emulator.Fault{Route: "checkpoint.create", Do: emulator.FaultDropAfter, Bytes: 60})
	_, body, err := b.try("POST", "/v1/sprites/one/checkpoint", `{}`)
	if err == nil || strings.Contains(body, "complete") {
		t.Fatal(body, err)
	}
}
