package deploy_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// clusterPorts are where the three servers meet; the shipped file takes the list from the environment, which one test
// process has once.
var clusterPorts = freePorts(3)

func freePorts(n int) []int {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err) // a machine without loopback runs none of these tests
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}

func routesOf(ports []int) string {
	var routes []string
	for _, p := range ports {
		routes = append(routes, fmt.Sprintf(`"nats://route:%s@127.0.0.1:%d"`, passwordOf("route"), p))
	}
	return "[" + strings.Join(routes, ", ") + "]"
}

// startCluster runs three servers under nats-cluster.conf and sets the streams up with three copies of each.
func startCluster(t *testing.T) *broker {
	t.Helper()
	b := &broker{t: t}
	for i, port := range clusterPorts {
		b.servers = append(b.servers, startServer(t, "nats-cluster.conf",
			edit{`listen: "0.0.0.0:6222"`, fmt.Sprintf(`listen: "127.0.0.1:%d"`, port)},
			edit{"server_name: $WAKEBUS_NATS_SERVER_NAME", fmt.Sprintf("server_name: nats-%d", i)}))
	}
	setup := b.connect("setup", threeCopies)
	waitFor(t, func() bool { return setup.Setup(within(t)) == nil }) // until the three have found a leader
	return b
}

func threeCopies(c *bus.Config) { c.Replicas = 3 }

func TestThreeServersUnderTheShippedFileRunCommandsAndLoseOneOfThemselves(t *testing.T) {
	t.Parallel()
	b := startCluster(t)
	manyClaimsHaveOneWinner(t, b)
	s := startSystemOn(t, b, map[string]string{"WAKEBUS_REPLICAS": "3"})
	web := s.caller("web", "dev")
	_, before := web.exec("c", "echo before")
	if _, out := s.outcome(before, plan.OutcomeExited); out != "before\n" {
		t.Errorf("stdout is %q", out)
	}
	_, during := web.exec("c", "echo up; while [ ! -e go ]; do sleep 0.1; done; echo down")
	s.until(during, bus.EventStdout)
	if err := b.servers[2].Close(); err != nil {
		t.Fatal(err)
	}
	// Two of three are enough to store what comes now. A write in between may be told to come again.
	waitFor(t, func() bool {
		_, err := web.bus.FileWrite(within(t), "dev", nil, bus.FileWriteParams{ConversationID: "c", Path: "/workspace/go"}, nil)
		return err == nil
	})
	if _, out := s.outcome(during, plan.OutcomeExited); out != "down\n" {
		t.Errorf("the output after the loss is %q", out)
	}
	_, after := web.exec("c", "echo after")
	if _, out := s.outcome(after, plan.OutcomeExited); out != "after\n" {
		t.Errorf("stdout is %q", out)
	}
}

// manyClaimsHaveOneWinner races claims of the same run over all servers. With three copies the refusal has a code of its
// own (10164) while the first is not stored everywhere, and both must be told as a conflict.
func manyClaimsHaveOneWinner(t *testing.T, b *broker) {
	t.Helper()
	var workers []*bus.Bus
	for range 4 {
		workers = append(workers, b.connect("worker", threeCopies))
	}
	for round := range 6 {
		key := bus.RunKey{Tenant: "dev", Job: fmt.Sprintf("race-%d", round)}
		errs := make([]error, len(workers))
		var wg sync.WaitGroup
		for i, w := range workers {
			wg.Go(func() {
				_, errs[i] = w.Claim(within(t), key, bus.Owner(fmt.Sprintf("w%d.1", i)), bus.Claim{Record: bus.Record{Queued: 1, Kind: bus.KindExec}})
			})
		}
		wg.Wait()
		winners := 0
		for i, err := range errs {
			var conflict *bus.ConflictError
			if err == nil {
				winners++
			} else if !errors.As(err, &conflict) {
				t.Errorf("round %d, worker %d: %v", round, i, err)
			}
		}
		if winners != 1 {
			t.Errorf("round %d has %d winners", round, winners)
		}
	}
	codes := refusalCodes(t, b)
	t.Logf("refusals by code: %v", codes)
	for code := range codes {
		if code != jetstream.JSErrCodeStreamWrongLastSequence && code != jetstream.JSErrCodeStreamWrongLastSequenceConstant {
			t.Errorf("a compare-and-set was refused with %d", code)
		}
	}
}

// refusalCodes races raw publishes and counts what the broker calls the losers.
func refusalCodes(t *testing.T, b *broker) map[jetstream.ErrorCode]int {
	t.Helper()
	js := b.raw("worker")
	codes := map[jetstream.ErrorCode]int{}
	for round := range 20 {
		subject := fmt.Sprintf("sandbox.event.dev.raw-%d.0.state", round)
		var futures []jetstream.PubAckFuture
		for range 4 {
			f, err := js.PublishAsync(subject, []byte("{}"), jetstream.WithExpectLastSequencePerSubject(0))
			if err != nil {
				t.Fatal(err)
			}
			futures = append(futures, f)
		}
		stored := 0
		for _, f := range futures {
			select {
			case <-f.Ok():
				stored++
			case err := <-f.Err():
				var api *jetstream.APIError
				if !errors.As(err, &api) {
					t.Fatal(err)
				}
				codes[api.ErrorCode]++
			case <-time.After(patience):
				t.Fatal("no answer")
			}
		}
		if stored != 1 {
			t.Errorf("%d of 4 were stored", stored)
		}
	}
	return codes
}
