package emulator_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

// touch is one call about a sleeping Sprite, and whether it wakes it.
type touch struct {
	method, path, body string
	wakes              bool
}

const socket = "WS"

// What happens inside of the machine wakes it; what the control plane knows by itself does not, and neither does a look
// at the services of the live service.
func TestCallsIntoTheMachineWakeItAndControlPlaneCallsDoNot(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.Control = true })
	b.create("one")
	b.sh("one", `echo x > "$1"`, "/workspace/f")
	for _, tt := range []touch{
		{"GET", "", "", false},
		{"GET", "/check", "", false},
		{"PUT", "", `{"labels":["a"]}`, false},
		{"POST", "/upgrade", "", false},
		{"HEAD", "/exec", "", false},
		{"GET", "/policy/network", "", false},
		{"POST", "/policy/network", `{"rules":[]}`, false},
		{"GET", "/policy/resources", "", false},
		{"GET", "/services", "", false},
		{"GET", "/services/none", "", false},
		{socket, "/control", "", false},
		{socket, "/exec?cmd=true&path=true", "", true},
		{"POST", "/exec?cmd=true&path=true", "", true},
		{"GET", "/exec", "", true},
		{"GET", "/exec/1", "", true},
		{"POST", "/exec/99999/kill", "", true},
		{"GET", "/fs/read?path=/workspace/f", "", true},
		{"GET", "/fs/list?path=/workspace", "", true},
		{"PUT", "/fs/write?path=/workspace/g", "x", true},
		{"POST", "/fs/chmod", `{"path":"/workspace/f","mode":"0644"}`, true},
		{"POST", "/fs/copy", `{"source":"/workspace/f","dest":"/workspace/h"}`, true},
		{"POST", "/fs/rename", `{"source":"/workspace/h","dest":"/workspace/i"}`, true},
		{"DELETE", "/fs/delete?path=/workspace/i", "", true},
		{socket, "/fs/watch", "", true},
		{socket, "/proxy", "", true},
		{socket, "/ports/watch", "", true},
		{"GET", "/checkpoints", "", true},
		{"POST", "/checkpoint", `{}`, true},
		{"PUT", "/services/s?duration=0s", `{"cmd":"sleep","args":["1000"]}`, true},
		{"GET", "/services/s/logs", "", true},
		{"POST", "/restart", "", true},
	} {
		b.touched("one", tt)
	}
	if code, _ := b.call("GET", "/v1/sprites?prefix=o", nil); code != 200 {
		t.Error(code)
	}
}

func TestInTheDocumentedModeALookAtTheServicesWakes(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.Documented = true })
	b.create("one")
	b.sh("one", "true")
	b.touched("one", touch{"GET", "/services", "", true})
	b.touched("one", touch{"GET", "/services/none", "", true})
}

// touched puts the Sprite to sleep, makes the call and looks at it.
func (b *bench) touched(name string, call touch) {
	b.t.Helper()
	if err := b.Sleep(name); err != nil {
		b.t.Fatal(err)
	}
	path := "/v1/sprites/" + name + call.path
	if call.method == socket {
		path, query, _ := strings.Cut(path, "?")
		q, _ := url.ParseQuery(query)
		ws, _, err := b.dial(path, q)
		if err != nil {
			b.t.Errorf("%s: %v", call.path, err)
			return
		}
		defer func() { _ = ws.CloseNow() }()
	} else if _, _, err := b.try(call.method, path, call.body); err != nil {
		b.t.Errorf("%s %s: %v", call.method, call.path, err)
	}
	if woke := b.status(name) == emulator.Running; woke != call.wakes {
		b.t.Errorf("%s %s: woke %t, want %t", call.method, call.path, woke, call.wakes)
	}
}

// A pause keeps memory and scratch, a cold boot loses both; the workspace, the home and the policy outlive either.
func TestScratchIsLostByAColdBootAloneAndTheRestIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.call("POST", "/v1/sprites/one/policy/network", `{"rules":[{"domain":"*","action":"deny"}]}`)
	b.sh("one", `for f; do echo kept > "$f"; done`, "/workspace/f", "/home/sprite/f", "/tmp/f")
	if b.Isolation() != guest.Namespace {
		t.Skip("without namespaces /tmp is the host's")
	}
	look := func() string {
		return b.sh("one", `cat "$@" 2>/dev/null`, "/workspace/f", "/home/sprite/f", "/tmp/f").out.String()
	}
	policy := func() string {
		_, body := b.call("GET", "/v1/sprites/one/policy/network", nil)
		return strings.TrimSpace(body) + b.sh("one", `cat "$1"`, "/.sprite/policy/network.json").out.String()
	}
	before := policy()
	for _, step := range []struct {
		nap  func(string) error
		want string
	}{{b.Sleep, "kept\nkept\nkept\n"}, {b.Cold, "kept\nkept\n"}, {b.Kill, "kept\nkept\n"}} {
		if err := step.nap("one"); err != nil {
			t.Fatal(err)
		}
		if got := look(); got != step.want {
			t.Errorf("files %q, want %q", got, step.want)
		}
		if got := policy(); got != before || !strings.Contains(got, `"deny"`) {
			t.Errorf("policy %s, was %s", got, before)
		}
	}
}

// Whatever holds a socket open, a pause drops it.
func TestAPauseDropsEveryKindOfSocket(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.Control = true })
	b.create("one")
	open := map[string]*websocket.Conn{}
	for _, path := range []string{"/exec?cmd=sleep&cmd=1000&path=sleep", "/exec?cmd=sleep&cmd=1000&path=sleep&tty=true", "/control", "/proxy", "/ports/watch", "/fs/watch"} {
		at, query, _ := strings.Cut(path, "?")
		q, _ := url.ParseQuery(query)
		ws, _, err := b.dial("/v1/sprites/one"+at, q)
		if err != nil {
			t.Fatal(path, err)
		}
		open[path] = ws
	}
	streamed := make(chan error, 1)
	go func() {
		_, _, err := b.try("POST", "/v1/sprites/one/exec?cmd=sh&cmd=-c&cmd=echo+up%3B+sleep+1000&path=sh", nil)
		streamed <- err
	}()
	b.eventually("the HTTP exec runs", func() bool { return b.Sprites()[0].Sessions == 3 })
	if err := b.Sleep("one"); err != nil {
		t.Fatal(err)
	}
	if err := <-streamed; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Error("the HTTP exec: ", err)
	}
	for path, ws := range open {
		var err error
		for err == nil {
			_, _, err = ws.Read(b.ctx())
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s is still open", path)
		}
	}
	b.eventually("no socket is left", func() bool { return b.Connections() == 0 })
}
