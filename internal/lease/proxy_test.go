package lease_test

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"testing"
)

// proxy stands between a client and a server. It can swallow every byte (a
// partition), or hold what the client sends back and deliver it later.
type proxy struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu      sync.Mutex // protects all below
	black   bool
	hold    []byte // hold from the first chunk with this in it
	holding bool
	held    []heldBytes
	conns   map[net.Conn]struct{}
	onHeld  chan struct{} // closed when the first chunk is held
}

type heldBytes struct {
	to   net.Conn
	data []byte
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, conns: map[net.Conn]struct{}{}, onHeld: make(chan struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "redis://" + p.ln.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.pump(in, out, true) })
		p.wg.Go(func() { p.pump(out, in, false) })
	}
}

// pump keeps the server's side open when the client hangs up while its bytes
// are held: a real network delivers them all the same.
func (p *proxy) pump(from, to net.Conn, up bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.stopped(to, buf[:n], up) {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			p.mu.Lock()
			keep := p.holding || p.black || slices.ContainsFunc(p.held, func(h heldBytes) bool { return h.to == to })
			p.mu.Unlock()
			if !keep {
				_ = to.Close()
			}
			return
		}
	}
}

func (p *proxy) stopped(to net.Conn, data []byte, up bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if up && p.hold != nil && !p.holding && bytes.Contains(data, p.hold) {
		p.holding = true
		close(p.onHeld)
	}
	if up && p.holding {
		p.held = append(p.held, heldBytes{to, bytes.Clone(data)})
		return true
	}
	return p.black
}

// partition drops every byte both ways until heal.
func (p *proxy) partition() { p.set(true) }
func (p *proxy) heal()      { p.set(false) }

func (p *proxy) set(black bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.black = black
}

// holdFrom keeps what clients send from the first chunk that holds mark.
func (p *proxy) holdFrom(mark string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = []byte(mark)
}

// pass stops holding new bytes; what is held stays held.
func (p *proxy) pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold, p.holding = nil, false
}

// deliver sends the held bytes.
func (p *proxy) deliver(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) == 0 {
		t.Fatal("nothing was held")
	}
	for _, h := range p.held {
		if _, err := h.to.Write(h.data); err != nil {
			t.Fatalf("deliver: %v", err)
		}
	}
	p.held = nil
}
