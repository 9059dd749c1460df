package compare

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
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

var (
	rounds = flag.Int("rounds", 3, "how often each contender runs; medians count")
	period = flag.Duration("period", 500*time.Millisecond, "how long one run takes")
)

// TestPairsPerSecond runs all contenders in turn, round by round, on one
// server, with equal pools, and prints medians: ratios of the same rounds
// count, absolute figures are the machine's. It judges nothing.
func TestPairsPerSecond(t *testing.T) {
	addr, pid := start(t)
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64, Protocol: 2, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	m, err := lease.Open(context.Background(), lease.Config{URL: "redis://" + addr, Quarantine: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	all := contenders(m, client)
	for _, n := range []int{1, 16, 64} {
		rates, ratios, ours, servers := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
		for range *rounds {
			base := 0.0
			for _, c := range all {
				cpu, serverCPU := usage(t), serverUsage(t, pid)
				rate, pairs := spread(t, n, c.pair)
				ours[c.name] = append(ours[c.name], (usage(t)-cpu).Seconds()*1e6/pairs)
				servers[c.name] = append(servers[c.name], (serverUsage(t, pid)-serverCPU).Seconds()*1e6/pairs)
				if base == 0 {
					base = rate // the lease with three scopes
				}
				rates[c.name] = append(rates[c.name], rate)
				ratios[c.name] = append(ratios[c.name], base/rate)
			}
		}
		for _, c := range all {
			t.Logf("goroutines=%-3d %-20s %7.0f pairs/s   lease of 3 scopes / this = %.2f   cpu us a pair: client %.0f, server %.0f",
				n, c.name, median(rates[c.name]), median(ratios[c.name]), median(ours[c.name]), median(servers[c.name]))
		}
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

type contender struct {
	name string
	pair pair
}

func contenders(m *lease.Manager, client *redis.Client) []contender {
	lock := redislock.New(client)
	sync := redsync.New(goredis.NewPool(client))
	return []contender{
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

// spread runs f from n goroutines for the period and returns pairs a second and
// pairs in all.
func spread(t *testing.T, n int, f pair) (rate, pairs float64) {
	t.Helper()
	var count, next atomic.Int64
	done := make(chan error, n)
	began := time.Now()
	for worker := range n {
		go func() {
			for time.Since(began) < *period {
				if err := f(context.Background(), worker, int(next.Add(1))); err != nil {
					done <- err
					return
				}
				count.Add(1)
			}
			done <- nil
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	return float64(count.Load()) / time.Since(began).Seconds(), float64(count.Load())
}

// usage is the processor time of this process: unlike the rate it hardly
// depends on what else the machine does.
func usage(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverUsage is that of the server, in steps of 10 ms.
func serverUsage(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat))
	user, _ := strconv.Atoi(fields[13])
	system, _ := strconv.Atoi(fields[14])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func start(t *testing.T) (addr string, pid int) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not on PATH")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
	_ = ln.Close()
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			return addr, cmd.Process.Pid
		}
	}
	t.Fatal("redis-server did not start")
	return "", 0
}
