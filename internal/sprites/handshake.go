package sprites

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// answerHeadMax bounds the head of a handshake's answer, in bytes.
	answerHeadMax = 64 << 10
	// interimMax is how many 1xx answers may come before the real one.
	interimMax = 5
)

// handshaker sends each request on a fresh connection of its own and leaves that connection to the WebSocket. On a
// kept-alive one net/http would repeat the handshake behind our back when it turns out dead, with the same nonce: two runs
// that the guard takes for one. net/http's transport would also serve the connection with goroutines and buffers that a
// socket has no use for; here a command costs one connection and nothing beside it.
type handshaker struct {
	// base says how to connect (dialer, TLS, proxy), and carries what goes through a proxy.
	base *http.Transport
	// readers and writers are the buffers that answers are parsed in and requests are put together in.
	readers, writers sync.Pool
}

var _ http.RoundTripper = (*handshaker)(nil)

func newHandshaker(base *http.Transport) *handshaker {
	base.DisableKeepAlives = true // for what goes through a proxy
	return &handshaker{
		base:    base,
		readers: sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }},
		writers: sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 8<<10) }}, // a guarded command's address is 4 KiB long
	}
}

// RoundTrip sends one request without a body. The answer's body is the connection itself after a 101.
func (h *handshaker) RoundTrip(req *http.Request) (*http.Response, error) {
	proxied, err := h.proxied(req)
	if err != nil {
		return nil, err
	}
	if proxied {
		return h.base.RoundTrip(req)
	}
	conn, err := h.connection(req)
	if err != nil {
		return nil, err
	}
	resp, err := h.exchange(req, conn)
	if err != nil {
		_ = conn.Close() // the exchange's error says more
		return nil, err
	}
	return resp, nil
}

// proxied tells whether the request goes through a proxy, whose own handshake is left to net/http.
func (h *handshaker) proxied(req *http.Request) (bool, error) {
	if h.base.Proxy == nil {
		return false, nil
	}
	proxy, err := h.base.Proxy(req)
	if err != nil {
		return false, fmt.Errorf("find the proxy: %w", err)
	}
	return proxy != nil, nil
}

// connection is the one that was opened ahead for this request, else a new one.
func (h *handshaker) connection(req *http.Request) (net.Conn, error) {
	if ahead, ok := req.Context().Value(aheadKey{}).(*Ahead); ok {
		if conn := ahead.take(req.Context(), req.URL); conn != nil {
			return conn, nil
		}
	}
	return h.connect(req.Context(), req.URL)
}

// connect opens a connection to the address, with TLS where its scheme asks for it.
func (h *handshaker) connect(ctx context.Context, u *url.URL) (net.Conn, error) {
	address := hostPort(u)
	secure := u.Scheme == "https"
	if secure && h.base.DialTLSContext != nil {
		return h.base.DialTLSContext(ctx, "tcp", address)
	}
	dial := h.base.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil || !secure {
		return conn, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if h.base.TLSClientConfig != nil {
		config = h.base.TLSClientConfig.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = u.Hostname()
	}
	config.NextProtos = []string{"http/1.1"} // a WebSocket is no HTTP/2 stream
	wrapped := tls.Client(conn, config)
	if err := wrapped.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error says more
		return nil, err
	}
	return wrapped, nil
}

func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "https" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

// exchange writes the request and reads the answer's head, until the request's context ends.
func (h *handshaker) exchange(req *http.Request, conn net.Conn) (*http.Response, error) {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // makes both directions fail at once
	resp, err := h.converse(req, conn)
	if !stop() && err == nil {
		// The deadline may already lie in the past, and nobody waits for this answer.
		err = ctx.Err()
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return resp, err
}

func (h *handshaker) converse(req *http.Request, conn net.Conn) (*http.Response, error) {
	if err := h.send(req, conn); err != nil {
		return nil, fmt.Errorf("send handshake: %w", err)
	}
	br, ok := h.readers.Get().(*bufio.Reader)
	if !ok {
		br = bufio.NewReader(nil)
	}
	br.Reset(io.LimitReader(conn, answerHeadMax))
	lent := false // to the body of an answer that opened nothing
	defer func() {
		if !lent {
			br.Reset(nil) // a pooled buffer keeps no connection
			h.readers.Put(br)
		}
	}()
	for range interimMax {
		resp, err := http.ReadResponse(br, req)
		if err != nil {
			return nil, fmt.Errorf("read the handshake's answer: %w", err)
		}
		switch {
		case resp.StatusCode == http.StatusSwitchingProtocols:
			resp.Body = upgraded(br, conn)
			return resp, nil
		case resp.StatusCode >= 200:
			lent = true
			resp.Body = refusedBody{resp.Body, conn}
			return resp, nil
		}
	}
	return nil, fmt.Errorf("read the handshake's answer: more than %d interim ones", interimMax)
}

func (h *handshaker) send(req *http.Request, conn net.Conn) error {
	bw, ok := h.writers.Get().(*bufio.Writer)
	if !ok {
		return req.Write(conn)
	}
	bw.Reset(conn)
	err := req.Write(bw)
	if err == nil {
		err = bw.Flush()
	}
	bw.Reset(nil) // a pooled buffer keeps no connection
	h.writers.Put(bw)
	return err
}

// upgraded is the connection after a 101; what came with the answer's head is read first.
func upgraded(br *bufio.Reader, conn net.Conn) io.ReadWriteCloser {
	var early []byte
	if n := br.Buffered(); n > 0 {
		peeked, _ := br.Peek(n) // it is buffered, so it cannot fail
		early = append(early, peeked...)
	}
	return &upgradedConn{Conn: conn, early: early}
}

// upgradedConn is used by one reader at a time.
type upgradedConn struct {
	net.Conn
	early []byte // owned by the reader
}

// Read gives out what came with the handshake's answer first.
func (c *upgradedConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// refusedBody is the body of an answer that opened nothing. Closing it closes the connection.
type refusedBody struct {
	io.ReadCloser
	conn net.Conn
}

// Close closes the connection. net/http would read the rest of the body first, which nobody wants.
func (b refusedBody) Close() error { return b.conn.Close() }
