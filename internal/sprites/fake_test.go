package sprites_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites"
)

const sentinelToken = "acme/org/token/s3cr3t-sentinel"

// fake is an API server that a test scripts route by route. What it has no route for answers 501 and fails the test.
type fake struct {
	t   *testing.T
	srv *httptest.Server
	mux *http.ServeMux

	mu      sync.Mutex // protects what follows
	calls   []string
	sleeps  []time.Duration
	sockets int
	changed chan struct{} // closed and replaced whenever sockets changes
	guard   []string      // lines of the guard file; nil means that there is none
	alive   bool
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, mux: http.NewServeMux(), changed: make(chan struct{})}
	f.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+sentinelToken {
			t.Errorf("%s %s without the token", r.Method, r.URL.Path)
		}
		f.mu.Lock()
		f.calls = append(f.calls, r.Method+" "+r.URL.Path)
		f.mu.Unlock()
		if _, pattern := f.mux.Handler(r); pattern == "" {
			t.Errorf("unexpected %s %s", r.Method, r.URL.Path)
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		f.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.srv.Close)
	return f
}

// on adds a route, in http.ServeMux's language, below /v1/sprites.
func (f *fake) on(pattern string, h http.HandlerFunc) {
	method, path, _ := strings.Cut(pattern, " ")
	f.mux.HandleFunc(method+" /v1/sprites"+path, h)
}

// client returns a client of the fake's, whose waits between tries are recorded instead of waited.
func (f *fake) client(change ...func(*sprites.Config)) *sprites.Client {
	f.t.Helper()
	return f.gated(nil, change...)
}

func (f *fake) gated(gate sprites.Gate, change ...func(*sprites.Config)) *sprites.Client {
	f.t.Helper()
	cfg := sprites.Config{
		BaseURL: f.srv.URL, Token: sentinelToken, Rand: func() float64 { return 0.5 },
		ReplayQuiet: 250 * time.Millisecond,
		Sleep: func(ctx context.Context, d time.Duration) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.sleeps = append(f.sleeps, d)
			return ctx.Err()
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	c, err := sprites.New(gate, cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// count returns how many calls had this method and path.
func (f *fake) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (f *fake) waits() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sleeps)
}

func (f *fake) setGuard(alive bool, lines ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guard, f.alive = lines, alive
}

// allClosed waits until no socket is open on the server's side.
func (f *fake) allClosed() {
	f.t.Helper()
	deadline := time.After(5 * time.Second)
	for {
		f.mu.Lock()
		n, changed := f.sockets, f.changed
		f.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("%d sockets are still open", n)
		}
	}
}

func (f *fake) socketDelta(d int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sockets += d
	close(f.changed)
	f.changed = make(chan struct{})
}

// peer is the server's end of a socket.
type peer struct {
	f    *fake
	ctx  context.Context
	conn *websocket.Conn
	r    *http.Request
}

// accept upgrades, counts the socket, and runs script on it; the socket counts as open until its connection is gone.
func (f *fake) accept(script func(p *peer)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			f.t.Errorf("accept: %v", err)
			return
		}
		conn.SetReadLimit(-1)
		f.socketDelta(1)
		defer f.socketDelta(-1)
		defer conn.CloseNow()
		script(&peer{f: f, ctx: context.Background(), conn: conn, r: r})
	}
}

// exec routes commands: our own inspections and warm-ups are answered by the fake, others run script.
func (f *fake) exec(script func(p *peer)) http.HandlerFunc {
	run := f.accept(script)
	own := f.accept(func(p *peer) { p.probe() })
	return func(w http.ResponseWriter, r *http.Request) {
		if isProbe(r) {
			own(w, r)
			return
		}
		run(w, r)
	}
}

func isProbe(r *http.Request) bool {
	cmd := r.URL.Query()["cmd"]
	if len(cmd) > 2 && (cmd[2] == sprites.InspectScript || cmd[2] == sprites.WarmupScript) {
		return true
	}
	return len(cmd) == 1 && cmd[0] == "true" || len(cmd) > 3 && cmd[3] == "wakebus" && strings.HasPrefix(cmd[2], "mkdir")
}

// probe answers one of the client's own commands.
func (p *peer) probe() {
	p.info("9", 1)
	cmd := p.r.URL.Query()["cmd"]
	switch {
	case len(cmd) > 2 && cmd[2] == sprites.InspectScript:
		p.f.mu.Lock()
		lines, alive := p.f.guard, p.f.alive
		p.f.mu.Unlock()
		m := cmd[4]
		p.out(sprites.Stdout, "a banner nobody asked for\n")
		if lines == nil {
			p.out(sprites.Stdout, m+" none\n")
		} else {
			for _, l := range lines {
				p.out(sprites.Stdout, m+" line "+l+"\n")
			}
			p.out(sprites.Stdout, fmt.Sprintf("%s end %s\n", m, map[bool]string{true: "alive", false: "dead"}[alive]))
		}
	case len(cmd) > 2 && cmd[2] == sprites.WarmupScript:
		m := cmd[4]
		p.out(sprites.Stdout, fmt.Sprintf("%[1]s workspace yes\n%[1]s guard yes\n%[1]s bash yes\n%[1]s time %[2]d\n%[1]s done yes\n", m, time.Now().Unix()))
	}
	p.exit(0)
	p.wait()
}

func (p *peer) text(v any) {
	b, _ := json.Marshal(v)
	_ = p.conn.Write(p.ctx, websocket.MessageText, b)
}

func (p *peer) binary(b ...byte) { _ = p.conn.Write(p.ctx, websocket.MessageBinary, b) }

func (p *peer) info(id string, created int64) {
	p.text(map[string]any{"type": "session_info", "session_id": id, "created": created, "tty": p.r.URL.Query().Get("tty") == "true"})
}

func (p *peer) out(s sprites.Stream, text string) { p.binary(append([]byte{byte(s)}, text...)...) }

func (p *peer) exit(code byte) { p.binary(3, code) }

// wait returns when the client has closed.
func (p *peer) wait() {
	for {
		if _, _, err := p.conn.Read(p.ctx); err != nil {
			return
		}
	}
}

// nonce is the one of the dial, which the guard would write.
func (p *peer) nonce() string { return p.r.URL.Query()["cmd"][5] }

// command is what most tests run.
func command() sprites.Command {
	return sprites.Command{Sprite: "box", Guard: "dev.job.0", Job: "job", Argv: []string{"prog", "arg"}, Limit: time.Minute}
}

// collect reads a process to its end.
func collect(ctx context.Context, p *sprites.Process) (stdout, stderr string, err error) {
	var out [3]strings.Builder
	for {
		chunk, err := p.Next(ctx)
		if err != nil {
			return out[sprites.Stdout].String(), out[sprites.Stderr].String(), err
		}
		out[chunk.Stream].Write(chunk.Data)
	}
}

// respond answers with a status and a body.
func respond(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// inTurn answers each call by the next handler; the last one stays.
func inTurn(handlers ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		h := handlers[min(n, len(handlers)-1)]
		n++
		mu.Unlock()
		h(w, r)
	}
}

// drop closes the connection without an answer.
func drop(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func record(name, status string) string {
	return fmt.Sprintf(`{"id":"sprite-1","name":%q,"status":%q,"created_at":"2026-08-01T10:00:00.123456Z","last_running_at":null}`, name, status)
}
