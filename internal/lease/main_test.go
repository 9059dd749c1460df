package lease_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/lease"
)

func TestMain(m *testing.M) {
	if child := os.Getenv("LEASE_TEST_CHILD"); child != "" {
		os.Exit(runChild(child))
	}
	goleak.VerifyTestMain(m)
}

// server is a redis-server of this test, or a miniredis.
type server struct {
	url  string
	addr string
	cmd  *exec.Cmd // nil for miniredis
	mini *miniredis.Miniredis
	raw  *redis.Client // for looking behind the package's back
	dir  string
	args []string
}

// startReal runs a redis-server of its own. Where there is none the test is
// skipped, except in CI, where the proof is owed.
func startReal(t testing.TB, args ...string) *server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is not on PATH, and CI must not pass without it")
		}
		t.Skip("redis-server is not on PATH")
	}
	s := &server{dir: t.TempDir(), args: args}
	for try := 0; try < 5; try++ {
		port := freePort(t)
		s.addr = "127.0.0.1:" + strconv.Itoa(port)
		if s.start(t, path, port) {
			s.url = "redis://" + s.addr
			s.raw = redis.NewClient(&redis.Options{Addr: s.addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 4})
			t.Cleanup(func() { _ = s.raw.Close(); s.kill() })
			return s
		}
	}
	t.Fatal("redis-server did not start on five ports")
	return nil
}

// start waits until the server says that it is ready.
func (s *server) start(t testing.TB, path string, port int) bool {
	t.Helper()
	args := append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir}, s.args...)
	s.cmd = exec.Command(path, args...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan bool, 1)
	go func() { // ends with the process, which closes its stdout
		buf, seen := make([]byte, 4096), ""
		told := false
		for {
			n, err := out.Read(buf)
			if !told {
				seen += string(buf[:n])
				if strings.Contains(seen, "Ready to accept connections") {
					told = true
					ready <- true
				}
			}
			if err != nil {
				if !told {
					ready <- false
				}
				return
			}
		}
	}()
	select {
	case ok := <-ready:
		if !ok {
			_ = s.cmd.Wait()
		}
		return ok
	case <-time.After(20 * time.Second):
		t.Fatal("redis-server said nothing for 20 s")
		return false
	}
}

func (s *server) kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// restart kills the server and starts an empty one on the same port.
func (s *server) restart(t testing.TB) {
	t.Helper()
	s.kill()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(s.addr, ":")
	n, _ := strconv.Atoi(port)
	if !s.start(t, path, n) {
		t.Fatal("redis-server did not come back")
	}
}

func startMini(t testing.TB) *server {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{url: "redis://" + m.Addr(), addr: m.Addr(), mini: m}
	s.raw = redis.NewClient(&redis.Options{Addr: s.addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 4})
	t.Cleanup(func() { _ = s.raw.Close(); m.Close() })
	return s
}

// eachServer runs a test on miniredis and on a real server.
func eachServer(t *testing.T, f func(t *testing.T, s *server)) {
	t.Helper()
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); f(t, startMini(t)) })
	t.Run("redis-server", func(t *testing.T) { t.Parallel(); f(t, startReal(t)) })
}

var prefixes atomic.Int64

// config is for tests: no quarantine, a prefix of its own, calls with time to
// spare on a busy machine.
func (s *server) config() lease.Config {
	return lease.Config{
		URL: s.url, Prefix: fmt.Sprintf("{t%d}", prefixes.Add(1)), TTL: 12 * time.Second, CallTimeout: 2900 * time.Millisecond, Quarantine: -1,
	}
}

func open(t testing.TB, cfg lease.Config) *lease.Manager {
	t.Helper()
	m, err := lease.Open(context.Background(), cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return m
}

// run starts the manager's background work until the test ends.
func run(t testing.TB, m *lease.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// ask is one user's request for one of limit slots.
func ask(id string, limit int) lease.Request {
	return lease.Request{
		ID: id, Kind: lease.KindExec, Tenant: "acme", User: "ann", Job: id,
		Scopes: []lease.Scope{lease.UserScope(lease.KindExec, "acme", "ann", limit)},
	}
}

func must(t testing.TB, m *lease.Manager, r lease.Request) *lease.Lease {
	t.Helper()
	l, err := m.Acquire(context.Background(), r)
	if err != nil {
		t.Fatalf("acquire %s: %v", r.ID, err)
	}
	return l
}

func inUse(t testing.TB, m *lease.Manager, s lease.Scope) int {
	t.Helper()
	n, err := m.InUse(context.Background(), s)
	if err != nil {
		t.Fatalf("in use: %v", err)
	}
	return n
}

// eventually polls a condition that no event announces.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-limit.C:
			t.Fatalf("never came true: %s", what)
		case <-tick.C:
		}
	}
}
