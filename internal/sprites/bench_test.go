package sprites_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// benchBox starts an emulator and a warm Sprite for a benchmark.
func benchBox(b *testing.B, change func(*emulator.Config)) *sprites.Client {
	b.Helper()
	cfg := emulator.Config{Idle: time.Hour}
	change(&cfg)
	emu, err := emulator.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	if err := emu.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	c, err := sprites.New(nil, sprites.Config{BaseURL: emu.URL(), Token: emu.Token()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Close()
		_ = emu.Close()
	})
	if _, err := c.Provision(b.Context(), request()); err != nil {
		b.Fatal(err)
	}
	return c
}

func benchRun(b *testing.B, c *sprites.Client, run string, argv ...string) (bytes int64) {
	b.Helper()
	p, err := c.Start(b.Context(), sprites.Command{Sprite: "box", Guard: run, Job: "bench", Argv: argv, Limit: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for {
		chunk, err := p.Next(b.Context())
		if err == io.EOF {
			return bytes
		}
		if err != nil {
			b.Fatal(err)
		}
		bytes += int64(len(chunk.Data))
	}
}

// BenchmarkExecTrueWarm is one guarded `true` on a warm Sprite of the emulator, real processes and all.
func BenchmarkExecTrueWarm(b *testing.B) {
	c := benchBox(b, func(*emulator.Config) {})
	i := 0
	for b.Loop() {
		i++
		benchRun(b, c, fmt.Sprintf("bench.true.%d", i), "true")
	}
}

// BenchmarkStdout256MiB streams 256 MiB of a real command's output; the peak of live heap tells whether memory is flat.
func BenchmarkStdout256MiB(b *testing.B) {
	const size = 256 << 20
	c := benchBox(b, func(*emulator.Config) {})
	b.SetBytes(size)
	i := 0
	for b.Loop() {
		i++
		if n := benchRun(b, c, fmt.Sprintf("bench.out.%d", i), "head", "-c", fmt.Sprint(size), "/dev/zero"); n != size {
			b.Fatalf("%d bytes", n)
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/(1<<20), "sys-MiB")
}

// BenchmarkIdleConnections holds 1,000 commands that say nothing. The server keeps no more than the file descriptor, so
// that what is measured is the client's.
func BenchmarkIdleConnections(b *testing.B) {
	const count = 1000
	held := make(chan net.Conn, count)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			b.Error(err)
			return
		}
		upgrade(rw.Writer, r.Header.Get("Sec-WebSocket-Key"))
		held <- conn
	}))
	defer srv.Close()
	c, err := sprites.New(nil, sprites.Config{BaseURL: srv.URL, Token: "t"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		before := inUse()
		procs := make([]*sprites.Process, count)
		for i := range procs {
			if procs[i], err = c.Start(b.Context(), sprites.Command{Sprite: "box", Guard: fmt.Sprint("g", i), Argv: []string{"cat"}, Limit: time.Hour}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(inUse()-before)/count/1024, "KiB/conn")
		for _, p := range procs {
			_ = p.Close()
			_ = (<-held).Close()
		}
	}
}

// upgrade answers a handshake by hand and introduces a session.
func upgrade(w *bufio.Writer, key string) {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, section 1.3
	_, _ = fmt.Fprintf(w, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	info := `{"type":"session_info","session_id":"1","created":1}`
	_, _ = w.Write(append([]byte{0x81, byte(len(info))}, info...))
	_ = w.Flush()
}

// inUse is what the heap and the stacks hold after a collection.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
