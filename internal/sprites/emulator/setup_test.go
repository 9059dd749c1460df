package emulator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func TestMain(m *testing.M) {
	emulator.MaybeInit()
	goleak.VerifyTestMain(m)
}

// bench is a running emulator and what tests need to talk to it.
type bench struct {
	t testing.TB
	*emulator.Server
	http *http.Client
}

// setup starts an emulator that wakes fast; change edits its settings.
func setup(t *testing.T, change ...func(*emulator.Config)) *bench {
	t.Helper()
	cfg := emulator.Config{
		WarmWake: time.Millisecond, ColdWake: time.Millisecond, Linger: 20 * time.Second, Idle: time.Hour,
		Logger:    zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
		Isolation: isolation(),
	}
	for _, f := range change {
		f(&cfg)
	}
	return setupIn(t, cfg)
}

func setupIn(t testing.TB, cfg emulator.Config) *bench {
	t.Helper()
	s, err := emulator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{t: t, Server: s, http: &http.Client{Transport: tr}}
}

// isolation lets one run of the tests prove the fallback as well.
func isolation() emulator.IsolationMode {
	if os.Getenv("EMULATOR_TEST_ISOLATION") == "mapped" {
		return emulator.IsolationMapped
	}
	return emulator.IsolationAuto
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	b.t.Cleanup(cancel)
	return ctx
}

// call makes one HTTP call and gives status and body.
func (b *bench) call(method, path string, body any) (int, string) {
	b.t.Helper()
	res, raw, err := b.try(method, path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, raw
}

func (b *bench) try(method, path string, body any) (*http.Response, string, error) {
	b.t.Helper()
	var in io.Reader
	switch v := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(v)
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			b.t.Fatal(err)
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(b.ctx(), method, b.URL()+path, in)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.Token())
	res, err := b.http.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	return res, string(raw), err
}

func (b *bench) create(name string) {
	b.t.Helper()
	if code, body := b.call("POST", "/v1/sprites", map[string]any{"name": name}); code != 201 {
		b.t.Fatalf("create: %d %s", code, body)
	}
}

func (b *bench) dial(path string, q url.Values) (*websocket.Conn, *http.Response, error) {
	ws, res, err := websocket.Dial(b.ctx(), strings.Replace(b.URL(), "http", "ws", 1)+path+"?"+q.Encode(), &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + b.Token()}}, HTTPClient: b.http,
	})
	if ws != nil {
		ws.SetReadLimit(64 << 20)
		b.t.Cleanup(func() { _ = ws.CloseNow() })
	}
	return ws, res, err
}

// run is an exec socket and what came over it.
type run struct {
	b       *bench
	ws      *websocket.Conn
	info    map[string]any
	out     bytes.Buffer // standard output, or the terminal
	err     bytes.Buffer
	exit    int // -1 when no exit frame came
	text    []map[string]any
	tty     bool
	frames  []string // "text:TYPE", "1", "2", "3"
	lastErr error
}

func (b *bench) open(sprite string, q url.Values) *run {
	b.t.Helper()
	ws, _, err := b.dial("/v1/sprites/"+sprite+"/exec", q)
	if err != nil {
		b.t.Fatal(err)
	}
	return &run{b: b, ws: ws, exit: -1, tty: q.Get("tty") == "true"}
}

func (b *bench) attach(sprite, id string, q url.Values) *run {
	b.t.Helper()
	ws, _, err := b.dial("/v1/sprites/"+sprite+"/exec/"+id, q)
	if err != nil {
		b.t.Fatal(err)
	}
	return &run{b: b, ws: ws, exit: -1, tty: q.Get("tty") == "true"}
}

func command(argv ...string) url.Values {
	return url.Values{"cmd": argv, "path": {argv[0]}, "stdin": {"false"}}
}

// sh runs a script to its end.
func (b *bench) sh(sprite, script string, args ...string) *run {
	b.t.Helper()
	return b.open(sprite, command(append([]string{"sh", "-c", script, "sh"}, args...)...)).wait()
}

// step takes one message and says whether there was one.
func (r *run) step() bool {
	kind, data, err := r.ws.Read(r.b.ctx())
	if err != nil {
		r.lastErr = err
		return false
	}
	if kind == websocket.MessageText {
		m := map[string]any{}
		_ = json.Unmarshal(data, &m)
		if m["type"] == "session_info" {
			r.info = m
		}
		if m["type"] == "exit" && r.tty {
			r.exit = int(m["exit_code"].(float64))
		}
		r.text = append(r.text, m)
		r.frames = append(r.frames, "text:"+m["type"].(string))
		return true
	}
	if r.tty {
		r.out.Write(data)
		return true
	}
	r.frames = append(r.frames, string('0'+rune(data[0])))
	switch data[0] {
	case 1:
		r.out.Write(data[1:])
	case 2:
		r.err.Write(data[1:])
	case 3:
		r.exit = int(data[1])
	}
	return true
}

// wait reads to the exit frame, or to the end of a terminal, and closes.
func (r *run) wait() *run {
	for (r.tty || r.exit < 0) && r.step() {
	}
	if !r.tty {
		_ = r.ws.Close(websocket.StatusNormalClosure, "")
	}
	return r
}

// until reads until standard output holds s.
func (r *run) until(s string) *run {
	r.b.t.Helper()
	for !strings.Contains(r.out.String(), s) {
		if !r.step() {
			r.b.t.Fatalf("ended without %q: %q, %v", s, r.out.String(), r.lastErr)
		}
	}
	return r
}

func (r *run) session() string {
	r.b.t.Helper()
	for r.info == nil {
		if !r.step() {
			r.b.t.Fatal("no session_info: ", r.lastErr)
		}
	}
	return r.info["session_id"].(string)
}

func (r *run) send(frame ...byte) {
	r.b.t.Helper()
	if err := r.ws.Write(r.b.ctx(), websocket.MessageBinary, frame); err != nil {
		r.b.t.Fatal(err)
	}
}

// eventually waits for a condition that has no signal of its own.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatal("never: ", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
