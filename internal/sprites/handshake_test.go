package sprites_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/wakebus/wakebus/internal/sprites"
)

// wired counts the connections that a client makes, and those that it has closed.
type wired struct {
	made, closed atomic.Int64
}

func (w *wired) transport(cfg *sprites.Config) {
	cfg.Transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w.made.Add(1)
		return &wiredConn{Conn: conn, w: w}, nil
	}}
}

type wiredConn struct {
	net.Conn
	w    *wired
	over atomic.Bool
}

func (c *wiredConn) Close() error {
	if !c.over.Swap(true) {
		c.w.closed.Add(1)
	}
	return c.Conn.Close()
}

// greeting is an exec that ends at once.
func greeting(p *peer) {
	p.info("1", 1)
	p.out(sprites.Stdout, "hello")
	p.exit(0)
}

func TestACommandRunsOverTLS(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", f.exec(greeting))
	secure := httptest.NewTLSServer(f.srv.Config.Handler)
	t.Cleanup(secure.Close)
	trusting, ok := secure.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("the server's client has another transport")
	}
	c := f.client(func(cfg *sprites.Config) { cfg.BaseURL, cfg.Transport = secure.URL, trusting })
	for _, ahead := range []*sprites.Ahead{nil, c.Ahead(t.Context())} {
		cmd := command()
		cmd.Ahead = ahead
		p, err := c.Start(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		if out, _, err := collect(t.Context(), p); out != "hello" || !errors.Is(err, io.EOF) && err != nil {
			t.Errorf("it printed %q and ended with %v", out, err)
		}
		_ = p.Close()
		ahead.Close()
	}
	distrustful := f.client(func(cfg *sprites.Config) { cfg.BaseURL = secure.URL })
	if _, err := distrustful.Start(t.Context(), command()); sprites.ClassOf(err) != sprites.ClassTransport {
		t.Errorf("a certificate that nobody vouches for gives %v", err)
	}
}

func TestAHandshakeTakesTheConnectionThatWasOpenedAhead(t *testing.T) {
	t.Parallel()
	f, w := newFake(t), new(wired)
	f.on("GET /box/exec", f.exec(greeting))
	c := f.client(w.transport)
	ahead := c.Ahead(t.Context())
	for n := 1; n <= 2; n++ {
		// The second command finds it taken and has one of its own: no connection carries two.
		cmd := command()
		cmd.Ahead = ahead
		p, err := c.Start(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Close()
		if made := int(w.made.Load()); made != n {
			t.Errorf("%d connections for %d commands", made, n)
		}
	}
	ahead.Close()
	if made, closed := w.made.Load(), w.closed.Load(); made != closed {
		t.Errorf("%d of %d connections were closed", closed, made)
	}
}

func TestAConnectionOpenedAheadThatNobodyTakesIsClosed(t *testing.T) {
	t.Parallel()
	f, w := newFake(t), new(wired)
	c := f.client(w.transport)
	ahead := c.Ahead(t.Context())
	ahead.Close()
	ahead.Close()
	if made, closed := w.made.Load(), w.closed.Load(); made != closed {
		t.Errorf("%d of %d connections were closed", closed, made)
	}
}

func TestAConnectionThatCouldNotBeOpenedAheadIsOpenedForTheDial(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box/exec", f.exec(greeting))
	c := f.client()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := command()
	cmd.Ahead = c.Ahead(gone)
	defer cmd.Ahead.Close()
	p, err := c.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
}

func TestWhatGoesThroughAProxyIsNotConnectedDirectly(t *testing.T) {
	t.Parallel()
	f, w := newFake(t), new(wired)
	f.on("GET /box/exec", f.exec(greeting))
	asked := make(chan string, 8)
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Host
		rw.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := f.client(w.transport, func(cfg *sprites.Config) {
		cfg.Transport.Proxy = http.ProxyURL(address)
	})
	if c.Ahead(t.Context()) != nil {
		t.Error("a connection was opened past the proxy")
	}
	if _, err := c.Start(t.Context(), command()); sprites.ClassOf(err) != sprites.ClassUnauthorized {
		t.Errorf("the proxy's refusal gives %v", err)
	}
	if host := <-asked; "http://"+host != f.srv.URL {
		t.Errorf("the proxy was asked for %s", host)
	}
}

// answering is an API server that says the same bytes to each handshake and then nothing.
func answering(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, answer)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func TestAHandshakesAnswerIsBoundedAndReadToItsStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		want   sprites.Class
	}{
		"a head without end":         {"HTTP/1.1 101 Switching Protocols\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("x", 100)+"\r\n", 1000), sprites.ClassTransport},
		"interim answers for ever":   {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 50), sprites.ClassTransport},
		"interim, then a refusal":    {"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", sprites.ClassUnauthorized},
		"a refusal with a long body": {fmt.Sprintf("HTTP/1.1 422 Unprocessable\r\nContent-Length: %d\r\n\r\n%s", 1<<20, strings.Repeat("x", 1<<20)), sprites.ClassInvalid},
		"no HTTP":                    {"hello\r\n\r\n", sprites.ClassTransport},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			client := f.client(func(cfg *sprites.Config) { cfg.BaseURL = answering(t, c.answer) })
			if _, err := client.Start(t.Context(), command()); sprites.ClassOf(err) != c.want {
				t.Errorf("class %q, want %q: %v", sprites.ClassOf(err), c.want, err)
			}
		})
	}
}
