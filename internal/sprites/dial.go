package sprites

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// dial opens a socket and waits for its introduction, both within DialTimeout.
func (c *Client) dial(ctx context.Context, op Operation, url string, tty bool) (*socket, sessionInfo, error) {
	dctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	s, err := c.openSocket(dctx, op, url, tty)
	if err != nil {
		return nil, sessionInfo{}, err
	}
	info, err := s.introduction(dctx)
	if err != nil {
		s.close()
		return nil, sessionInfo{}, err
	}
	return s, info, nil
}

// openSocket dials once. ctx bounds the handshake only.
func (c *Client) openSocket(ctx context.Context, op Operation, url string, tty bool) (*socket, error) {
	header := http.Header{}
	c.authorize(header)
	conn, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: c.sockets, HTTPHeader: header})
	if err != nil {
		return nil, c.dialFailure(ctx, op, resp, err)
	}
	conn.SetReadLimit(frameMax)
	s := &socket{
		conn: conn, op: op, offsets: hasCapability(resp.Header, "output_offset"), metrics: c.metrics,
		pings: pingPolicy{every: c.cfg.PingEvery, limit: c.cfg.PingTimeout},
		in:    make(chan piece, pieceQueue), done: make(chan struct{}),
	}
	s.raw.Store(tty)
	s.heard.Store(time.Now().UnixNano())
	c.metrics.sockets.Inc()
	s.wg.Add(2)
	go s.read()
	go s.keepalive()
	return s, nil
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// narrow bounds what the kernel takes in before we read it. Left alone it grows to megabytes, and all of them stand
// before the answer to a key that stops a flood.
func narrow(dial dialer, bytes int) dialer {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			_ = tcp.SetReadBuffer(bytes) // without it output only comes later
		}
		return conn, err
	}
}

// hasCapability looks into the comma list of X-Sprite-Capabilities (sprites-go, exec handshake).
func hasCapability(header http.Header, name string) bool {
	for _, word := range strings.Split(header.Get("X-Sprite-Capabilities"), ",") {
		if strings.TrimSpace(word) == name {
			return true
		}
	}
	return false
}

// dialFailure classifies a handshake that did not open. An answer other than 101 carries status, code and hint.
func (c *Client) dialFailure(ctx context.Context, op Operation, resp *http.Response, err error) error {
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return failure(ctx, op, err)
	}
	var body []byte
	if resp.Body != nil {
		body, _ = io.ReadAll(resp.Body) // at most 1 KiB (websocket.Dial)
	}
	return refusal(op, resp.StatusCode, resp.Header, body, c.cfg.Now())
}
