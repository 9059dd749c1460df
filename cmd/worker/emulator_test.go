package main

import (
	"cmp"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheEmulatorPrintsTwoLinesAndEndsOnASignal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	done := make(chan ended, 1)
	go func() { done <- r.run("emulator", "--instant") }()
	r.interrupt()
	got := <-done
	printed := strings.Split(strings.TrimSpace(got.out), "\n")
	if got.code != 0 || len(printed) != 2 || !strings.HasPrefix(printed[0], "SPRITES_API_URL=http://127.0.0.1:") || !strings.HasPrefix(printed[1], "SPRITES_API_TOKEN=") {
		t.Errorf("%s", got)
	}
}

// A fault by file, one by flag and the options must reach the server that the command starts.
func TestTheEmulatorsFlagsReachIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := filepath.Join(r.dir, "faults.json")
	if err := os.WriteFile(file, []byte(`[{"route":"sprite.get","do":"status","status":418}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs lockedBuffer
	done := make(chan int, 1)
	go func() {
		done <- run(t.Context(), r.cli(strings.NewReader(""), &out, &errs), []string{"emulator", "--instant", "--control", "--mutation", "list-shape",
			"--faults", file, "--fault", `{"route":"sprite.check","do":"status","status":507}`})
	}()
	<-r.listening
	url, token := printed(t, &out)
	for _, want := range []struct {
		method, path, body string
		upgrade            bool
		status             int
		answer             string
	}{
		{method: "POST", path: "/v1/sprites", body: `{"name":"one"}`, status: 201},
		{method: "GET", path: "/v1/sprites/one", status: 418},                        // --faults
		{method: "GET", path: "/v1/sprites/one/check", status: 507},                  // --fault
		{method: "GET", path: "/v1/sprites", status: 200, answer: "["},               // --mutation
		{method: "GET", path: "/v1/sprites/one/control", upgrade: true, status: 101}, // --control
	} {
		status, body := ask(t, token, want.method, url+want.path, want.body, want.upgrade)
		if status != want.status || !strings.HasPrefix(body, want.answer) {
			t.Errorf("%s %s: %d %s", want.method, want.path, status, body)
		}
	}
	r.interrupt()
	if code := <-done; code != 0 {
		t.Errorf("ended with %d: %s", code, errs.String())
	}
}

// printed waits for the emulator's two lines.
func printed(t *testing.T, out *lockedBuffer) (url, token string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); strings.Count(out.String(), "\n") < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the emulator does not say where it is: %q", out.String())
		}
	}
	for _, line := range strings.Split(out.String(), "\n") {
		url = cmp.Or(url, prefixed(line, "SPRITES_API_URL="))
		token = cmp.Or(token, prefixed(line, "SPRITES_API_TOKEN="))
	}
	return url, token
}

func prefixed(line, prefix string) string {
	rest, _ := strings.CutPrefix(line, prefix)
	if rest == line {
		return ""
	}
	return rest
}

// ask makes one call; a connection that was upgraded is closed at once.
func ask(t *testing.T, token, method, url, body string, upgrade bool) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if upgrade {
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} {
			req.Header.Set(k, v)
		}
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return res.StatusCode, ""
	}
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}
