package bus_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/wakebus/wakebus/internal/bus"
)

// startCluster runs three brokers that keep three copies of each stream.
func startCluster(t *testing.T) string {
	t.Helper()
	const size = 3
	var routes []*url.URL
	ports := make([]int, size)
	for i := range size {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = l.Addr().(*net.TCPAddr).Port
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	servers := make([]*server.Server, size)
	for i := range size {
		s, err := server.NewServer(&server.Options{ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]}})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		servers[i] = s
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
	}
	eventually(t, "the cluster has a leader", func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == size {
				return true
			}
		}
		return false
	})
	return servers[0].ClientURL()
}

func TestWithReplicasOfManyClaimsOneWinsAndEveryLoserIsToldSo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three brokers take a few seconds to find each other")
	}
	address := startCluster(t)
	dial := func() *bus.Bus {
		b, err := bus.Connect(t.Context(), bus.Config{URL: address, Limits: limits(), Replicas: 3, PublishTimeout: 5 * time.Second, DirectReads: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	buses := []*bus.Bus{dial(), dial(), dial(), dial()}
	eventually(t, "the streams are set up", func() bool { return buses[0].Setup(within(t)) == nil })
	asked := leaderReads(t, address)
	if mark, err := buses[0].CancelMark(within(t), "t", "j", "c", time.Now()); mark != nil || err != nil {
		t.Errorf("the marks read %+v, %v", mark, err)
	}
	eventually(t, "the leader is asked, since a follower may lag", func() bool { return asked() >= 2 })
	for round := range 8 {
		k := key(fmt.Sprintf("r%d", round))
		errs := make([]error, len(buses))
		chains := make([]*bus.Chain, len(buses))
		var wg sync.WaitGroup
		for i, b := range buses {
			wg.Go(func() { chains[i], errs[i] = b.Claim(within(t), k, bus.Owner(fmt.Sprintf("w%d.1", i)), claimOf(1)) })
		}
		wg.Wait()
		winners := 0
		for i, err := range errs {
			var conflict *bus.ConflictError
			switch {
			case err == nil:
				winners++
				if err := errors.Join(chains[i].Dialing(within(t), bus.DialingBody{}), chains[i].Write(within(t), bus.EventStdout, []byte("out")), chains[i].Result(within(t), bus.ResultBody{})); err != nil {
					t.Errorf("round %d: the winner's run: %v", round, err)
				}
			case !errors.As(err, &conflict):
				t.Errorf("round %d: loser %d got %v", round, i, err)
			}
		}
		if winners != 1 {
			t.Fatalf("round %d: %d winners", round, winners)
		}
		if got := kinds(readAll(t, subscribe(t, buses[0], k.Job))); got != "accepted dialing stdout result " {
			t.Errorf("round %d reads %q", round, got)
		}
	}
}
