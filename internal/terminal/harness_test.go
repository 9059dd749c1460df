package terminal_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// patience is how long a test waits for what must happen before it calls the wait hopeless.
const patience = 20 * time.Second

const origin = "https://app.example"

// bench is a gateway with a fake world around it.
type bench struct {
	*world
	t    testing.TB
	gw   *terminal.Gateway
	srv  *httptest.Server
	tick chan time.Time
	stop func() // ends Run and waits for it
}

var serial atomic.Int64

var refusedEdit = &terminal.Refused{Reason: "no_edit_access"}

// setup starts a gateway in a world of its own.
func setup(t testing.TB, change ...func(*terminal.Config)) *bench {
	return setupIn(t, newWorld(), change...)
}

// setupIn starts another gateway in a world.
func setupIn(t testing.TB, w *world, change ...func(*terminal.Config)) *bench {
	t.Helper()
	return setupWith(t, w, nil, change...)
}

// setupWith takes other shells than the world's; nil takes those.
func setupWith(t testing.TB, w *world, other terminal.Shells, change ...func(*terminal.Config)) *bench {
	t.Helper()
	b := &bench{world: w, t: t, tick: make(chan time.Time)}
	cfg := terminal.Config{Name: fmt.Sprintf("gw%d", serial.Add(1)), Origins: []string{origin}, Now: w.time,
		Tick:        func(time.Duration) (<-chan time.Time, func()) { return b.tick, func() {} },
		SettleQuiet: 20 * time.Millisecond, ReattachDelay: time.Millisecond, LookPatience: 200 * time.Millisecond,
		DrainWindow: 20 * time.Millisecond, PaceHold: 50 * time.Millisecond}
	for _, c := range change {
		c(&cfg)
	}
	s := side{world: w, gateway: cfg.Name}
	if other == nil {
		other = shells{s}
	}
	gw, err := terminal.New(terminal.Deps{Gatekeeper: s, Opener: opener{s}, Shells: other, Records: records{s}, Leases: leases{s}, Journal: s}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.gw, b.srv = gw, httptest.NewServer(gw.Handler())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gw.Run(ctx) }()
	var once sync.Once
	b.stop = func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(func() {
		w.set(func(w *world) { // nothing may hold a test's end up
			for _, s := range w.order {
				s.set(func(s *shell) { s.deaf = false })
			}
		})
		b.stop()
		b.srv.Close()
	})
	return b
}

// pass lets time go by and the gateway look after its sessions once; it returns when that is done.
func (b *bench) pass(d time.Duration) {
	b.set(func(w *world) { w.now = w.now.Add(d) })
	b.tick <- b.time()
	b.tick <- b.time() // taken only once the first tick is over
}

// peer is a test's browser. It collects what it is sent.
type peer struct {
	t      testing.TB
	conn   *websocket.Conn
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	cond     *sync.Cond
	out      []byte // every byte of output, or the newest
	keep     int    // at least so many of them; 0 is all
	frames   []frame.Server
	session  string
	offset   int64
	input    int64 // acked
	status   websocket.StatusCode
	ended    bool
	paused   bool
	answered bool // phase live was seen
}

type dialOpts = websocket.DialOptions

type dialOption func(*frame.Client, *websocket.DialOptions)

func from(origin string) dialOption {
	return func(_ *frame.Client, o *websocket.DialOptions) { o.HTTPHeader = http.Header{"Origin": {origin}} }
}

// returning makes a hello of a client that comes back.
func returning(p *peer) dialOption {
	return func(h *frame.Client, _ *websocket.DialOptions) {
		p.mu.Lock()
		defer p.mu.Unlock()
		h.Session, h.Offset = p.session, p.offset
		h.Tail = append([]byte(nil), p.out[max(0, len(p.out)-frame.MaxTail):]...)
	}
}

func sized(cols, rows int) dialOption {
	return func(h *frame.Client, _ *websocket.DialOptions) { h.Size = frame.Size{Cols: cols, Rows: rows} }
}

func flow(h *frame.Client, _ *websocket.DialOptions) { h.Flow = true }

// try dials and says hello; who is user.role.page, and also the client's name.
func (b *bench) try(who string, opts ...dialOption) (*peer, error) {
	b.t.Helper()
	parts := strings.Split(who, ".")
	hello := frame.Client{Type: frame.TypeHello, Page: parts[2], ClientID: strings.ReplaceAll(who, ".", "-"), Size: frame.Size{Cols: 80, Rows: 24}}
	o := &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}},
		Subprotocols: []string{frame.Protocol, frame.TicketPrefix + fmt.Sprintf("%s.%d", who, serial.Add(1))}}
	for _, opt := range opts {
		opt(&hello, o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(b.srv.URL, "http")+"/v1/terminal", o)
	if err != nil {
		return nil, err
	}
	return newPeer(b.t, conn, hello)
}

// newPeer says hello and collects what comes until the test ends.
func newPeer(t testing.TB, conn *websocket.Conn, hello frame.Client) (*peer, error) {
	conn.SetReadLimit(1 << 20)
	p := &peer{t: t, conn: conn, done: make(chan struct{})}
	p.cond = sync.NewCond(&p.mu)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, hello.Encode()); err != nil {
		return nil, err
	}
	read, stop := context.WithCancel(context.Background())
	p.cancel = stop
	go p.collect(read)
	t.Cleanup(p.vanish)
	return p, nil
}

func (b *bench) dial(who string, opts ...dialOption) *peer {
	b.t.Helper()
	p, err := b.try(who, opts...)
	if err != nil {
		b.t.Fatalf("dial as %s: %v", who, err)
	}
	return p
}

// open dials and waits until the terminal is live.
func (b *bench) open(who string, opts ...dialOption) *peer {
	b.t.Helper()
	p := b.dial(who, opts...)
	p.until("phase live", func(p *peer) bool { return p.answered })
	return p
}

func (p *peer) collect(ctx context.Context) {
	defer close(p.done)
	for {
		p.mu.Lock()
		for p.paused {
			p.cond.Wait()
		}
		p.mu.Unlock()
		typ, data, err := p.conn.Read(ctx)
		p.mu.Lock()
		switch {
		case err != nil:
			p.ended, p.status = true, websocket.CloseStatus(err)
		case typ == websocket.MessageBinary:
			p.out = append(p.out, data...)
			if p.keep > 0 && len(p.out) > 2*p.keep {
				p.out = append(p.out[:0], p.out[len(p.out)-p.keep:]...)
			}
			p.offset += int64(len(data))
		default:
			p.control(data)
		}
		p.cond.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *peer) control(data []byte) {
	f, err := frame.ParseServer(data)
	if err != nil {
		p.t.Errorf("bad frame %s: %v", data, err)
		return
	}
	p.frames = append(p.frames, f)
	switch f.Type {
	case frame.TypePhase:
		if f.Offset != nil {
			if f.Phase == frame.PhaseLive && p.session == f.Session && p.offset != *f.Offset {
				p.t.Errorf("live at offset %d, but %d bytes were sent", *f.Offset, p.offset)
			}
			p.session, p.offset = f.Session, *f.Offset
		}
		p.answered = p.answered || f.Phase == frame.PhaseLive
	case frame.TypeGap:
		if f.Bytes != nil {
			p.offset += *f.Bytes
		}
	case frame.TypeAck:
		p.input = *f.Input
	case frame.TypeError, frame.TypeClosed, frame.TypeHello, frame.TypeResize, frame.TypeGrant, frame.TypeDetach:
	}
}

// until waits for a condition on the peer and fails the test when it does not come.
func (p *peer) until(what string, ok func(*peer) bool) {
	p.t.Helper()
	limit := time.AfterFunc(patience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})
	defer limit.Stop()
	begun := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !ok(p) {
		if time.Since(begun) >= patience {
			p.t.Fatalf("waited in vain for %s; output %q, frames %s, ended %v with %d", what, tailOf(p.out), p.said(), p.ended, p.status)
		}
		p.cond.Wait()
	}
}

func tailOf(b []byte) []byte { return b[max(0, len(b)-300):] }

func (p *peer) said() string {
	var out strings.Builder
	for _, f := range p.frames[max(0, len(p.frames)-12):] {
		out.Write(f.Encode())
	}
	return out.String()
}

func (p *peer) sees(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("%q", text), func(p *peer) bool { return bytes.Contains(p.out, []byte(text)) })
}

// has waits for a frame.
func (p *peer) has(what string, ok func(frame.Server) bool) frame.Server {
	p.t.Helper()
	var found frame.Server
	p.until(what, func(p *peer) bool {
		for _, f := range p.frames {
			if ok(f) {
				found = f
				return true
			}
		}
		return false
	})
	return found
}

func (p *peer) errored(code frame.Code) frame.Server {
	p.t.Helper()
	return p.has("error "+string(code), func(f frame.Server) bool { return f.Type == frame.TypeError && f.Code == code })
}

// closes waits for the end and checks its code.
func (p *peer) closes(status int) frame.Server {
	p.t.Helper()
	p.until(fmt.Sprintf("close %d", status), func(p *peer) bool { return p.ended })
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(p.status) != status {
		p.t.Fatalf("closed with %d, want %d; frames %s", p.status, status, p.said())
	}
	for _, f := range p.frames {
		if f.Type == frame.TypeClosed {
			return f
		}
	}
	p.t.Fatalf("closed without saying why")
	return frame.Server{}
}

func (p *peer) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.out)
}

func (p *peer) send(typ websocket.MessageType, data []byte) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.conn.Write(ctx, typ, data); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

func (p *peer) types(text string) { p.t.Helper(); p.send(websocket.MessageBinary, []byte(text)) }

func (p *peer) says(c frame.Client) { p.t.Helper(); p.send(websocket.MessageText, c.Encode()) }

func (p *peer) resizes(cols, rows int) {
	p.says(frame.Client{Type: frame.TypeResize, Size: frame.Size{Cols: cols, Rows: rows}})
}

// pause stops reading, resume goes on.
func (p *peer) pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = on
	p.cond.Broadcast()
}

// leaves detaches; the gateway has noticed when it returns.
func (p *peer) leaves() {
	p.t.Helper()
	p.says(frame.Client{Type: frame.TypeDetach})
	p.closes(frame.StatusEnded)
}

// vanish breaks the connection without a word.
func (p *peer) vanish() {
	p.pause(false)
	p.cancel()
	_ = p.conn.CloseNow()
	<-p.done
}
