package terminal_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/terminal/attach"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// screen is what a terminal would have shown.
type screen struct {
	mu   sync.Mutex
	cond *sync.Cond
	buf  bytes.Buffer
}

func newScreen() *screen { s := &screen{}; s.cond = sync.NewCond(&s.mu); return s }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.cond.Broadcast()
	return s.buf.Write(p)
}

func (s *screen) sees(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(s.buf.String(), text) {
		s.cond.Wait()
	}
}

// person is somebody at a real terminal.
type personAt struct {
	screen, notices *screen
	keys            *io.PipeWriter
	end             chan attach.End
}

func (b *bench) attach(url string, change ...func(*attach.Config)) *personAt {
	in, keys := io.Pipe()
	p := &personAt{screen: newScreen(), notices: newScreen(), keys: keys, end: make(chan attach.End, 1)}
	cfg := attach.Config{URL: url, Page: "home", Client: "cli", Input: in, Output: p.screen,
		Notice: func(l string) { fmt.Fprintln(p.notices, l) },
		Size:   func() frame.Size { return frame.Size{Cols: 77, Rows: 33} },
		Ticket: func(context.Context) (string, error) { return fmt.Sprintf("ann.owner.home.%d", serial.Add(1)), nil }}
	for _, f := range change {
		f(&cfg)
	}
	go func() {
		end, err := attach.Run(context.Background(), cfg)
		if err != nil {
			b.t.Errorf("attach: %v", err)
		}
		in.Close()
		p.end <- end
	}()
	b.t.Cleanup(func() { keys.Close() })
	return p
}

func TestAttachTypesShowsAndEndsWithTheShellsCode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.attach(b.srv.URL)
	b.shell(0).print("$ ")
	p.screen.sees("$ ")
	io.WriteString(p.keys, "exit 9\r")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "exit 9\r" && s.size == frame.Size{Cols: 77, Rows: 33} })
	b.shell(0).exit(9)
	if end := <-p.end; end.Code() != 9 {
		t.Errorf("ended with %+v", end)
	}
}

func TestAttachDetachesOnItsKeyAndTheShellGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.attach(b.srv.URL)
	b.shell(0).print("$ ")
	p.screen.sees("$ ")
	io.WriteString(p.keys, "a\x1d\x1d")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "a\x1d" })
	io.WriteString(p.keys, "\x1dd")
	if end := <-p.end; end.Reason != frame.ReasonDetached || end.Code() != 0 {
		t.Errorf("ended with %+v", end)
	}
	if b.count("kill") != 0 || b.live() != 1 {
		t.Error("the shell did not go on")
	}
}

// A shell that does not hear the input's end is left alone after some tries.
func TestAttachDetachesWhenTheShellOutlivesTheInputsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.attach(b.srv.URL, func(c *attach.Config) { c.EndPause = time.Millisecond })
	b.shell(0).print("$ ")
	p.screen.sees("$ ")
	p.keys.Close()
	if end := <-p.end; end.Reason != frame.ReasonDetached || end.Code() != 0 || !strings.Contains(end.Message, "the input has ended") {
		t.Errorf("ended with %+v", end)
	}
	if got := b.shell(0).input(); got != strings.Repeat("\x04", 8) {
		t.Errorf("typed %q", got)
	}
	if b.count("kill") != 0 || b.live() != 1 {
		t.Error("the shell did not go on")
	}
}

func TestAttachComesBackAfterABreakWithNothingLostOrRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	net := newProxy(t)
	net.set(strings.TrimPrefix(b.srv.URL, "http://"), false)
	p := b.attach(net.url())
	b.shell(0).print("one ")
	p.screen.sees("one ")
	for i := range 3 {
		net.set("", true)
		p.notices.sees("coming back")
		io.WriteString(p.keys, fmt.Sprint(i))
		b.shell(0).print(fmt.Sprintf("round %d ", i))
		net.set("", false)
		p.screen.sees(fmt.Sprintf("round %d ", i))
		b.shell(0).until(func(s *shell) bool { return strings.HasSuffix(string(s.typed), fmt.Sprint(i)) })
	}
	b.shell(0).exit(0)
	<-p.end
	if got := p.screen.buf.String(); got != "one round 0 round 1 round 2 " {
		t.Errorf("shown %q", got)
	}
	if got := b.shell(0).input(); got != "012" {
		t.Errorf("typed %q", got)
	}
}

func TestAttachShowsNoOldQueries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.open("bob.owner.home")
	b.shell(0).print("before\x1b[c\x1b[6n\x1b]11;?\x07after")
	first.sees("after")
	p := b.attach(b.srv.URL)
	p.screen.sees("beforeafter")
	io.WriteString(p.keys, "\x1dd")
	<-p.end
}

func TestAttachRefusedSaysWhy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set(func(w *world) { w.fail["admit"] = refusedEdit })
	p := b.attach(b.srv.URL)
	if end := <-p.end; end.Code() != attach.CodeRefused || end.Message == "" {
		t.Errorf("ended with %+v", end)
	}
}

// Who attaches where the gateway asks nobody but the client's own grants stays as long as fresh ones come.
func TestAttachSendsFreshGrantsAndOutlivesItsTicket(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set(func(w *world) { w.revoked["ann"] = refusedEdit }) // whoever is asked about her says no
	grants := make(chan string)
	p := b.attach(b.srv.URL, func(c *attach.Config) {
		c.GrantEvery = time.Millisecond
		c.Grant = func(ctx context.Context) (string, error) {
			select {
			case g := <-grants:
				return g, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
	})
	b.shell(0).print("$ ")
	p.screen.sees("$ ")
	for i := range 9 {
		grants <- fmt.Sprintf("ann.fresh.%d", i)
		b.until(func(w *world) bool { return w.calls["renew"] == i+1 })
		b.pass(20 * time.Second)
	}
	io.WriteString(p.keys, "x")
	b.shell(0).until(func(s *shell) bool { return string(s.typed) == "x" })
	if n := b.count("recheck"); n != 0 {
		t.Errorf("asked %d times about a person whose grants were fresh", n)
	}
	b.pass(time.Minute) // none came
	if end := <-p.end; end.Reason != frame.ReasonRevoked {
		t.Errorf("ended with %+v", end)
	}
}
