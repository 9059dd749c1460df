package lease_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wakebus/wakebus/internal/lease"
)

// child is this test binary run again as another worker process. Its lines
// come on out; it ends when its stdin does.
type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
	in  interface{ Close() error }
}

func startChild(t testing.TB, role string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "LEASE_TEST_CHILD="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &child{cmd: cmd, out: bufio.NewScanner(out), in: in}
}

// line is the next thing the child says.
func (c *child) line(t testing.TB) string {
	t.Helper()
	if !c.out.Scan() {
		t.Fatalf("the child said nothing more: %v", c.out.Err())
	}
	return c.out.Text()
}

func runChild(role string) int {
	var err error
	switch role {
	case "holder":
		err = childHolder(os.Args[1], os.Args[2])
	case "hammer":
		err = childHammer(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	default:
		err = errors.New("unknown role")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

// childHolder takes the one slot, says so, and says how it lost it.
func childHolder(url, prefix string) error {
	ctx := context.Background()
	m, err := lease.Open(ctx, lease.Config{URL: url, Prefix: prefix, Owner: "child.1", TTL: 2 * time.Second, Quarantine: -1})
	if err != nil {
		return err
	}
	l, err := m.Acquire(ctx, ask("acme.a.0.1", 1))
	if err != nil {
		return err
	}
	fmt.Println("held", l.Fence())
	<-l.Context().Done()
	var lost *lease.Lost
	errors.As(context.Cause(l.Context()), &lost)
	ok, err := l.Release(ctx)
	fmt.Println("lost", lost.Reason, ok, err)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return m.Close()
}

// case 46
func TestCase46AKilledHolderFreesItsSlotWithinATTL(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	cfg := s.config()
	cfg.TTL, cfg.CallTimeout = 2*time.Second, 490*time.Millisecond
	m := open(t, cfg)
	c := startChild(t, "holder", s.url, cfg.Prefix)
	if got := c.line(t); !strings.HasPrefix(got, "held ") {
		t.Fatalf("child: %s", got)
	}
	_, err := m.Acquire(context.Background(), ask("acme.b.0.1", 1))
	var d *lease.Denied
	if !errors.As(err, &d) || d.Expires > 2*time.Second || len(d.Holders) != 1 || d.Holders[0] != "acme.a.0.1" {
		t.Fatalf("beside the living holder: %v", err)
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	eventually(t, "the slot is free", func() bool {
		_, err := m.Acquire(context.Background(), ask("acme.b.0.1", 1))
		return err == nil
	})
	t.Logf("free %s after the kill, ttl 2s", time.Since(killed))
}

// case 43: a worker that was stopped past its TTL finds its run taken over, is
// silent, and frees nothing.
func TestCase43AStoppedWorkerWakesUpSilent(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	cfg := s.config()
	cfg.TTL, cfg.CallTimeout, cfg.Owner = 2*time.Second, 490*time.Millisecond, "taker.1"
	m := open(t, cfg)
	c := startChild(t, "holder", s.url, cfg.Prefix)
	var fence int64
	if _, err := fmt.Sscanf(c.line(t), "held %d", &fence); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stopped one's lease expires", func() bool { return inUse(t, m, ask("", 1).Scopes[0]) == 0 })
	l := must(t, m, ask("acme.a.0.1", 1))
	if l.Fence() <= fence {
		t.Errorf("fence %d after %d", l.Fence(), fence)
	}
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := c.line(t); got != "lost transferred false <nil>" {
		t.Errorf("the stopped worker said %q", got)
	}
	if n := inUse(t, m, ask("", 1).Scopes[0]); n != 1 {
		t.Errorf("%d in use, want the taker's", n)
	}
}

// tally is a counter in memory that processes share: independent of Redis.
type tally struct{ words []atomic.Int64 }

const (
	tallyHeld, tallyMost, tallyGrants, tallyDenials = 0, 1, 2, 3
	tallySize                                       = 4096
)

func openTally(path string) (*tally, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(tallySize); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, tallySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &tally{words: unsafe.Slice((*atomic.Int64)(unsafe.Pointer(&b[0])), 8)}, nil
}

func (c *tally) enter() {
	held := c.words[tallyHeld].Add(1)
	for {
		most := c.words[tallyMost].Load()
		if held <= most || c.words[tallyMost].CompareAndSwap(most, held) {
			break
		}
	}
	c.words[tallyGrants].Add(1)
}

func (c *tally) leave() { c.words[tallyHeld].Add(-1) }

const hammerLimit = 5

// hammer takes and gives back one limit from many goroutines until ctx ends.
func hammer(ctx context.Context, m *lease.Manager, who string, goroutines int, c *tally) error {
	var wg sync.WaitGroup
	errs := make(chan error, goroutines)
	// On a busy machine the limit is reached late, and no proof before that.
	began := time.Now()
	more := func() bool {
		return ctx.Err() == nil || c.words[tallyMost].Load() < hammerLimit && time.Since(began) < 30*time.Second
	}
	for g := range goroutines {
		wg.Go(func() {
			for n := 0; more(); n++ {
				l, err := m.Acquire(context.Background(), two(fmt.Sprintf("acme.%s-%d.%d.1", who, g, n), hammerLimit, hammerLimit+1))
				var d *lease.Denied
				if errors.As(err, &d) {
					c.words[tallyDenials].Add(1)
					continue
				}
				if err != nil {
					errs <- err
					return
				}
				c.enter()
				// One more round trip under the lease, so that holders overlap.
				used, err := m.InUse(context.Background(), two("", 0, 0).Scopes[0])
				c.leave()
				if err != nil || used > hammerLimit {
					errs <- fmt.Errorf("redis counts %d of %d: %w", used, hammerLimit, err)
					return
				}
				ok, err := l.Release(context.Background())
				if errors.Is(err, lease.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
					m.Settle(context.Background()) // what Run does for a server that is slow
					continue
				}
				if !ok || err != nil {
					errs <- fmt.Errorf("release: %v %w", ok, err)
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func childHammer(url, prefix, path, period string) error {
	d, err := time.ParseDuration(period)
	if err != nil {
		return err
	}
	m, err := lease.Open(context.Background(), lease.Config{URL: url, Prefix: prefix, TTL: 2 * time.Minute, CallTimeout: 20 * time.Second, Quarantine: -1})
	if err != nil {
		return err
	}
	c, err := openTally(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if err := hammer(ctx, m, fmt.Sprint(os.Getpid()), 16, c); err != nil {
		return err
	}
	return m.Close()
}

// TestFourProcessesNeverExceedOneLimit hammers for a second, or for
// LEASE_TEST_HAMMER (a duration), with 64 goroutines in 4 processes.
func TestFourProcessesNeverExceedOneLimit(t *testing.T) {
	t.Parallel()
	period := os.Getenv("LEASE_TEST_HAMMER")
	if period == "" {
		period = "1s"
	}
	s := startReal(t)
	cfg := s.config()
	path := filepath.Join(t.TempDir(), "tally")
	c, err := openTally(path)
	if err != nil {
		t.Fatal(err)
	}
	var children []*child
	for range 4 {
		children = append(children, startChild(t, "hammer", s.url, cfg.Prefix, path, period))
	}
	flushing, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(7 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-flushing.Done():
				return
			case <-tick.C:
				_ = s.raw.ScriptFlush(flushing).Err()
			}
		}
	})
	for _, ch := range children {
		for ch.out.Scan() {
			t.Log(ch.out.Text())
		}
		if err := ch.cmd.Wait(); err != nil {
			t.Errorf("child: %v", err)
		}
	}
	stop()
	wg.Wait()
	if most := c.words[tallyMost].Load(); most != hammerLimit {
		t.Errorf("%d held at once at most, want the limit %d: reached and never exceeded", most, hammerLimit)
	}
	if left := c.words[tallyHeld].Load(); left != 0 {
		t.Errorf("%d never left", left)
	}
	m := open(t, cfg)
	if n := inUse(t, m, two("", 1, 1).Scopes[0]); n != 0 {
		t.Errorf("%d leases left", n)
	}
	t.Logf("%s: %d grants, %d denials, most held %d of %d", period, c.words[tallyGrants].Load(), c.words[tallyDenials].Load(), c.words[tallyMost].Load(), hammerLimit)
}

func TestGoroutinesOfOneProcessNeverExceedALimit(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		c := &tally{words: make([]atomic.Int64, 8)}
		cfg := s.config()
		cfg.TTL, cfg.CallTimeout = 2*time.Minute, 20*time.Second
		m := open(t, cfg)
		ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
		defer cancel()
		if err := hammer(ctx, m, "one", 64, c); err != nil {
			t.Fatal(err)
		}
		if most := c.words[tallyMost].Load(); most != hammerLimit {
			t.Errorf("%d held at once at most, want the limit %d: reached and never exceeded", most, hammerLimit)
		}
		if n := inUse(t, m, two("", 1, 1).Scopes[1]); n != 0 {
			t.Errorf("%d leases left", n)
		}
	})
}

// TestThreeThousandCommandsInARowAreNeverDenied sends each one on seeing the
// end of the last, at limit 1.
func TestThreeThousandCommandsInARowAreNeverDenied(t *testing.T) {
	t.Parallel()
	m := open(t, startReal(t).config())
	for n := range 3000 {
		l, err := m.Acquire(context.Background(), ask(fmt.Sprintf("acme.j%d.0.1", n), 1))
		if err != nil {
			t.Fatalf("command %d: %v", n, err)
		}
		if ok, err := l.Release(context.Background()); !ok || err != nil {
			t.Fatalf("command %d: release %v %v", n, ok, err)
		}
	}
}
