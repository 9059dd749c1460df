package sprites

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/rs/zerolog"
)

// headerMax bounds an answer's header; net/http's own bound is ten times as much.
const headerMax = 1 << 20

// Client speaks to one Sprites API on behalf of one organisation. All its methods may be called concurrently.
type Client struct {
	cfg     Config
	gate    Gate
	log     zerolog.Logger
	base    string // BaseURL without a trailing slash
	calls   *http.Client
	sockets *http.Client
	metrics *metrics
	// handshakes is the transport of sockets.
	handshakes *handshaker
}

// New returns a client. A nil gate is always open. It does not touch the network. The error lists every problem of cfg.
func New(gate Gate, cfg Config) (*Client, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("sprites config: %w", err)
	}
	if gate == nil {
		gate = openGate{}
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register sprites metrics: %w", err)
	}
	transport := cfg.Transport
	if transport == nil {
		t, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			return nil, errors.New("sprites config: transport must be given when net/http's default was replaced")
		}
		transport = t
	}
	plain, socket := transport.Clone(), transport.Clone()
	for _, t := range []*http.Transport{plain, socket} {
		setDefault(&t.MaxResponseHeaderBytes, headerMax)
	}
	plain.MaxIdleConnsPerHost = 64
	if cfg.ReceiveBuffer > 0 {
		socket.DialContext = narrow(socket.DialContext, cfg.ReceiveBuffer)
	}
	handshakes := newHandshaker(socket)
	return &Client{
		cfg: cfg, gate: gate, log: *cfg.Logger, base: strings.TrimRight(cfg.BaseURL, "/"), metrics: m, handshakes: handshakes,
		calls:   &http.Client{Transport: plain, CheckRedirect: noRedirect},
		sockets: &http.Client{Transport: handshakes, CheckRedirect: noRedirect},
	}, nil
}

// Close drops idle connections. Processes and terminals are closed by their owners.
func (c *Client) Close() error {
	c.calls.CloseIdleConnections()
	c.sockets.CloseIdleConnections()
	return nil
}

// noRedirect keeps the token on its own host: a redirect is an answer, not a place to go.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// spriteURL joins the address of something inside a Sprite. The name was validated; the other segments are escaped.
func (c *Client) spriteURL(name string, query url.Values, segments ...string) string {
	var b strings.Builder
	b.WriteString(c.base)
	b.WriteString("/v1/sprites")
	if name != "" {
		b.WriteByte('/')
		b.WriteString(name)
	}
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	if len(query) > 0 {
		b.WriteByte('?')
		b.WriteString(query.Encode())
	}
	return b.String()
}
