package emulator_test

import (
	"testing"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// What the emulator itself costs: the floor under every figure that is measured
// through it.
func BenchmarkExecTrue(b *testing.B) {
	for name, instant := range map[string]bool{"instant": true, "process": false} {
		b.Run(name, func(b *testing.B) {
			s := serve(b, emulator.Config{Instant: instant})
			for b.Loop() {
				s.once(b, command("true"))
			}
		})
	}
}

func BenchmarkOutput(b *testing.B) {
	const size = 64 << 20
	for name, instant := range map[string]bool{"instant": true, "process": false} {
		b.Run(name, func(b *testing.B) {
			s := serve(b, emulator.Config{Instant: instant})
			b.SetBytes(size)
			for b.Loop() {
				s.once(b, command("head", "-c", "67108864", "/dev/zero"))
			}
		})
	}
}

type benchServer struct{ *bench }

func serve(tb testing.TB, cfg emulator.Config) benchServer {
	tb.Helper()
	cfg.WarmWake, cfg.ColdWake = -1, -1
	b := setupIn(tb, cfg)
	b.create("one")
	s := benchServer{b}
	s.once(tb, command("true"))
	return s
}

func (s benchServer) once(tb testing.TB, q map[string][]string) {
	tb.Helper()
	ws, _, err := s.dial("/v1/sprites/one/exec", q)
	if err != nil {
		tb.Fatal(err)
	}
	for {
		kind, data, err := ws.Read(s.ctx())
		if err != nil {
			tb.Fatal(err)
		}
		if kind == websocket.MessageBinary && data[0] == 3 {
			_ = ws.Close(websocket.StatusNormalClosure, "")
			return
		}
	}
}
