package lease_test

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/wakebus/wakebus/internal/lease"
)

// startCluster runs three masters and gives each a third of the slots.
func startCluster(t testing.TB) []*server {
	t.Helper()
	var nodes []*server
	for range 3 {
		nodes = append(nodes, startReal(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
	}
	ctx := context.Background()
	for i, n := range nodes {
		first, last := i*16384/3, (i+1)*16384/3-1
		if err := n.raw.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			t.Fatal(err)
		}
		host, port, _ := strings.Cut(nodes[0].addr, ":")
		if i > 0 {
			if err := n.raw.ClusterMeet(ctx, host, port).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, n := range nodes {
		eventually(t, "the cluster is up", func() bool {
			info, err := n.raw.ClusterInfo(ctx).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	return nodes
}

func TestLeasesWorkOnARedisCluster(t *testing.T) {
	t.Parallel()
	if path, err := exec.LookPath("redis-server"); err != nil {
		startReal(t) // skips, or fails in CI
	} else if path == "" {
		t.Fatal("no path")
	}
	nodes := startCluster(t)
	cfg := nodes[0].config()
	cfg.URL = "redis://" + nodes[0].addr + "?addr=" + nodes[1].addr + "&addr=" + nodes[2].addr
	m := open(t, cfg)
	run(t, m)
	cfg.URL = strings.Replace(cfg.URL, "redis:", "redis+cluster:", 1)
	cfg.Owner = "other.1"
	other := open(t, cfg)
	ctx := context.Background()

	for user := range 8 {
		id := "acme.j" + strconv.Itoa(user) + ".0.1"
		r := ask(id, 1)
		r.User = "user" + strconv.Itoa(user)
		r.Scopes = lease.Scopes(lease.KindExec, "acme", r.User, "free", lease.Limits{Exec: map[string]int{"free": 1}, Tenant: 50, Global: 8})
		l := must(t, m, r)
		if err := l.RenewNow(); err != nil {
			t.Fatal(err)
		}
	}
	full := ask("acme.full.0.1", 1)
	full.User = "other"
	full.Scopes = lease.Scopes(lease.KindExec, "acme", "other", "free", lease.Limits{Exec: map[string]int{"free": 1}, Tenant: 50, Global: 8})
	var d *lease.Denied
	if _, err := other.Acquire(ctx, full); !errors.As(err, &d) || d.Scope.Label() != "global" {
		t.Fatalf("got %v, want the global scope's denial", err)
	}
	records, err := other.List(ctx, lease.Filter{Tenant: "acme"})
	if err != nil || len(records) != 8 {
		t.Fatalf("list: %d %v", len(records), err)
	}
	// A signal published by a script reaches a subscriber of any node.
	l := must(t, m, ask("acme.marked.0.1", 1))
	if err := other.Revoke(ctx, l.ID(), "test", "ops", false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mark arrives", func() bool { return l.Context().Err() != nil })
	if _, err := m.Gate().Enter(ctx, "create", "acme"); err != nil {
		t.Fatal(err)
	}
	// One hash tag, one slot: without it the scopes would lie on many nodes.
	for _, n := range nodes {
		count, err := n.raw.DBSize(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		if count > 0 {
			if keys, _ := n.raw.Keys(ctx, "*").Result(); len(keys) == 0 || !strings.HasPrefix(keys[0], cfg.Prefix) {
				t.Errorf("foreign keys: %v", keys)
			}
		}
	}
	cross := redis.NewScript("return redis.call('ZADD', KEYS[1], 1, 'x') + redis.call('ZADD', KEYS[2], 1, 'x')")
	cc := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].addr}})
	defer cc.Close()
	if err := cross.Run(ctx, cc, []string{"lease:u:1", "lease:t:2"}).Err(); err == nil {
		t.Error("a script over two slots was accepted: then the hash tag proves nothing")
	}
}
