package lease_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/wakebus/wakebus/internal/lease"
)

// startSentinel watches master with a quorum of one.
func startSentinel(t testing.TB, master *server) (addr string) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not on PATH")
	}
	host, port, _ := strings.Cut(master.addr, ":")
	own := freePort(t)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor mymaster %s %s 1\nsentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 5000\n",
		own, filepath.Dir(conf), host, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, conf, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return fmt.Sprintf("127.0.0.1:%d", own)
}

func TestAFailoverCostsNoHolderItsLease(t *testing.T) {
	t.Parallel()
	master, replica := startReal(t), startReal(t)
	host, port, _ := strings.Cut(master.addr, ":")
	ctx := context.Background()
	if err := replica.raw.ReplicaOf(ctx, host, port).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica follows", func() bool {
		info, err := replica.raw.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	sentinel := startSentinel(t, master)
	cfg := master.config()
	cfg.URL = "redis://" + sentinel + "?master_name=mymaster"
	watcher := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	defer watcher.Close()
	eventually(t, "the sentinel knows the replica", func() bool {
		replicas, err := watcher.Replicas(ctx, "mymaster").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})
	m := open(t, cfg)
	run(t, m)
	l := must(t, m, ask("acme.a.0.1", 1))
	before := l.Fence()
	// The grant reaches the replica or not: either way the holder comes back.
	master.kill()
	eventually(t, "the new primary knows the lease", func() bool {
		return m.Ready(ctx) == nil && l.RenewNow() == nil
	})
	if l.State() != lease.Held || l.Context().Err() != nil || l.Fence() < before {
		t.Errorf("%s, %v, fence %d after %d", l.State(), l.Context().Err(), l.Fence(), before)
	}
	eventually(t, "one lease counts", func() bool { return inUse(t, m, ask("", 1).Scopes[0]) == 1 })
	if _, err := m.Acquire(ctx, ask("acme.b.0.1", 1)); err == nil {
		t.Error("the limit is exceeded after the failover")
	}
}
