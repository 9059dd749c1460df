package compare

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/wakebus/wakebus/internal/lease"
)

// pair takes and gives back once; worker and i make its names its own.
type pair func(ctx context.Context, worker, i int) error

// BenchmarkPair runs all contenders in turn, on one server, with equal pools:
// same-run ratios count, absolute figures are the machine's.
func BenchmarkPair(b *testing.B) {
	addr := start(b)
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64, Protocol: 2, MaxRetries: -1, ContextTimeoutEnabled: true})
	b.Cleanup(func() { _ = client.Close() })
	m, err := lease.Open(context.Background(), lease.Config{URL: "redis://" + addr, Quarantine: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close() })
	lock := redislock.New(client)
	sync := redsync.New(goredis.NewPool(client))

	contenders := []struct {
		name string
		pair pair
	}{
		{"lease-3-scopes", func(ctx context.Context, worker, i int) error { return leases(ctx, m, worker, i, 3) }},
		{"lease-1-scope", func(ctx context.Context, worker, i int) error { return leases(ctx, m, worker, i, 1) }},
		{"redsync-1-mutex", func(ctx context.Context, worker, i int) error {
			mu := sync.NewMutex(fmt.Sprintf("redsync:%d:%d", worker, i), redsync.WithExpiry(30*time.Second))
			if err := mu.TryLockContext(ctx); err != nil {
				return err
			}
			_, err := mu.UnlockContext(ctx)
			return err
		}},
		{"redislock-1-mutex", func(ctx context.Context, worker, i int) error { return locks(ctx, lock, worker, i, 1) }},
		{"redislock-3-in-turn", func(ctx context.Context, worker, i int) error { return locks(ctx, lock, worker, i, 3) }},
	}
	for _, n := range []int{1, 16, 64} {
		for _, c := range contenders {
			b.Run(fmt.Sprintf("%s/goroutines=%d", c.name, n), func(b *testing.B) { spread(b, n, c.pair) })
		}
	}
}

func leases(ctx context.Context, m *lease.Manager, worker, i, scopes int) error {
	all := []lease.Scope{
		lease.UserScope(lease.KindExec, "acme", fmt.Sprintf("u%d", worker), 1000),
		lease.TenantScope(lease.KindExec, "acme", 10_000), lease.GlobalScope(100_000),
	}
	l, err := m.Acquire(ctx, lease.Request{
		ID: fmt.Sprintf("acme.j%d.0.1", i), Kind: lease.KindExec, Tenant: "acme", User: "ann", Scopes: all[:scopes],
	})
	if err != nil {
		return err
	}
	ok, err := l.Release(ctx)
	if err == nil && !ok {
		return fmt.Errorf("not held")
	}
	return err
}

// locks takes n locks one after the other: three scopes without atomicity.
func locks(ctx context.Context, c *redislock.Client, worker, i, n int) error {
	for k := range n {
		l, err := c.Obtain(ctx, fmt.Sprintf("redislock:%d:%d:%d", worker, i, k), 30*time.Second, nil)
		if err != nil {
			return err
		}
		defer l.Release(ctx)
	}
	return nil
}

func spread(b *testing.B, n int, f pair) {
	var next atomic.Int64
	done := make(chan error, n)
	b.ResetTimer()
	for worker := range n {
		go func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := f(context.Background(), worker, int(i)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range n {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

func start(b *testing.B) (addr string) {
	b.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skip("redis-server is not on PATH")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr = ln.Addr().String()
	_ = ln.Close()
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", b.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			return addr
		}
	}
	b.Fatal("redis-server did not start")
	return ""
}
