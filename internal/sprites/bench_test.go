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
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// bench is an emulator with a warm Sprite, for a benchmark.
type bench struct {
	*sprites.Client
	emu  *emulator.Server
	runs int
}

func newBench(b *testing.B, change func(*emulator.Config)) *bench {
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
	return &bench{Client: c, emu: emu}
}

// sdk runs the official SDK under the Node that its own checks installed, and reports its time per run.
func (s *bench) sdk(b *testing.B, kind string) {
	b.Helper()
	const folder = "emulator/sdk/node_modules"
	node, err := filepath.Abs(folder + "/.bin/node")
	if err == nil {
		_, err = os.Stat(node)
	}
	if err != nil {
		b.Skip("the SDK's checks have not installed it (emulator/sdk/run.sh)")
	}
	sdk, err := filepath.Abs(folder + "/@fly/sprites")
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(node, "testdata/sdk.mjs", sdk, kind, strconv.Itoa(b.N))
	cmd.Env = append(os.Environ(), "EMULATOR_URL="+s.emu.URL(), "EMULATOR_TOKEN="+s.emu.Token())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	took, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op") // Node's own start is in it
	b.ReportMetric(took/1e6/float64(b.N), "ms/sdk")
	if b.N > 0 && kind == "stdout" {
		b.ReportMetric(256*float64(b.N)/(took/1e9), "MiB/s")
	}
}

// run runs a guarded command and counts its output.
func (s *bench) run(b *testing.B, argv ...string) (bytes int64) {
	b.Helper()
	s.runs++
	p, err := s.Start(b.Context(), sprites.Command{Sprite: "box", Guard: fmt.Sprint("bench.", s.runs), Job: "bench", Argv: argv, Limit: time.Hour})
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

// BenchmarkExecTrueWarm is one `true` on a warm Sprite: ours under its guard, ours without, and the official SDK's, which
// has none. With instant the emulator starts no process, so that what is left is the clients' own. The client's runs take
// turns, so that both see the same machine.
func BenchmarkExecTrueWarm(b *testing.B) {
	for name, instant := range map[string]bool{"processes": false, "instant": true} {
		s := newBench(b, func(c *emulator.Config) { c.Instant = instant })
		b.Run(name+"/client", func(b *testing.B) {
			var guarded, bare time.Duration
			for b.Loop() {
				began := time.Now()
				s.run(b, "true")
				between := time.Now()
				if _, err := s.RunBare(b.Context(), "box", "true"); err != nil {
					b.Fatal(err)
				}
				guarded, bare = guarded+between.Sub(began), bare+time.Since(between)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(guarded.Seconds()*1000/float64(b.N), "ms/guarded")
			b.ReportMetric(bare.Seconds()*1000/float64(b.N), "ms/bare")
		})
		b.Run(name+"/sdk", func(b *testing.B) { s.sdk(b, "true") })
	}
}

// BenchmarkStdout256MiB streams 256 MiB of a real command's output. sys-MiB is all memory the process ever took, the
// emulator's included: it tells whether memory is flat.
func BenchmarkStdout256MiB(b *testing.B) {
	const size = 256 << 20
	s := newBench(b, func(*emulator.Config) {})
	b.Run("client", func(b *testing.B) {
		began := time.Now()
		for b.Loop() {
			if n := s.run(b, "head", "-c", strconv.Itoa(size), "/dev/zero"); n != size {
				b.Fatalf("%d bytes", n)
			}
		}
		b.ReportMetric(256*float64(b.N)/time.Since(began).Seconds(), "MiB/s")
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.Sys)/(1<<20), "sys-MiB")
	})
	b.Run("sdk", func(b *testing.B) { s.sdk(b, "stdout") })
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
