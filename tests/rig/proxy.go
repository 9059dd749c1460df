package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// ProxyConfig says what a Proxy does to what passes through it.
type ProxyConfig struct {
	// Delay is how long each piece takes, either way. Defaults to none.
	Delay time.Duration
	// HoldAfter is how many bytes of a connection go to the server; what its client sends after them stays in the proxy.
	// Defaults to no limit.
	HoldAfter int64
}

// Proxy stands between a worker and a server, and delays or holds back what passes. Its methods may be called
// concurrently.
type Proxy struct {
	// Addr is where it listens.
	Addr string

	cfg      ProxyConfig
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex // protects what follows
	conns   map[net.Conn]bool
	held    int
	changed chan struct{} // closed and replaced with each connection that is held
}

// StartProxy starts one before the server at target. Close ends it.
func StartProxy(target string, cfg ProxyConfig) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p := &Proxy{Addr: l.Addr().String(), cfg: cfg, target: target, listener: l, conns: map[net.Conn]bool{}, changed: make(chan struct{})}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.keep(client, server) {
			return
		}
		p.wg.Go(func() { p.carry(server, client, p.cfg.HoldAfter) })
		p.wg.Go(func() { p.carry(client, server, 0) })
	}
}

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.conns == nil {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return p.conns != nil
}

// carry passes bytes on until one side ends, which ends both.
func (p *Proxy) carry(to, from net.Conn, most int64) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 16<<10)
	passed := int64(0)
	for {
		n, err := from.Read(buf)
		if p.cfg.Delay > 0 {
			<-time.After(p.cfg.Delay)
		}
		data := buf[:n]
		if most > 0 && passed+int64(n) > most {
			if passed < most {
				p.hold()
			}
			data = data[:max(most-passed, 0)]
		}
		passed += int64(n)
		if _, werr := to.Write(data); err != nil || werr != nil {
			return
		}
	}
}

func (p *Proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held++
	close(p.changed)
	p.changed = make(chan struct{})
}

// Held waits until so many connections are held back.
func (p *Proxy) Held(ctx context.Context, n int) error {
	for {
		p.mu.Lock()
		held, changed := p.held, p.changed
		p.mu.Unlock()
		if held >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d connections are held: %w", held, n, context.Cause(ctx))
		}
	}
}

// Close cuts every connection and waits for the end of all that it does.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for c := range conns {
		if cerr := c.Close(); cerr != nil && !errors.Is(cerr, net.ErrClosed) && !errors.Is(cerr, io.EOF) {
			err = errors.Join(err, cerr)
		}
	}
	p.wg.Wait()
	return err
}
