package emulator

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// listener knows every connection, so that Close and a sleeping Sprite can drop
// them and tests can count them.
type listener struct {
	net.Listener
	mu    sync.Mutex // protects conns
	conns map[*conn]struct{}
}

func newListener(ln net.Listener) *listener {
	return &listener{Listener: ln, conns: map[*conn]struct{}{}}
}

// Accept wraps each connection.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, ln: l}
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	return c, nil
}

func (l *listener) dropAll() {
	l.mu.Lock()
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

func (l *listener) sockets() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for c := range l.conns {
		if c.upgraded.Load() {
			n++
		}
	}
	return n
}

// conn is a client's connection, with the faults that work on bytes.
type conn struct {
	net.Conn
	ln       *listener
	upgraded atomic.Bool
	mute     atomic.Bool // swallow what is written: the answer gets lost
	split    atomic.Bool // write byte by byte
}

// Write applies the faults.
func (c *conn) Write(p []byte) (int, error) {
	if c.mute.Load() {
		return len(p), nil
	}
	if !c.split.Load() {
		return c.Conn.Write(p)
	}
	for i := range p {
		if n, err := c.Conn.Write(p[i : i+1]); err != nil {
			return i + n, err
		}
	}
	return len(p), nil
}

// Close forgets the connection.
func (c *conn) Close() error {
	c.ln.mu.Lock()
	delete(c.ln.conns, c)
	c.ln.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

func withConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, nc)
}
