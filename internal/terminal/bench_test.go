package terminal_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// echoProgram answers each byte with itself.
const echoProgram = "stty raw -echo; echo go; exec cat\r"

// report gives the times' percentiles in microseconds.
func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	at := func(p float64) float64 { return float64(times[int(p*float64(len(times)-1))].Microseconds()) }
	b.ReportMetric(at(.5), "p50-µs")
	b.ReportMetric(at(.99), "p99-µs")
	b.ReportMetric(0, "ns/op")
}

// echo times b.N keys through a gateway. The client reads with no goroutine of its own, as the straight one does.
func echo(b *testing.B, s *stack, url, page string) {
	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(url, "http")+"/v1/terminal", &websocket.DialOptions{Subprotocols: []string{frame.Protocol}})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.CloseNow()
	hello := frame.Client{Type: frame.TypeHello, Page: page, ClientID: "bench", Size: frame.Size{Cols: 80, Rows: 24}}
	if err := conn.Write(ctx, websocket.MessageText, hello.Encode()); err != nil {
		b.Fatal(err)
	}
	until := func(want []byte) {
		var got []byte
		for !bytes.Contains(got, want) {
			typ, data, err := conn.Read(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if typ == websocket.MessageBinary {
				got = append(got, data...)
			}
		}
	}
	until([]byte("$"))
	if err := conn.Write(ctx, websocket.MessageBinary, []byte(echoProgram)); err != nil {
		b.Fatal(err)
	}
	until([]byte("go\n"))
	times := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begun := time.Now()
		if err := conn.Write(ctx, websocket.MessageBinary, []byte("k")); err != nil {
			b.Fatal(err)
		}
		until([]byte("k"))
		times = append(times, time.Since(begun))
	}
	report(b, times)
}

// BenchmarkEcho compares a key's way there and back through the gateway with the way straight to the emulator's
// WebSocket, and with the way through the gateway while another terminal floods.
func BenchmarkEcho(b *testing.B) {
	s := newStackWith(b, map[string]string{"WAKEBUS_LIMIT_TERMINAL": "free=10"})
	app, _ := s.gateway()
	b.Run("gateway", func(b *testing.B) { echo(b, s, app.URL(), "echo") })
	b.Run("straight", func(b *testing.B) {
		ctx := context.Background()
		p, err := s.client().OpenPTY(ctx, sprites.PTYRequest{Sprite: s.emulator.Sprites()[0].Name})
		if err != nil {
			b.Fatal(err)
		}
		defer p.Close()
		buf := make([]byte, 4096)
		until := func(want []byte) {
			var got []byte
			for !bytes.Contains(got, want) {
				n, err := p.Read(buf)
				if err != nil {
					b.Fatal(err)
				}
				got = append(got, buf[:n]...)
			}
		}
		until([]byte("$"))
		p.Write([]byte(echoProgram))
		until([]byte("go\n"))
		times := make([]time.Duration, 0, b.N)
		for b.Loop() {
			begun := time.Now()
			p.Write([]byte("k"))
			until([]byte("k"))
			times = append(times, time.Since(begun))
		}
		report(b, times)
	})
	b.Run("beside-a-flood", func(b *testing.B) {
		flooded := s.dial(app, "flood", asBob)
		flooded.until("live", func(p *peer) bool { return p.answered })
		flooded.types("yes\r")
		flooded.sees("y\r\ny\r\n")
		echo(b, s, app.URL(), "echo2")
	})
}

// asBob is another person of the dev instance, who has a slot of their own.
func asBob(_ *frame.Client, o *websocket.DialOptions) {
	o.Subprotocols = append(o.Subprotocols, frame.TicketPrefix+"eyJzdWIiOiJib2IifQ") // {"sub":"bob"}
}

// BenchmarkReattach is the time from a dial to live, with a screen of history, on a shell that the gateway holds.
func BenchmarkReattach(b *testing.B) {
	w := benchWorld(b)
	p := w.open("ann.owner.home")
	w.shell(0).print(strings.Repeat("a line of history that fills the screen\r\n", 40))
	p.sees("history")
	var times []time.Duration
	for b.Loop() {
		begun := time.Now()
		q := w.open("ann.owner.home", returning(p))
		times = append(times, time.Since(begun))
		q.vanish()
	}
	report(b, times)
}

func benchWorld(b *testing.B) *bench { return setup(b) }

// BenchmarkIdleTerminal is what one idle terminal holds in memory, with its browser's socket at both ends and without
// the socket to its sandbox.
func BenchmarkIdleTerminal(b *testing.B) {
	const terminals = 2000
	for b.Loop() {
		w := benchWorld(b)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		conns := make([]*websocket.Conn, terminals)
		for i := range conns {
			conns[i] = w.idle(fmt.Sprintf("ann%d.owner.page%d", i, i))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		used := after.HeapInuse + after.StackInuse - before.HeapInuse - before.StackInuse
		b.ReportMetric(float64(used)/terminals/1024, "KiB/terminal")
		for _, c := range conns {
			c.CloseNow()
		}
	}
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
		typ, data, err := conn.Read(ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		if typ == websocket.MessageText && bytes.Contains(data, []byte(`"live"`)) {
			return conn
		}
	}
}
