package terminal_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/terminal"
)

// proxy is a network between a browser and a gateway that a test can cut.
type proxy struct {
	ln    net.Listener
	wg    sync.WaitGroup
	mu    sync.Mutex
	to    string // the gateway's address
	cut   bool
	conns map[net.Conn]struct{}
}

func newProxy(t testing.TB) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, conns: map[net.Conn]struct{}{}}
	p.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.carry(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); p.set("", true); p.wg.Wait() })
	return p
}

func (p *proxy) url() string { return "http://" + p.ln.Addr().String() }

// set points the proxy somewhere else, or cuts everything.
func (p *proxy) set(to string, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if to != "" {
		p.to = to
	}
	p.cut = cut
	for c := range p.conns {
		if cut {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // a reset, not an end: what is under way is lost
			}
			c.Close()
		}
	}
}

func (p *proxy) carry(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	to, cut := p.to, p.cut
	p.mu.Unlock()
	if cut {
		return
	}
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	p.mu.Lock()
	p.conns[c], p.conns[up] = struct{}{}, struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		delete(p.conns, up)
	}()
	done := make(chan struct{})
	go func() { defer close(done); io.Copy(up, c); up.Close(); c.Close() }()
	io.Copy(c, up)
	c.Close()
	up.Close()
	<-done
}

// The whole page in a real browser: typing, resizing, copying and pasting, wide characters, a screen reader, a cut
// network, a tab that slept, vim's screen in a new tab, a gateway's restart, a flood, a phone, a revocation, and what was
// recorded of it all.
func TestThePageHoldsInARealBrowser(t *testing.T) {
	node := browser(t)
	s := newStack(t)
	p := newProxy(t)
	recordings := t.TempDir()
	start := func() (*terminal.App, func()) {
		return s.gateway(func(c *terminal.Config) {
			c.Origins, c.PageDir, c.RecheckEvery = []string{p.url()}, "page/dist", 2*time.Second
			c.TickEvery, c.Recordings = 200*time.Millisecond, recordings
		})
	}
	app, stop := start()
	host := func(a *terminal.App) string { return a.URL()[len("http://"):] }
	p.set(host(app), false)
	shots := os.Getenv("WAKEBUS_SHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	shots, err := filepath.Abs(shots)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "check/browser.mjs", p.url(), shots, recordings)
	cmd.Dir, cmd.Stderr = "page", os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch lines.Text() {
		case "cut":
			p.set("", true)
		case "mend":
			p.set("", false)
		case "restart":
			next, stopNext := start()
			p.set(host(next), false)
			stop()
			stop = stopNext
		case "revoke":
			s.switchOff()
		}
		fmt.Fprintln(in, "ok")
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the browser's check failed: %v", err)
	}
}

// browser is the interpreter that drives one, where all that it needs is there.
func browser(t *testing.T) (node string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed")
	}
	for _, need := range []string{"page/dist/index.html", "page/node_modules/playwright-core"} {
		if _, err := os.Stat(need); err != nil {
			t.Skipf("%s is missing: run npm ci and npm run build in internal/terminal/page", need)
		}
	}
	return node
}

// switchOff switches the whole fleet off, as an operator does.
func (s *stack) switchOff() {
	s.t.Helper()
	cfg := s.config(config.RoleGateway)
	b, err := bus.Connect(context.Background(), bus.Config{URL: cfg.NATSURL.Reveal()})
	if err != nil {
		s.t.Fatal(err)
	}
	defer b.Close()
	if err := b.SetExecution(context.Background(), false, "ops", "test"); err != nil {
		s.t.Fatal(err)
	}
}
