package emulator_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// say writes raw bytes to the server and gives the status of its answer, 0 when it just closed.
func (b *bench) say(text string) int {
	b.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(b.URL(), "http://"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if deadline, ok := b.ctx().Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	_, _ = io.WriteString(c, strings.ReplaceAll(text, "TOKEN", b.Token()))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// A client that speaks nonsense is refused, and the next one is served as before.
func TestAHostileClientIsRefusedAndHarmsNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.Control = true })
	b.create("one")
	const auth = "Host: x\r\nAuthorization: Bearer TOKEN\r\n"
	for name, tt := range map[string]struct {
		text string
		want []int
	}{
		"not HTTP":               {"\x16\x03\x01\x00\x00\r\n\r\n", []int{400}},
		"headers over a MiB":     {"GET /v1/sprites HTTP/1.1\r\n" + auth + "X: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", []int{431, 0}},
		"a foreign host":         {"GET /v1/sprites HTTP/1.1\r\nHost: evil.example\r\n\r\n", []int{401}},
		"two lengths":            {"POST /v1/sprites HTTP/1.1\r\n" + auth + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", []int{400}},
		"a cut upgrade":          {"GET /v1/sprites/one/exec?cmd=true HTTP/1.1\r\n" + auth + "Upgrade: websocket\r\n\r\n", []int{400, 426}},
		"a name that climbs":     {"GET /v1/sprites/..%2f..%2fetc HTTP/1.1\r\n" + auth + "\r\n", []int{404}},
		"a body that is no JSON": {"POST /v1/sprites HTTP/1.1\r\n" + auth + "Content-Length: 3\r\n\r\n[[[", []int{400}},
	} {
		got := b.say(tt.text)
		if fmt.Sprint(tt.want) != fmt.Sprint([]int{got}) && (len(tt.want) < 2 || got != tt.want[0] && got != tt.want[1]) {
			t.Errorf("%s: %d, want one of %v", name, got, tt.want)
		}
	}
	for path, body := range map[string]string{
		"/v1/sprites":                     `{"name":"` + strings.Repeat("n", 2<<20) + `"}`,
		"/v1/sprites/one/policy/network":  `{"rules":[{"domain":"` + strings.Repeat("d", 2<<20) + `","action":"deny"}]}`,
		"/v1/sprites/one/services/signal": `[`,
		"/v1/sprites/one/fs/copy":         `{"source":7}`,
		"/v1/sprites/one/checkpoint":      `{`,
		"/_emulator/faults":               strings.Repeat("[", 1<<20),
	} {
		if code, _ := b.call("POST", path, body); code != 400 && code != 413 {
			t.Errorf("%s: %d", path, code)
		}
	}
	if r := b.sh("one", "exit 5"); r.exit != 5 || len(b.Sprites()) != 1 {
		t.Errorf("afterwards: %d, %d sprites", r.exit, len(b.Sprites()))
	}
}

// Nonsense over a socket ends that socket at most.
func TestHostileFramesEndTheirOwnSocketAtMost(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.Control = true })
	b.create("one")
	junk := [][]byte{{}, {0}, {9}, {3, 7}, {255, 255}, []byte(`{"type":`), []byte(`control:{"type":"op.start","op":"exec","args":{"cmd":7}}`),
		[]byte(`{"type":"signal","signal":"NONE"}`), []byte(`{"type":"resize","cols":-1,"rows":99999999}`), []byte(`{"host":"","port":-7}`),
		[]byte(`{"type":"subscribe","paths":["../../.."]}`), []byte("control:{}")}
	for _, path := range []string{"/exec?cmd=cat&path=cat&stdin=true", "/exec?cmd=cat&path=cat&tty=true", "/control", "/proxy", "/ports/watch", "/fs/watch"} {
		for _, kind := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
			at, query, _ := strings.Cut(path, "?")
			q, _ := url.ParseQuery(query)
			ws, _, err := b.dial("/v1/sprites/one"+at, q)
			if err != nil {
				t.Fatal(path, err)
			}
			for _, msg := range junk {
				if ws.Write(b.ctx(), kind, msg) != nil {
					break
				}
			}
			_ = ws.Write(b.ctx(), kind, make([]byte, 11<<20)) // over the limit of 10 MiB
			_ = ws.CloseNow()
		}
	}
	if r := b.sh("one", "exit 5"); r.exit != 5 {
		t.Errorf("afterwards: %d", r.exit)
	}
	b.eventually("no socket is left", func() bool { return b.Connections() == 0 })
}
