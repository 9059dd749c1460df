package lease_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/lease"
)

// loadSlowly kills the server and starts it on the data set it saved, so slowly that it answers -LOADING until loaded
// is called. The figures are of a server's own switches for its tests: one key at a time, and a look at its clients
// after each.
func (s *server) loadSlowly(t *testing.T) (loaded func()) {
	t.Helper()
	ctx := context.Background()
	for i := range 20 {
		pipe := s.raw.Pipeline()
		for j := range 100 {
			pipe.Set(ctx, "filler:"+string(rune('a'+i))+strings.Repeat("x", j), strings.Repeat("v", 4096), 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.raw.Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	s.kill()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(s.addr, ":")
	s.cmd = exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir,
		"--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024", "--rdbcompression", "no")
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server says that it loads", func() bool {
		return strings.HasPrefix(errText(s.raw.Ping(ctx).Err()), "LOADING")
	})
	return func() {
		if err := s.raw.ConfigSet(ctx, "key-load-delay", "0").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// case 43, case 48: a server that reads a large data set back after a restart.
func TestAServerThatIsStillLoadingGrantsNothingAndCostsNobodyARun(t *testing.T) {
	t.Parallel()
	s := startReal(t, "--rdbcompression", "no")
	cfg := s.config()
	cfg.TTL, cfg.CallTimeout = 2400*time.Millisecond, 300*time.Millisecond
	m := open(t, cfg)
	run(t, m)
	l := must(t, m, ask("acme.a.0.1", 1))
	fence := l.Fence()
	loaded := s.loadSlowly(t)

	eventually(t, "a worker that starts meanwhile is told why it cannot", func() bool {
		_, err := lease.Open(context.Background(), cfg)
		return isLoading(t, err)
	})
	eventually(t, "the lease counts as unconfirmed", func() bool { return l.State() == lease.Unconfirmed })
	r := ask("acme.b.0.1", 9)
	if _, err := m.Acquire(context.Background(), r); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("acquire beside an unconfirmed lease: %v", err)
	}
	r.Force = true // which asks the server all the same
	eventually(t, "an acquire is told so", func() bool {
		_, err := m.Acquire(context.Background(), r)
		return isLoading(t, err)
	})
	if m.Admit() || m.Ready(context.Background()) == nil {
		t.Error("admits, or is ready, while the server loads")
	}
	if l.Context().Err() != nil {
		t.Errorf("the run was ended: %v", context.Cause(l.Context()))
	}

	loaded()
	eventually(t, "the lease is held again", func() bool { return l.State() == lease.Held })
	eventually(t, "new work is admitted", m.Admit)
	if l.Context().Err() != nil || l.Fence() < fence {
		t.Errorf("fence %d after %d, %v", l.Fence(), fence, context.Cause(l.Context()))
	}
	var denied *lease.Denied
	if _, err := m.Acquire(context.Background(), ask("acme.c.0.1", 1)); !errors.As(err, &denied) || denied.InUse != 1 {
		t.Errorf("beside the lease that is back: %v", err)
	}
	if ok, err := l.Release(context.Background()); !ok || err != nil {
		t.Errorf("release: %v %v", ok, err)
	}
}

// isLoading reports that the server said so; a machine that is busy may time out first.
func isLoading(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		t.Fatal("granted without the server's word")
	}
	var down *lease.Unavailable
	return errors.As(err, &down) && down.Class == lease.ClassLoading
}
