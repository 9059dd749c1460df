package terminal_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// echoProgram answers each byte with itself.
const echoProgram = "stty raw -echo; echo go; exec cat\r"

// times are what one way took, key by key.
type times []time.Duration

// at is a percentile in milliseconds.
func (t times) at(p float64) float64 {
	sorted := slices.Sorted(slices.Values(t))
	return float64(sorted[int(p*float64(len(sorted)-1))].Microseconds()) / 1000
}

func report(b *testing.B, name string, t times) {
	b.ReportMetric(t.at(.5), name+"-p50-ms")
	b.ReportMetric(t.at(.99), name+"-p99-ms")
	b.ReportMetric(0, "ns/op")
}

// key sends a key to a program that answers it and gives the time there and back.
type key func() time.Duration

// throughGateway opens a page and starts echoProgram. The client reads with no goroutine of its own, as the straight one
// does.
func throughGateway(b *testing.B, url, page string) key {
	b.Helper()
	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(url, "http")+"/v1/terminal", &websocket.DialOptions{Subprotocols: []string{frame.Protocol}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.CloseNow() })
	hello := frame.Client{Type: frame.TypeHello, Page: page, ClientID: "bench", Size: frame.Size{Cols: 80, Rows: 24}}
	if err := conn.Write(ctx, websocket.MessageText, hello.Encode()); err != nil {
		b.Fatal(err)
	}
	read := func() []byte {
		for {
			typ, data, err := conn.Read(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if typ == websocket.MessageBinary {
				return data
			}
		}
	}
	return echo(read, func(p []byte) {
		if err := conn.Write(ctx, websocket.MessageBinary, p); err != nil {
			b.Fatal(err)
		}
	})
}

// straight opens a terminal of its own on the sandbox of a page.
func straight(b *testing.B, s *stack) key {
	b.Helper()
	p, err := s.client().OpenPTY(context.Background(), sprites.PTYRequest{Sprite: s.emulator.Sprites()[0].Name})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	buf := make([]byte, 4096)
	read := func() []byte {
		n, err := p.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		return buf[:n]
	}
	return echo(read, func(k []byte) { p.Write(k) })
}

func echo(read func() []byte, write func([]byte)) key {
	until := func(want []byte) {
		var got []byte
		for !bytes.Contains(got, want) {
			got = append(got, read()...)
		}
	}
	until([]byte("$"))
	write([]byte(echoProgram))
	until([]byte("go\n"))
	return func() time.Duration {
		begun := time.Now()
		write([]byte("k"))
		until([]byte("k"))
		return time.Since(begun)
	}
}

// BenchmarkTerminalEcho is a key's way there and back through the gateway against the way straight to the emulator's
// WebSocket, one after the other, so that both meet the same machine.
func BenchmarkTerminalEcho(b *testing.B) {
	s := newStackWith(b, map[string]string{"WAKEBUS_LIMIT_TERMINAL": "free=10"})
	app, _ := s.gateway()
	gateway := throughGateway(b, app.URL(), "echo")
	direct := straight(b, s)
	for b.Loop() {
		var through, straight, added times
		for range 3000 {
			s, g := direct(), gateway()
			straight, through, added = append(straight, s), append(through, g), append(added, g-s)
		}
		report(b, "gateway", through)
		report(b, "straight", straight)
		b.ReportMetric(through.at(.5)-straight.at(.5), "added-p50-ms")
		b.ReportMetric(through.at(.99)-straight.at(.99), "added-p99-ms")
		b.ReportMetric(added.at(.99), "added-by-pair-p99-ms")
	}
}

// BenchmarkTerminalBesideAFlood is a key's way while another person's terminal floods, against the way while none does,
// turn and turn about. A flood lasts for 2,000 keys, most of a second: its first moments, in which every buffer between the
// program and the gateway fills up at full speed, are counted, but they are not what is measured.
func BenchmarkTerminalBesideAFlood(b *testing.B) {
	s := newStackWith(b, map[string]string{"WAKEBUS_LIMIT_TERMINAL": "free=10"})
	app, _ := s.gateway()
	gateway := throughGateway(b, app.URL(), "echo")
	flooded := s.dial(app, "flood", asBob)
	flooded.until("live", func(p *peer) bool { return p.answered })
	flooded.mu.Lock()
	flooded.keep = 64 << 10 // what a screen would keep: the flood's copy in this process is not the gateway's
	flooded.mu.Unlock()
	flooded.types("PS1='quiet '\r")
	for b.Loop() {
		var alone, beside times
		for round := range 5 {
			flooded.sees("quiet ")
			for range 2000 {
				alone = append(alone, gateway())
			}
			flooded.forget()
			flooded.types("yes\r")
			flooded.sees("y\r\ny\r\n")
			for range 2000 {
				beside = append(beside, gateway())
			}
			flooded.types(fmt.Sprintf("\x03echo; echo rou\"\"nd %d\r", round))
			flooded.sees(fmt.Sprintf("round %d", round))
		}
		report(b, "alone", alone)
		report(b, "beside", beside)
		b.ReportMetric(100*(beside.at(.99)/alone.at(.99)-1), "p99-change-%")
	}
}

// forget drops the output collected so far.
func (p *peer) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = nil
}

// asBob is another person of the dev instance, who has a slot of their own.
func asBob(_ *frame.Client, o *websocket.DialOptions) {
	o.Subprotocols = append(o.Subprotocols, frame.TicketPrefix+"eyJzdWIiOiJib2IifQ") // {"sub":"bob"}
}

// BenchmarkTerminalReattach is the time from a dial to live, with a screen of history, on a real shell that the gateway
// holds.
func BenchmarkTerminalReattach(b *testing.B) {
	s := newStack(b)
	app, _ := s.gateway()
	p := s.dial(app, "home")
	p.until("live", func(p *peer) bool { return p.answered })
	p.types("seq 1000 1040; echo hist\"\"ory\r")
	p.sees("history")
	for b.Loop() {
		var took times
		for range 2000 {
			begun := time.Now()
			q := s.dial(app, "home", returning(p))
			q.until("live", func(p *peer) bool { return p.answered })
			took = append(took, time.Since(begun))
			q.vanish()
		}
		report(b, "reattach", took)
	}
}

// BenchmarkTerminalIdle is what one idle terminal holds of the gateway's memory with real sockets to its browser and to
// its sandbox. Both are in this process too, so what they hold is measured without a gateway and taken off.
func BenchmarkTerminalIdle(b *testing.B) {
	const terminals = 2000
	for b.Loop() {
		peers := peersMemory(b, terminals)
		client, err := sprites.New(nil, sprites.Config{BaseURL: quietSprites(b), Token: "token"})
		if err != nil {
			b.Fatal(err)
		}
		w := setupWith(b, newWorld(), terminal.SpriteShells(client))
		conns := make([]*websocket.Conn, terminals)
		used := memory(func() {
			for i := range conns {
				conns[i] = w.idle(fmt.Sprintf("ann%d.owner.page%d", i, i))
			}
		})
		b.ReportMetric(float64(peers)/terminals/1024, "peers-KiB/terminal")
		b.ReportMetric(float64(used-peers)/terminals/1024, "KiB/terminal")
		b.ReportMetric(0, "ns/op")
		for _, c := range conns {
			c.CloseNow()
		}
		w.stop()
		client.Close()
	}
}

// memory is what fill leaves in use, in bytes of heap and stacks.
func memory(fill func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	fill()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapInuse + after.StackInuse - before.HeapInuse - before.StackInuse)
}

// peersMemory is what so many browsers and sandboxes hold: one end of a socket each.
func peersMemory(b *testing.B, n int) int64 {
	url, ctx := quietSprites(b), context.Background()
	conns := make([]*websocket.Conn, n)
	used := memory(func() {
		for i := range conns {
			conn, _, err := websocket.Dial(ctx, url, nil)
			if err != nil {
				b.Fatal(err)
			}
			for range 2 { // session_info and the prompt
				if _, _, err := conn.Read(ctx); err != nil {
					b.Fatal(err)
				}
			}
			conns[i] = conn
		}
	})
	for _, c := range conns {
		c.CloseNow()
	}
	return used
}

// quietSprites serves terminals that print a prompt and nothing more.
func quietSprites(b *testing.B) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		_ = conn.Write(r.Context(), websocket.MessageText, []byte(`{"type":"session_info","session_id":"7","created":1,"tty":true}`))
		_ = conn.Write(r.Context(), websocket.MessageBinary, []byte("$ "))
		for {
			_, frames, err := conn.Reader(r.Context())
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, frames)
		}
	}))
	b.Cleanup(srv.Close)
	return srv.URL
}

// idle opens a terminal and reads no further than its prompt.
func (b *bench) idle(who string) *websocket.Conn {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(b.srv.URL, "http")+"/v1/terminal", &websocket.DialOptions{
		HTTPHeader:   http.Header{"Origin": {origin}},
		Subprotocols: []string{frame.Protocol, frame.TicketPrefix + who}})
	if err != nil {
		b.t.Fatal(err)
	}
	hello := frame.Client{Type: frame.TypeHello, ClientID: "c", Size: frame.Size{Cols: 80, Rows: 24}}
	if err := conn.Write(ctx, websocket.MessageText, hello.Encode()); err != nil {
		b.t.Fatal(err)
	}
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		if bytes.Contains(data, []byte("$ ")) {
			return conn
		}
	}
}
