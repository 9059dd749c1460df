package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// startAdmin runs an admin server for the test and returns its address and its log.
func startAdmin(t *testing.T, cfg telemetry.AdminConfig) (string, *telemetry.Log) {
	t.Helper()
	log := newLog(&bytes.Buffer{}, telemetry.LogConfig{})
	admin, err := telemetry.NewAdmin(log, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- admin.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("admin ended with %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return admin.URL(), log
}

func get(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func TestMetricsShowTheBuildAndTheProcess(t *testing.T) {
	t.Parallel()
	build := telemetry.Build{Version: "v9.9.9", Commit: "abc", Go: "go1"}
	url, _ := startAdmin(t, telemetry.AdminConfig{Gatherer: telemetry.NewRegistry(build), Build: &build})
	status, body := get(t, "GET", url+"/metrics", "")
	if status != 200 || !strings.Contains(body, `wakebus_build_info{commit="abc",go="go1",version="v9.9.9"} 1`) || !strings.Contains(body, "go_goroutines") {
		t.Errorf("%d %s", status, body)
	}
	if _, body := get(t, "GET", url+"/version", ""); body != `{"version":"v9.9.9","commit":"abc","go":"go1"}`+"\n" {
		t.Errorf("version says %s", body)
	}
}

func TestReadinessAsksEveryCheckAndNamesThoseThatFail(t *testing.T) {
	t.Parallel()
	var failing error
	url, _ := startAdmin(t, telemetry.AdminConfig{Checks: map[string]telemetry.Check{
		"nats":  func(context.Context) error { return nil },
		"redis": func(context.Context) error { return failing },
	}})
	if status, body := get(t, "GET", url+"/readyz", ""); status != 200 || body != "ok\n" {
		t.Errorf("ready: %d %s", status, body)
	}
	failing = errors.New("is away")
	if status, body := get(t, "GET", url+"/readyz", ""); status != 503 || body != "redis: is away\n" {
		t.Errorf("not ready: %d %s", status, body)
	}
	if status, _ := get(t, "GET", url+"/livez", ""); status != 200 {
		t.Errorf("a process that is not ready is not dead: %d", status)
	}
}

func TestACheckThatHangsIsCutByTheTimeout(t *testing.T) {
	t.Parallel()
	url, _ := startAdmin(t, telemetry.AdminConfig{CheckTimeout: 1, Checks: map[string]telemetry.Check{
		"stuck": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	}})
	if status, body := get(t, "GET", url+"/readyz", ""); status != 503 || !strings.HasPrefix(body, "stuck: ") {
		t.Errorf("%d %s", status, body)
	}
}

func TestTheLogLevelIsReadAndChangedOverHTTP(t *testing.T) {
	t.Parallel()
	url, log := startAdmin(t, telemetry.AdminConfig{})
	if _, body := get(t, "GET", url+"/loglevel", ""); body != "info\n" {
		t.Errorf("says %q", body)
	}
	if status, _ := get(t, "PUT", url+"/loglevel", "debug\n"); status != 200 || log.Level() != config.LevelDebug {
		t.Errorf("%d, now %s", status, log.Level())
	}
	for _, bad := range []string{"", "loud", strings.Repeat("debug", 100)} {
		if status, _ := get(t, "PUT", url+"/loglevel", bad); status != 400 || log.Level() != config.LevelDebug {
			t.Errorf("%q: %d, now %s", bad, status, log.Level())
		}
	}
}

func TestProfilesAndChangesAreForLoopbackOnly(t *testing.T) {
	t.Parallel()
	outside := outsideAddress(t)
	url, log := startAdmin(t, telemetry.AdminConfig{Addr: "0.0.0.0:0"})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	near, far := "http://127.0.0.1:"+port, "http://"+net.JoinHostPort(outside, port)
	if status, _ := get(t, "GET", near+"/debug/pprof/goroutine?debug=1", ""); status != 200 {
		t.Errorf("from loopback: %d", status)
	}
	for path, method := range map[string]string{"/debug/pprof/": "GET", "/debug/pprof/heap": "GET", "/debug/pprof/trace": "GET", "/loglevel": "PUT"} {
		if status, _ := get(t, method, far+path, "debug"); status != 403 || log.Level() != config.LevelInfo {
			t.Errorf("%s %s from outside: %d", method, path, status)
		}
	}
	if status, _ := get(t, "GET", far+"/metrics", ""); status != 200 {
		t.Errorf("metrics from outside: %d", status)
	}
	if status, _ := get(t, "GET", near+"/debug/pprof/cmdline", ""); status != 404 {
		t.Errorf("the command line is shown: %d", status)
	}
}

// outsideAddress is an own address of this machine that is not loopback.
func outsideAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	t.Skip("this machine has no address beside loopback")
	return ""
}

func TestAnAddressInUseIsAnErrorAtTheStart(t *testing.T) {
	t.Parallel()
	url, log := startAdmin(t, telemetry.AdminConfig{})
	if _, err := telemetry.NewAdmin(log, telemetry.AdminConfig{Addr: strings.TrimPrefix(url, "http://")}); err == nil {
		t.Error("listens twice")
	}
}
