package sprites_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites"
)

// raw takes the connection over and lets script write what no HTTP server would. It ends with the script.
func raw(script func(c net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		script(conn)
	}
}

// writeUntilClosed writes text again and again until the client has enough, or 64 MiB are out.
func writeUntilClosed(c net.Conn, text string) {
	for written := 0; written < 64<<20; written += len(text) {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// A server that answers nonsense costs an error of a known class, in bounded time and memory, and no socket.
func TestAHostileAnswerIsAnErrorOfAKnownClass(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		class  sprites.Class
	}{
		"not HTTP": {raw(func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n\r\n") }), sprites.ClassTransport},
		"headers without end": {raw(func(c net.Conn) {
			_, _ = io.WriteString(c, head)
			writeUntilClosed(c, "X-A: "+strings.Repeat("a", 4096)+"\r\n")
		}), sprites.ClassTransport},
		"a cut body":      {raw(func(c net.Conn) { _, _ = io.WriteString(c, head+"Content-Length: 100\r\n\r\n{\"name\":") }), sprites.ClassTransport},
		"a cut chunk":     {raw(func(c net.Conn) { _, _ = io.WriteString(c, head+"Transfer-Encoding: chunked\r\n\r\nff\r\n{") }), sprites.ClassTransport},
		"a page":          {respond(200, "<html>please wait</html>", "Content-Type", "text/html"), sprites.ClassUnavailable},
		"an error page":   {respond(502, "<html>"+strings.Repeat("x", 1<<20)), sprites.ClassUnavailable},
		"another's shape": {respond(200, `{"name":["box"]}`), sprites.ClassUnavailable},
		"deep nesting":    {respond(200, strings.Repeat("[", 1<<20)), sprites.ClassUnavailable},
		"nothing":         {respond(200, ""), sprites.ClassUnavailable},
		"a drip": {raw(func(c net.Conn) {
			_, _ = io.WriteString(c, head+"\r\n")
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, " ")
				select {
				case <-release:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		}), sprites.ClassTimeout},
		"a body without end": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			for n := 0; n < 64<<20 && r.Context().Err() == nil; n += 1 << 16 {
				if _, err := io.WriteString(w, strings.Repeat(" ", 1<<16)); err != nil {
					return
				}
			}
		}, sprites.ClassInvalid}, // as large the next time
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.on("GET /box", tt.answer)
			_, err := f.client(func(c *sprites.Config) { c.CallTimeout = 2 * time.Second }).Get(t.Context(), "box")
			if sprites.ClassOf(err) != tt.class {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The same for a socket: whatever comes over it, the process ends with the true code or with an error that holds none.
func TestAHostileSocketNeverMakesACode(t *testing.T) {
	t.Parallel()
	type ending struct {
		out  int // bytes of output
		code int // -1: there must be none
	}
	for name, tt := range map[string]struct {
		script func(p *peer)
		want   ending
	}{
		"junk frames": {func(p *peer) {
			p.info("41", 7)
			for _, b := range [][]byte{{}, {0}, {4}, {9, 9, 9}, {255}, {1}, {2}, []byte(strings.Repeat("\x07", 100_000))} {
				p.binary(b...)
			}
			for _, text := range []string{"", "{", "null", "[]", `"x"`, `{"type":7}`, `{"type":"exit","exit_code":"0"}`, `{"type":"nothing"}`, "\xff\xfe"} {
				_ = p.conn.Write(p.ctx, websocket.MessageText, []byte(text))
			}
			p.out(sprites.Stdout, "out")
			p.exit(3)
			p.wait()
		}, ending{3, 3}},
		"a second session_info": {func(p *peer) {
			p.info("41", 7)
			p.text(map[string]any{"type": "session_info", "session_id": "99", "created": 1, "tty": false})
			p.exit(4)
			p.wait()
		}, ending{0, 4}},
		"an exit code beyond a byte": {func(p *peer) { p.info("41", 7); p.binary(3, 0, 0, 1, 0); p.wait() }, ending{0, -1}},
		"an exit of three bytes":     {func(p *peer) { p.info("41", 7); p.binary(3, 0, 0, 0); p.wait() }, ending{0, -1}},
		"an exit cut short":          {func(p *peer) { p.info("41", 7); p.binary(3); p.wait() }, ending{0, -1}},
		"output behind the exit": {func(p *peer) {
			p.info("41", 7)
			p.exit(0)
			for range 200 { // 12.8 MiB, of which a bounded part may be kept
				p.out(sprites.Stdout, strings.Repeat("x", 64<<10))
			}
		}, ending{-1, 0}},
		"a frame over the limit": {func(p *peer) {
			p.info("41", 7)
			p.out(sprites.Stdout, strings.Repeat("x", 17<<20))
			p.wait()
		}, ending{-1, -1}},
		"a text over the limit": {func(p *peer) {
			p.info("41", 7)
			_ = p.conn.Write(p.ctx, websocket.MessageText, []byte(`{"type":"debug","msg":"`+strings.Repeat("x", 1<<20)+`"}`))
			p.exit(5)
			p.wait()
		}, ending{0, 5}},
		"a terminal instead of a command": {func(p *peer) {
			p.text(map[string]any{"type": "session_info", "session_id": "41", "created": 7, "tty": true})
			p.binary([]byte("raw")...)
			p.binary(3, 0)
			_ = p.conn.CloseNow()
		}, ending{-1, -1}},
		"a cut frame": {func(p *peer) {
			p.info("41", 7)
			w, err := p.conn.Writer(p.ctx, websocket.MessageBinary)
			if err == nil {
				_, _ = w.Write([]byte{1, 'x'})
			}
			_ = p.conn.CloseNow()
		}, ending{-1, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.setGuard(true, "41 1 other")
			f.on("GET /box/exec", f.exec(tt.script))
			proc, err := f.client().Start(t.Context(), command())
			if err != nil {
				t.Fatal(err)
			}
			out, _, err := collect(t.Context(), proc)
			_ = proc.Close()
			exit, ok := proc.Exit()
			switch {
			case ok != (tt.want.code >= 0) || ok && exit.Code != tt.want.code:
				t.Errorf("exit %+v, %t; %v", exit, ok, err)
			case !ok && (err == io.EOF || !errors.Is(err, sprites.ErrNoExit)):
				t.Errorf("without a code: %v", err)
			case tt.want.out >= 0 && len(out) != tt.want.out, len(out) > 20<<20:
				t.Errorf("%d bytes of output", len(out))
			case proc.Session().ID != "41":
				t.Errorf("session %v", proc.Session())
			}
			f.allClosed()
		})
	}
}

// Frames that mean nothing never end the wait for session_info, so the dial's own deadline must.
func TestAFloodBeforeTheIntroductionEndsWithTheDial(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", f.exec(func(p *peer) {
		for p.conn.Write(p.ctx, websocket.MessageText, []byte(`{"type":"debug"}`)) == nil {
		}
	}))
	_, err := f.client(func(c *sprites.Config) { c.DialTimeout = 200 * time.Millisecond }).Start(t.Context(), command())
	var e *sprites.Error
	if !errors.As(err, &e) || e.Class != sprites.ClassTimeout || !e.Opened {
		t.Errorf("got %v", err)
	}
	f.allClosed()
}

// 64 MiB of output that nobody keeps leave the client as large as before.
func TestCase09AFloodLeavesMemoryFlat(t *testing.T) {
	const frames, size = 1024, 64 << 10
	f := newFake(t)
	f.on("GET /box/exec", f.exec(func(p *peer) {
		p.info("41", 7)
		data := append([]byte{1}, make([]byte, size)...)
		for range frames {
			if p.conn.Write(p.ctx, websocket.MessageBinary, data) != nil {
				return
			}
		}
		p.exit(0)
		p.wait()
	}))
	proc := start(t, f.client())
	defer proc.Close()
	total, most := 0, uint64(0)
	before := heap()
	for {
		chunk, err := proc.Next(context.Background())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if total += len(chunk.Data); total%(8<<20) == 0 {
			most = max(most, heap())
		}
	}
	if total != frames*size || most > before+8<<20 {
		t.Errorf("%d bytes came, the heap went from %s to %s", total, mib(before), mib(most))
	}
}

// heap is what lives after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func mib(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
