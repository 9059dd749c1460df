package lease_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/lease"
)

// valve holds the next writes to a server until it is opened.
type valve struct {
	mu     sync.Mutex // protects all below
	hold   int
	writes int
	opened chan struct{} // closed by open
}

type valveConn struct {
	net.Conn
	v *valve
}

func (c valveConn) Write(b []byte) (int, error) {
	c.v.mu.Lock()
	c.v.writes++
	var wait chan struct{}
	if c.v.hold > 0 {
		c.v.hold--
		wait = c.v.opened
	}
	c.v.mu.Unlock()
	if wait != nil {
		<-wait
	}
	return c.Conn.Write(b)
}

func (v *valve) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return valveConn{conn, v}, err
}

func (v *valve) shut(writes int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hold, v.writes, v.opened = writes, 0, make(chan struct{})
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hold = 0
	close(v.opened)
}

func (v *valve) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.writes
}

// valved opens a manager whose scripts and connections are warm, and which has
// time to spare.
func valved(t *testing.T, s *server) (*lease.Manager, *valve) {
	t.Helper()
	v := &valve{}
	cfg := s.config()
	cfg.TTL, cfg.CallTimeout, cfg.Dialer = 2*time.Minute, 14*time.Second, v.dial
	m := open(t, cfg)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			l, err := m.Acquire(t.Context(), ask(fmt.Sprintf("warm-%d", i), 8))
			if err == nil {
				_, err = l.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return m, v
}

// started runs an acquire; its result comes on the channel.
func started(ctx context.Context, m *lease.Manager, id string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := m.Acquire(ctx, ask(id, 100))
		done <- err
	}()
	return done
}

func TestCallsThatComeWhileOthersFlyGoTogether(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m, v := valved(t, s)
		v.shut(2)
		var all []<-chan error
		for i := range 2 {
			all = append(all, started(t.Context(), m, fmt.Sprintf("first-%d", i)))
		}
		eventually(t, "two calls fly", func() bool { return v.count() == 2 })
		for i := range 10 {
			all = append(all, started(t.Context(), m, fmt.Sprintf("later-%d", i)))
		}
		eventually(t, "ten wait for them", func() bool { return m.Queued() == 10 })
		v.open()
		for _, done := range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := v.count(); n != 3 {
			t.Errorf("twelve calls took %d writes, not 3", n)
		}
		if n := inUse(t, m, ask("", 0).Scopes[0]); n != 12 {
			t.Errorf("%d leases are held", n)
		}
	})
}

func TestACallThatLeavesBeforeItFlewWasNeverMade(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m, v := valved(t, s)
		v.shut(2)
		first, second := started(t.Context(), m, "first"), started(t.Context(), m, "second")
		eventually(t, "two calls fly", func() bool { return v.count() == 2 })
		ctx, cancel := context.WithCancelCause(t.Context())
		left := started(ctx, m, "left")
		eventually(t, "one waits", func() bool { return m.Queued() == 1 })
		why := errors.New("the caller left")
		cancel(why)
		if err := <-left; !errors.Is(err, why) {
			t.Errorf("it ended with %v", err)
		}
		if n := m.Pending(); n != 0 {
			t.Errorf("%d calls are to be taken back", n)
		}
		v.open()
		for _, done := range []<-chan error{first, second} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := inUse(t, m, ask("", 0).Scopes[0]); n != 2 {
			t.Errorf("%d leases are held", n)
		}
	})
}

func TestConnectionsThatHangHoldNobodyElseUp(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m, v := valved(t, s)
		v.shut(2)
		first, second := started(t.Context(), m, "first"), started(t.Context(), m, "second")
		eventually(t, "two calls hang", func() bool { return v.count() == 2 })
		if err := <-started(t.Context(), m, "third"); err != nil {
			t.Error(err)
		}
		v.open()
		for _, done := range []<-chan error{first, second} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAScriptFlushBetweenCallsCostsNobodyAnything(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		m, v := valved(t, s)
		v.shut(2)
		first, second := started(t.Context(), m, "first"), started(t.Context(), m, "second")
		eventually(t, "two calls fly", func() bool { return v.count() == 2 })
		third := started(t.Context(), m, "third")
		eventually(t, "one waits", func() bool { return m.Queued() == 1 })
		if err := s.raw.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		v.open()
		for _, done := range []<-chan error{first, second, third} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
