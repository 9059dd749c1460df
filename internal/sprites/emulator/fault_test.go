package emulator_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func (b *bench) faults(f ...emulator.Fault) {
	b.t.Helper()
	if err := b.AddFaults(f...); err != nil {
		b.t.Fatal(err)
	}
}

func TestStatusFaultAnswersWithoutEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.faults(emulator.Fault{
		Route: "sprite.create", Do: emulator.FaultStatus, Status: 429, Times: 1,
		Headers: map[string]string{"Retry-After": "9"}, Body: `{"error":"sprite_creation_rate_limited"}`,
	})
	res, body, err := b.try("POST", "/v1/sprites", `{"name":"one"}`)
	if err != nil || res.StatusCode != 429 || res.Header.Get("Retry-After") != "9" || !strings.Contains(body, "rate_limited") {
		t.Fatal(res, body, err)
	}
	if len(b.Sprites()) != 0 {
		t.Fatal("it was created")
	}
	b.create("one") // once only
}

func TestLostResponseTakesEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.faults(emulator.Fault{Do: emulator.FaultLost, Times: 1, Route: "sprite.create"})
	if res, body, err := b.try("POST", "/v1/sprites", `{"name":"one"}`); err == nil {
		t.Fatal("answered: ", res.Status, body)
	}
	if code, _ := b.call("POST", "/v1/sprites", `{"name":"one"}`); code != 409 {
		t.Fatal(code)
	}
}

func TestLostHandshakeStartsTheCommand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.faults(emulator.Fault{Do: emulator.FaultLost, Times: 1, Route: "exec.ws"})
	if _, _, err := b.dial("/v1/sprites/one/exec", command("sh", "-c", `echo ran > "$1"`, "sh", "/workspace/f")); err == nil {
		t.Fatal("the handshake was answered")
	}
	b.eventually("the command's effect", func() bool {
		return b.sh("one", `cat "$1"`, "/workspace/f").out.String() == "ran\n"
	})
}

func TestDropWakeHitsTheFirstHandshakeAfterEachSleepOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.faults(emulator.Fault{Do: emulator.FaultDropWake})
	for range 2 {
		if _, _, err := b.dial("/v1/sprites/one/exec", command("true")); err == nil {
			t.Fatal("the first handshake was not dropped")
		}
		b.eventually("awake", func() bool { return b.status("one") == emulator.Running })
		if r := b.sh("one", "exit 3"); r.exit != 3 {
			t.Fatal(r.exit, r.lastErr)
		}
		if err := b.Sleep("one"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoExitClosesNormallyAfterAllOutput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.faults(emulator.Fault{Do: emulator.FaultNoExit, Route: "exec.ws"})
	r := b.sh("one", "echo all")
	if r.exit != -1 || r.out.String() != "all\n" || websocket.CloseStatus(r.lastErr) != websocket.StatusNormalClosure {
		t.Fatal(r.exit, r.out.String(), r.lastErr)
	}
}

func TestEmptyClosesBeforeAnyFrame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.faults(emulator.Fault{Do: emulator.FaultEmpty, Route: "exec.ws"})
	r := b.sh("one", "echo never")
	if len(r.frames) != 0 || websocket.CloseStatus(r.lastErr) != websocket.StatusNormalClosure {
		t.Fatal(r.frames, r.lastErr)
	}
}

func TestDropAfterCutsInTheMiddle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.faults(
		emulator.Fault{Do: emulator.FaultDropAfter, Bytes: 1000, Route: "exec.ws"},
		emulator.Fault{Do: emulator.FaultDropAfter, Bytes: 10, Route: "fs.read"},
	)
	r := b.sh("one", "head -c 100000 /dev/zero")
	if r.out.Len() != 1000 || r.exit != -1 || websocket.CloseStatus(r.lastErr) != -1 {
		t.Fatal(r.out.Len(), r.exit, r.lastErr)
	}
	b.call("PUT", "/v1/sprites/one/fs/write?path=/workspace/f", strings.Repeat("x", 100))
	_, body, err := b.try("GET", "/v1/sprites/one/fs/read?path=/workspace/f", nil)
	if body != strings.Repeat("x", 10) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%q %v", body, err)
	}
}

func TestSplitSendsSingleBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.faults(emulator.Fault{Do: emulator.FaultSplit, Route: "exec.ws"})
	r := b.sh("one", "printf abcdef")
	if r.out.String() != "abcdef" || r.exit != 0 || len(r.frames) != 8 { // session_info, six bytes, exit
		t.Fatal(r.out.String(), r.frames)
	}
}

func TestFloodComesBeforeTheOutput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.faults(emulator.Fault{Do: emulator.FaultFlood, Bytes: 100_000, Route: "exec.ws"})
	r := b.sh("one", "echo own")
	if r.out.Len() != 100_004 || r.exit != 0 {
		t.Fatal(r.out.Len(), r.exit)
	}
}

func TestDropEndsTheConnectionWithoutEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.faults(emulator.Fault{Do: emulator.FaultDrop, Route: "exec.ws", Times: 1}, emulator.Fault{Do: emulator.FaultDrop, Route: "sprite.create", Times: 1})
	if _, _, err := b.dial("/v1/sprites/one/exec", command("sh", "-c", `echo ran > "$1"`, "sh", "/workspace/f")); err == nil {
		t.Error("the handshake was answered")
	}
	if _, _, err := b.try("POST", "/v1/sprites", `{"name":"two"}`); err == nil {
		t.Error("the create was answered")
	}
	if b.status("one") != emulator.Cold || len(b.Sprites()) != 1 {
		t.Error("a dropped call had an effect")
	}
	if r := b.sh("one", `cat "$1"`, "/workspace/f"); r.exit == 0 {
		t.Error("the command ran")
	}
}

// instantClock ends a wait of hours at once and remembers how long it was to be.
type instantClock struct {
	mu    sync.Mutex // protects waits
	waits []time.Duration
}

func (c *instantClock) Now() time.Time { return time.Now() }

func (c *instantClock) AfterFunc(d time.Duration, f func()) emulator.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d > time.Hour {
		c.waits = append(c.waits, d)
		d = 0
	}
	return time.AfterFunc(d, f)
}

func TestDelaysAddUpBeforeTheCallIsHandled(t *testing.T) {
	t.Parallel()
	clock := &instantClock{}
	b := setup(t, func(c *emulator.Config) { c.Clock = clock })
	b.faults(
		emulator.Fault{Do: emulator.FaultDelay, Delay: 2 * time.Hour, Route: "sprite.*"},
		emulator.Fault{Do: emulator.FaultDelay, Delay: 5 * time.Hour, Route: "sprite.create"},
		emulator.Fault{Do: emulator.FaultStatus, Status: 503, Route: "sprite.create"},
	)
	if code, _ := b.call("POST", "/v1/sprites", `{"name":"one"}`); code != 503 {
		t.Error("the delay takes the place of another fault: ", code)
	}
	if len(clock.waits) != 1 || clock.waits[0] != 7*time.Hour {
		t.Error("waited ", clock.waits)
	}
}

// hurriedClock lets half a minute pass at once.
type hurriedClock struct{}

func (*hurriedClock) Now() time.Time { return time.Now() }

func (*hurriedClock) AfterFunc(d time.Duration, f func()) emulator.Timer {
	if d == 30*time.Second {
		d = 0
	}
	return time.AfterFunc(d, f)
}

// The refusals that clients must tell apart, each with its body and its headers.
func TestEveryRefusalCanBeSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, f := range []emulator.Fault{
		{Status: 429, Body: `{"error":"sprite_creation_rate_limited","retry_after_seconds":42}`},
		{Status: 429, Body: `{"error":"concurrent_sprite_limit_exceeded"}`, Headers: map[string]string{"Retry-After": "7"}},
		{Status: 409, Body: `{"error":"A sprite named 'one' already exists."}`},
		{Status: 401, Body: `{"error":"authentication failed"}`},
		{Status: 404, Body: "sprite not found"},
		{Status: 410},
		{Status: 500, Body: `{"error":"failed to retrieve sprite"}`},
		{Status: 502, Body: "<html>bad gateway</html>", Headers: map[string]string{"Content-Type": "text/html"}},
		{Status: 503, Headers: map[string]string{"Retry-After": "3"}},
	} {
		f.Do, f.Route, f.Times = emulator.FaultStatus, "sprite.get", 1
		b.faults(f)
		res, body, err := b.try("GET", "/v1/sprites/one", nil)
		if err != nil || res.StatusCode != f.Status || body != f.Body {
			t.Errorf("%d %s: got %v %q %v", f.Status, f.Body, res, body, err)
			continue
		}
		for k, v := range f.Headers {
			if res.Header.Get(k) != v {
				t.Errorf("%d: %s is %q", f.Status, k, res.Header.Get(k))
			}
		}
	}
}

func TestHangEndsWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.faults(emulator.Fault{Do: emulator.FaultHang, Route: "sprite.list"})
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", b.URL()+"/v1/sprites", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.Token())
	done := make(chan error, 1)
	go func() {
		res, err := b.http.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		done <- err
	}()
	b.eventually("the call is in the log", func() bool { return b.Count("sprite.list", "") == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestSameSeedGivesTheSameRun(t *testing.T) {
	t.Parallel()
	play := func(seed int64) []emulator.Action {
		b := setup(t, func(c *emulator.Config) {
			c.Seed = seed
			c.Faults = []emulator.Fault{{Route: "sprite.get", Do: emulator.FaultStatus, Status: 503, Probability: 0.5}}
		})
		b.create("one")
		for range 40 {
			b.call("GET", "/v1/sprites/one", nil)
		}
		var got []emulator.Action
		for _, c := range b.Calls() {
			got = append(got, c.Fault)
		}
		return got
	}
	first := play(7)
	if !reflect.DeepEqual(first, play(7)) {
		t.Error("the same seed differs")
	}
	if reflect.DeepEqual(first, play(8)) {
		t.Error("another seed does not")
	}
}

// Which of several clients comes first is the scheduler's to say; what happens to each is the seed's.
func TestSameSeedGivesTheSameRunToConcurrentClients(t *testing.T) {
	t.Parallel()
	play := func() map[string]string {
		b := setup(t, func(c *emulator.Config) {
			c.Seed = 7
			c.Faults = []emulator.Fault{{Route: "sprite.get", Do: emulator.FaultStatus, Status: 418, Probability: 0.5}}
		})
		var clients sync.WaitGroup
		for _, name := range []string{"one", "two", "three"} {
			clients.Go(func() {
				for range 20 {
					_, _, _ = b.try("GET", "/v1/sprites/"+name, nil)
				}
			})
		}
		clients.Wait()
		got := map[string]string{}
		for _, c := range b.Calls() {
			got[c.Sprite] += map[int]string{418: "x"}[c.Status] + "."
		}
		return got
	}
	first := play()
	for range 3 {
		if again := play(); !reflect.DeepEqual(first, again) {
			t.Fatalf("%v and %v", first, again)
		}
	}
	if first["one"] == first["two"] {
		t.Error("two Sprites share their luck")
	}
}

func TestARulesNthCallCountsWhateverActedBefore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	for i, status := range []int{401, 410, 503} {
		b.faults(emulator.Fault{Route: "sprite.get", Nth: i + 1, Do: emulator.FaultStatus, Status: status})
	}
	var codes []int
	for range 4 {
		code, _ := b.call("GET", "/v1/sprites/one", nil)
		codes = append(codes, code)
	}
	if !reflect.DeepEqual(codes, []int{401, 410, 503, 200}) {
		t.Fatal(codes)
	}
}

func TestEmptyAndFloodWorkOnAnExecWithoutASocket(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.faults(
		emulator.Fault{Route: "exec.http", Nth: 1, Do: emulator.FaultEmpty},
		emulator.Fault{Route: "exec.http", Nth: 2, Do: emulator.FaultFlood, Bytes: 5000},
	)
	if res, body, err := b.try("POST", "/v1/sprites/one/exec?cmd=touch&cmd=/workspace/ran", nil); err != nil || res.StatusCode != 200 || body != "" {
		t.Errorf("empty: %v %q %v", res, body, err)
	}
	_, body, err := b.try("POST", "/v1/sprites/one/exec?cmd=echo&cmd=hi", nil)
	if n := strings.Count(body, "x"); err != nil || n != 5000 || !strings.HasSuffix(body, "\x01hi\n\x03\x00") {
		t.Errorf("flood: %d bytes, %q, %v", n, body[max(0, len(body)-10):], err)
	}
	b.eventually("the empty one's command ran", func() bool { return b.sh("one", `test -e "$1"`, "/workspace/ran").exit == 0 })
}

// writes counts the pieces in which an answer comes.
type writes struct {
	net.Conn
	n *atomic.Int64
}

func (w writes) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p[:min(len(p), 1<<10)])
	if n == 1 {
		w.n.Add(1)
	}
	return n, err
}

func TestASplitAnswerDoesNotSplitTheNextOnItsConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	var single atomic.Int64
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return writes{conn, &single}, err
	}}
	defer transport.CloseIdleConnections()
	b.http = &http.Client{Transport: transport}
	b.faults(emulator.Fault{Route: "sprite.get", Nth: 1, Do: emulator.FaultSplit})
	b.call("GET", "/v1/sprites/one", nil)
	single.Store(0) // the kernel may have put some together again: how many there were says nothing
	b.call("GET", "/v1/sprites/one", nil)
	if n := single.Load(); n > 1 {
		t.Errorf("%d single bytes", n)
	}
}

func TestAPathThatIsNotCleanIsACallLikeAnyOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	for i, path := range []string{"/v1//sprites/one", "/v1/sprites/one/../two", "/v1/sprites/./one"} {
		if code, _ := b.call("GET", path, nil); code != 404 || b.Count("unknown", "") != i+1 {
			t.Errorf("%s: %d, %d counted", path, code, b.Count("unknown", ""))
		}
	}
}

func TestNthAndTimesCountMatchingCallsOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.create("two")
	b.faults(emulator.Fault{Route: "sprite.get", Sprite: "one", Nth: 2, Do: emulator.FaultStatus})
	var codes []int
	for _, name := range []string{"one", "two", "one", "one"} {
		code, _ := b.call("GET", "/v1/sprites/"+name, nil)
		codes = append(codes, code)
	}
	if !reflect.DeepEqual(codes, []int{200, 200, 500, 200}) {
		t.Fatal(codes)
	}
}

func TestAdminRoutesNeedTheTokenAndDoWhatTheMethodsDo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.sh("one", "true")
	res, err := b.http.Get(b.URL() + "/_emulator/calls")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 401 {
		t.Error("no token: ", res.StatusCode)
	}
	if code, _ := b.call("POST", "/_emulator/sprites/one/sleep", nil); code != 204 || b.status("one") != emulator.Warm {
		t.Error("sleep: ", code, b.status("one"))
	}
	if code, _ := b.call("POST", "/_emulator/sprites/none/cold", nil); code != 404 {
		t.Error("cold of nobody: ", code)
	}
	if code, body := b.call("POST", "/_emulator/faults", `{"route":"sprite.get","do":"status","status":503}`); code != 200 {
		t.Error(body)
	}
	if code, _ := b.call("GET", "/v1/sprites/one", nil); code != 503 {
		t.Error("fault: ", code)
	}
	if code, _ := b.call("DELETE", "/_emulator/faults", nil); code != 204 {
		t.Error("clear: ", code)
	}
	if code, _ := b.call("GET", "/v1/sprites/one", nil); code != 200 {
		t.Error("a cleared fault bites: ", code)
	}
	for action, want := range map[string]int{"cold": 204, "kill": 204, "explode": 404} {
		if code, _ := b.call("POST", "/_emulator/sprites/one/"+action, nil); code != want {
			t.Error(action, ": ", code)
		}
	}
	if _, body := b.call("GET", "/_emulator/connections", nil); !strings.Contains(body, `"sockets":`) {
		t.Error(body)
	}
	if _, body := b.call("GET", "/_emulator/sprites", nil); !strings.Contains(body, `"status":"cold"`) {
		t.Error(body)
	}
	if code, _ := b.call("POST", "/_emulator/faults", `{"do":"explode"}`); code != 400 {
		t.Error("bad fault: ", code)
	}
	if _, body := b.call("GET", "/_emulator/calls?count&route=exec.*&sprite=one", nil); strings.TrimSpace(body) != `{"count":1}` {
		t.Error("count: ", body)
	}
	_, body := b.call("GET", "/_emulator/calls", nil)
	var calls []emulator.Call
	if err := json.Unmarshal([]byte(body), &calls); err != nil || len(calls) != len(b.Calls()) {
		t.Error(err, body)
	}
	if b.Count("exec.ws", "one") != 1 || b.Count("exec.*", "") != 1 || b.Count("", "") != len(calls) {
		t.Error("counts: ", b.Count("exec.ws", "one"), b.Count("", ""))
	}
}

func TestCreationLimitHintsInBodyAndHeader(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.CreateLimit = 1 })
	b.create("one")
	res, body, err := b.try("POST", "/v1/sprites", `{"name":"two"}`)
	if err != nil || res.StatusCode != 429 || res.Header.Get("Retry-After") == "" || !strings.Contains(body, `"retry_after_seconds":`) {
		t.Fatal(res, body, err)
	}
}

func TestRunningLimitRefusesTheWakeNotTheSleeper(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *emulator.Config) { c.RunningLimit = 1 })
	b.create("one")
	b.create("two")
	b.sh("one", "true")
	_, res, err := b.dial("/v1/sprites/two/exec", command("true"))
	if err == nil || res.StatusCode != 429 {
		t.Fatal(err)
	}
	if err := b.Sleep("one"); err != nil {
		t.Fatal(err)
	}
	if r := b.sh("two", "exit 2"); r.exit != 2 {
		t.Fatal(r.exit)
	}
}

func TestParseFaultsTakesListsAndLinesAndRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	got, err := emulator.ParseFaults(strings.NewReader(`[{"do":"delay","delay":"2s"}]
{"do":"drop","route":"exec.*","nth":1}`))
	if err != nil || len(got) != 2 || got[0].Delay != 2*time.Second || got[1].Route != "exec.*" {
		t.Fatal(got, err)
	}
	for _, bad := range []string{
		`{"do":"nothing"}`, `{"do":"drop","nht":1}`, `{"do":"delay","delay":"soon"}`, `[`, `3`, `{"do":"drop","route":"["}`,
		`{"do":"drop","probability":2}`, `{"do":"status","status":42}`, `{"do":"drop","nth":-1}`,
	} {
		if got, err := emulator.ParseFaults(strings.NewReader(bad)); !errors.Is(err, emulator.ErrFault) {
			t.Errorf("%s: %v, %v", bad, got, err)
		}
	}
}

func FuzzParseFaults(f *testing.F) {
	f.Add(`[{"do":"delay","delay":"2s"}]`)
	f.Add(`{"do":"status","status":429,"headers":{"a":"b"}}{"do":"drop"}`)
	f.Fuzz(func(t *testing.T, text string) {
		faults, err := emulator.ParseFaults(strings.NewReader(text))
		if err != nil || len(faults) == 0 {
			return
		}
		raw, err := json.Marshal(faults)
		if err != nil {
			t.Fatal(err)
		}
		again, err := emulator.ParseFaults(strings.NewReader(string(raw)))
		if err != nil || len(again) != len(faults) {
			t.Fatalf("%s: %v", raw, err)
		}
	})
}
