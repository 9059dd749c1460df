package sprites

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"
)

// aheadFor is how long a connection that was opened ahead may wait for its request. A server gives an idle one up after
// some time, and a handshake on it would fail.
const aheadFor = 5 * time.Second

// aheadKey finds an Ahead in a dial's context.
type aheadKey struct{}

// Ahead is a connection that is being opened for one command's socket while its caller still has something to write down:
// it hides the round trips of TCP and TLS. Nothing is sent on it before the command's handshake, so opening it starts
// nothing and wakes nothing. Whoever made it closes it. Its methods may be called concurrently.
type Ahead struct {
	address string
	opened  chan struct{} // closed once conn and at are set
	conn    net.Conn      // nil when it failed; the dial then opens its own
	at      time.Time
	cancel  context.CancelFunc
	claim   chan struct{} // holds one token: whoever takes it has the connection
}

// Ahead begins to open a connection for the next command. It does not block. ctx bounds the opening, as DialTimeout does.
// It is nil, which every user takes for none, where connections go through a proxy.
func (c *Client) Ahead(ctx context.Context) *Ahead {
	u, err := url.Parse(c.base)
	if err != nil {
		return nil // validated in New
	}
	if proxied, err := c.handshakes.proxied(&http.Request{URL: u}); proxied || err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	a := &Ahead{address: hostPort(u), opened: make(chan struct{}), cancel: cancel, claim: make(chan struct{}, 1)}
	a.claim <- struct{}{}
	go func() { // ends with the opening, which Close cancels and waits for
		defer close(a.opened)
		if conn, err := c.handshakes.connect(ctx, u); err == nil {
			a.conn, a.at = conn, time.Now()
		}
	}()
	return a
}

// take gives the connection to one request, once it is open; nil when there is none that is fit for it.
func (a *Ahead) take(ctx context.Context, u *url.URL) net.Conn {
	select {
	case <-a.claim:
	default:
		return nil
	}
	select {
	case <-a.opened:
	case <-ctx.Done():
		a.claim <- struct{}{}
		return nil
	}
	if a.conn == nil || hostPort(u) != a.address {
		a.claim <- struct{}{}
		return nil
	}
	if time.Since(a.at) > aheadFor {
		_ = a.conn.Close() // it carried nothing
		return nil
	}
	return a.conn
}

// Close gives up what no command took. It may be called more than once, and on a nil Ahead.
func (a *Ahead) Close() {
	if a == nil {
		return
	}
	a.cancel()
	<-a.opened
	select {
	case <-a.claim:
		if a.conn != nil {
			_ = a.conn.Close() // it carried nothing
		}
	default:
	}
}
