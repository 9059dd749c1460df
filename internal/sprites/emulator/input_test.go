package emulator_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// deaf runs a command that does not read, and sends it more than any pipe holds.
func (b *bench) deaf(keep string) *run {
	b.t.Helper()
	q := command("sleep", "1000")
	q.Set("stdin", "true")
	q.Set("max_run_after_disconnect", keep)
	r := b.open("one", q)
	r.session()
	r.send(make([]byte, 1<<20)...)
	return r
}

func TestASignalPassesInputThatNobodyReads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.deaf("1h")
	if err := r.ws.Write(b.ctx(), websocket.MessageText, []byte(`{"type":"signal","signal":"KILL"}`)); err != nil {
		t.Fatal(err)
	}
	if r.wait(); r.exit != 137 {
		t.Errorf("exit %d, %v", r.exit, r.lastErr)
	}
}

func TestAClientThatLeftInputUnreadIsMissed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	_ = b.deaf("10ms").ws.CloseNow()
	b.eventually("the leash ends the command", func() bool { return b.Sprites()[0].Sessions == 0 && b.Connections() == 0 })
}

func TestInputBeyondTheBoundDropsItsSenderAndSparesTheCommand(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.Clock = &hurriedClock{} })
	b.create("one")
	r := b.deaf("1h")
	ctx, cancel := context.WithCancel(b.ctx())
	defer cancel()
	go func() { // ends with the socket
		for r.ws.Write(ctx, websocket.MessageBinary, make([]byte, 1<<20)) == nil {
		}
	}()
	_, _, err := r.ws.Read(b.ctx())
	if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("got %v", err)
	}
	if b.Sprites()[0].Sessions != 1 {
		t.Error("the command was ended")
	}
}

func TestInputThatWaitsArrivesWholeAndInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := command("sh", "-c", `while [ ! -e /workspace/go ]; do sleep 0.02; done; cat`)
	q.Set("stdin", "true")
	r := b.open("one", q)
	r.session()
	var want bytes.Buffer
	for i := range 30 {
		part := append([]byte{0}, strings.Repeat(string(rune('a'+i%26)), 64<<10)...)
		want.Write(part[1:])
		r.send(part...)
	}
	r.send(4)
	b.call("PUT", "/v1/sprites/one/fs/write?path=/workspace/go", "")
	if r.wait(); !bytes.Equal(r.out.Bytes(), want.Bytes()) || r.exit != 0 {
		t.Errorf("%d of %d bytes, exit %d, %v", r.out.Len(), want.Len(), r.exit, r.lastErr)
	}
}

func TestASessionIsListedByWhatItRunsNow(t *testing.T) {
	t.Parallel()
	for documented, want := range map[bool]string{false: "sleep 1000", true: "sh -c echo up; exec sleep 1000"} {
		b := setup(t, func(c *emulator.Config) { c.Documented = documented })
		b.create("one")
		b.open("one", command("sh", "-c", "echo up; exec sleep 1000")).until("up")
		b.eventually("listed as "+want, func() bool {
			_, body := b.call("GET", "/v1/sprites/one/exec", nil)
			return strings.Contains(body, `"command":"`+want+`"`)
		})
	}
}
