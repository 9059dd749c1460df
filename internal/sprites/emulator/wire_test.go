package emulator_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// These tests speak as the SDKs do that cannot be installed here: each sends
// what its SDK sends, and reads what its SDK reads (sources of sprites-go,
// sprites-ex and sprites-py).

// Go

func TestGoSDKCreatesListsAndDecodesTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	code, body := b.call("POST", "/v1/sprites", `{"name":"one","config":{"ram_mb":512},"labels":["a"]}`)
	if code != 201 {
		t.Fatal(code)
	}
	var sprite struct {
		Name        string
		CreatedAt   time.Time  `json:"created_at"`
		UpdatedAt   time.Time  `json:"updated_at"`
		LastRunning *time.Time `json:"last_running_at"`
		LastWarming *time.Time `json:"last_warming_at"`
	}
	if err := json.Unmarshal([]byte(body), &sprite); err != nil || sprite.Name != "one" || sprite.CreatedAt.IsZero() {
		t.Fatal(err, body)
	}
	var list struct {
		Sprites []struct {
			CreatedAt     time.Time  `json:"created_at"`
			LastRunningAt *time.Time `json:"last_running_at"`
		}
		HasMore bool    `json:"has_more"`
		Next    *string `json:"next_continuation_token"`
		Org     struct {
			Name string
			Cold int
		}
	}
	code, body = b.call("GET", "/v1/sprites?max_results=100", nil)
	if err := json.Unmarshal([]byte(body), &list); err != nil || code != 200 || len(list.Sprites) != 1 || list.HasMore || list.Next != nil || list.Org.Cold != 1 {
		t.Fatal(err, body)
	}
	if code, _ := b.call("PUT", "/v1/sprites/one", `{"clear_labels":true}`); code != 200 {
		t.Fatal(code)
	}
	if _, body := b.call("GET", "/v1/sprites/one", nil); !strings.Contains(body, `"labels":[]`) {
		t.Fatal(body)
	}
}

func TestGoSDKProbesTheVersionAndFindsNoControlChannel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	res, _, err := b.try("HEAD", "/v1/sprites/one/exec", nil)
	if err != nil || res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Sprite-Version"), "v0.0.1-rc") {
		t.Fatal(err, res)
	}
	if b.status("one") != emulator.Cold {
		t.Error("the probe woke it")
	}
	_, res, err = b.dial("/v1/sprites/one/control", nil)
	if err == nil || res.StatusCode != 404 {
		t.Fatal("control: ", err)
	}
}

func TestGoSDKExecSendsEOFAtOnceAndReadsOneByte(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	// sprites-go sorts its keys and sends stdin=false with an end of input.
	raw := "cmd=sh&cmd=-c&cmd=echo+hi%3B+exit+3&path=sh&stdin=false"
	q, _ := url.ParseQuery(raw)
	ws, res, err := b.dial("/v1/sprites/one/exec", q)
	if err != nil || res.Header.Get("X-Sprite-Capabilities") != "signal" {
		t.Fatal(err, res)
	}
	r := &run{b: b, ws: ws, exit: -1}
	r.send(4)
	if r.wait(); r.exit != 3 || r.out.String() != "hi\n" {
		t.Fatal(r.exit, r.out.String())
	}
}

func TestGoSDKStatusesAreExact(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	p := "/v1/sprites/one"
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/policy/network", `{"rules":[]}`, 204},
		{"PUT", "/fs/write?path=a&workingDir=/workspace&mode=0644&mkdirParents=true", "x", 200},
		{"POST", "/fs/rename", `{"source":"a","dest":"b","workingDir":"/workspace"}`, 200},
		{"POST", "/fs/copy", `{"source":"b","dest":"c","workingDir":"/workspace"}`, 200},
		{"POST", "/fs/chmod", `{"path":"c","workingDir":"/workspace","mode":"0755"}`, 200},
		{"GET", "/fs/list?path=/workspace&workingDir=/", "", 200},
		{"DELETE", "/fs/delete?path=c&workingDir=/workspace&recursive=false", "", 200},
		{"PUT", "/services/s?duration=0s", `{"cmd":"sleep","args":["1000"]}`, 200},
		{"POST", "/services/signal", `{"name":"s","signal":"CONT"}`, 204},
		{"DELETE", "/services/s", "", 204},
		{"POST", "/checkpoint", `{}`, 200},
		{"POST", "/upgrade", "", 204},
		{"DELETE", "", "", 204},
	} {
		if code, body := b.call(c.method, p+c.path, c.body); code != c.want {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, body)
		}
	}
}

func TestGoSDKListsAreArraysAtTheTop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	for _, path := range []string{"/checkpoints", "/services"} {
		res, body, err := b.try("GET", "/v1/sprites/one"+path, nil)
		var list []any
		if err != nil || json.Unmarshal([]byte(body), &list) != nil || strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %s %v", path, body, err)
		}
	}
}

func TestGoSDKKillTakes200AndThen410(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.open("one", command("sleep", "1000"))
	id := r.session()
	for _, want := range []int{200, 410} {
		if code, body := b.call("POST", "/v1/sprites/one/exec/"+id+"/kill?signal=TERM&timeout=0s", nil); code != want {
			t.Errorf("%d %s", code, body)
		}
	}
}

func TestGoSDKStaysConnectedByPings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.open("one", command("sleep", "1000"))
	r.session()
	ctx := r.ws.CloseRead(b.ctx())
	for range 3 {
		if err := r.ws.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGoSDKProxyIsRawAfterOneAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.open("one", command("python3", "-u", "-c", `
import socket
s=socket.socket(); s.bind(("127.0.0.1",0)); s.listen(); print(s.getsockname()[1])
c,_=s.accept(); d=c.recv(100); c.sendall(d.upper()); c.close()`))
	r.until("\n")
	port := strings.TrimSpace(r.out.String())
	ws, _, err := b.dial("/v1/sprites/one/proxy", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := b.ctx()
	_ = ws.Write(ctx, websocket.MessageText, []byte(`{"host":"localhost","port":`+port+`}`))
	_, hello, err := ws.Read(ctx)
	if err != nil || string(hello) != `{"status":"connected","target":"localhost:`+port+`"}` {
		t.Fatal(string(hello), err)
	}
	_ = ws.Write(ctx, websocket.MessageBinary, []byte("data"))
	kind, got, err := ws.Read(ctx)
	if err != nil || kind != websocket.MessageBinary || string(got) != "DATA" {
		t.Fatal(string(got), err)
	}
	if _, _, err := ws.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Fatal("end: ", err)
	}
	// Nothing listens on port 1: any status but connected, then the end.
	ws, _, err = b.dial("/v1/sprites/one/proxy", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = ws.Write(ctx, websocket.MessageText, []byte(`{"host":"localhost","port":1}`))
	if _, got, err := ws.Read(ctx); err != nil || strings.Contains(string(got), "connected\"") {
		t.Fatal(string(got), err)
	}
}

// Elixir

// exDecode is sprites-ex's view: it knows a four byte exit only, and takes the
// code of a text frame.
func exDecode(r *run) (code int, ok bool) {
	for _, m := range r.text {
		if c, has := m["code"].(float64); has && m["type"] == "exit" {
			return int(c), true
		}
	}
	return 0, false
}

func TestElixirSDKFindsTheCodeInTheTextFrameBehindTheExit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.open("one", url.Values{"cmd": {"sh", "-c", "exit 42"}, "path": {"sh"}, "stdin": {"false"}})
	for {
		if _, ok := exDecode(r); ok || !r.step() {
			break
		}
	}
	if code, ok := exDecode(r); !ok || code != 42 {
		t.Fatal(r.frames)
	}
	if n := len(r.frames); r.frames[n-2] != "3" || r.frames[n-1] != "text:exit" {
		t.Fatal("order: ", r.frames)
	}
	if err := r.ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal("it closes on its own: ", err)
	}
}

func TestElixirSDKAttachesByQuery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := command("sh", "-c", "echo mark; read x; exit 5")
	q.Set("stdin", "true")
	first := b.open("one", q)
	id := first.session()
	first.until("mark")
	for _, q := range []url.Values{
		{"session_id": {id}, "path": {""}, "cmd": {""}},
		{"id": {id}},
	} {
		r := b.open("one", q)
		if r.until("mark"); r.session() != id {
			t.Fatal(r.info)
		}
	}
	if b.Count("exec.attach", "one") != 2 {
		t.Error("the log calls them otherwise")
	}
}

func TestElixirSDKSendsModesAsNumbersAndDeletesTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.call("PUT", "/v1/sprites/one/fs/write?path=/workspace/f", "x")
	if code, body := b.call("POST", "/v1/sprites/one/fs/chmod", `{"path":"/workspace/f","workingDir":"/","mode":420}`); code != 200 || !strings.Contains(body, `"0644"`) {
		t.Fatal(code, body)
	}
	for _, want := range []int{204, 404} {
		if code, _ := b.call("DELETE", "/v1/sprites/one", nil); code != want {
			t.Fatal(code)
		}
	}
}

// Python

func TestPythonSDKAlwaysOpensStdinAndEndsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	q := command("cat")
	q.Set("stdin", "true")
	r := b.open("one", q)
	r.send(4)
	if r.wait(); r.exit != 0 || r.frames[0] != "text:session_info" {
		t.Fatal(r.exit, r.frames)
	}
}

func TestPythonSDKTakesASocketWithoutExitForANetworkError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	r := b.sh("one", "exit 0")
	if r.exit != 0 || !slices.Contains(r.frames, "3") {
		t.Fatal("an ordinary end has an exit frame: ", r.frames)
	}
	tty := b.open("one", url.Values{"cmd": {"sh", "-c", "exit 0"}, "tty": {"true"}, "stdin": {"true"}}).wait()
	if websocket.CloseStatus(tty.lastErr) != websocket.StatusNormalClosure {
		t.Fatal("a terminal that succeeded closes with 1000: ", tty.lastErr)
	}
}

func TestPythonSDKListsUntilHasMoreIsFalse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, n := range []string{"a", "b", "c"} {
		b.create(n)
	}
	token, seen := "", 0
	for range 5 {
		_, body := b.call("GET", "/v1/sprites?max_results=2&bulk_load=true&continuation_token="+token, nil)
		var page struct {
			Sprites []map[string]string
			HasMore bool    `json:"has_more"`
			Next    *string `json:"next_continuation_token"`
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatal(err, body)
		}
		seen += len(page.Sprites)
		if page.HasMore != (page.Next != nil) {
			t.Fatal("it would never stop: ", body)
		}
		if !page.HasMore {
			break
		}
		token = *page.Next
	}
	if seen != 3 {
		t.Fatal(seen)
	}
}

func TestPythonSDKMkdirWithoutParentsFailsWhenTheyAreMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	code, body := b.call("PUT", "/v1/sprites/one/fs/write?path=no/parent/.keep&workingDir=/workspace&mkdirParents=false", "")
	if code != 404 || !strings.Contains(body, `"code":"ENOENT"`) {
		t.Fatal(code, body)
	}
}

// All

func TestUnknownPathsAskForATokenFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, want := range map[string]int{"/v1/sprites/x/nothing": 401, "/v1/sprites": 401} {
		res, err := b.http.Get(b.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want || !strings.Contains(string(raw), `"error":"authentication failed"`) {
			t.Errorf("%s: %d %s", path, res.StatusCode, raw)
		}
	}
	if code, _ := b.call("GET", "/v1/sprites/x/nothing", nil); code != 404 {
		t.Error(code)
	}
}

func TestExecWithoutUpgradeIs400AndOnNobody404(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	if code, _ := b.call("GET", "/v1/sprites/one/proxy", nil); code != 400 {
		t.Error(code)
	}
	_, res, err := b.dial("/v1/sprites/none/exec", command("true"))
	if err == nil || res.StatusCode != 404 {
		t.Error(err)
	}
}

func TestHTTPExecChunksAreFramesOnTheWire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.sh("one", "true")
	c, err := net.Dial("tcp", strings.TrimPrefix(b.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	req, _ := http.NewRequest("POST", b.URL()+"/v1/sprites/one/exec?"+url.Values{"cmd": {"printf", "hi"}}.Encode(), nil)
	req.Header.Set("Authorization", "Bearer "+b.Token())
	req.Header.Set("Connection", "close")
	if err := req.Write(c); err != nil {
		t.Fatal(err)
	}
	raw, _ := io.ReadAll(c)
	_, body, _ := strings.Cut(string(raw), "\r\n\r\n")
	if body != "3\r\n\x01hi\r\n2\r\n\x03\x00\r\n0\r\n\r\n" {
		t.Fatalf("%q", body)
	}
}
