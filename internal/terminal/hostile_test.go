package terminal_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/terminal"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// A socket whose other end is gone without a word is found by a ping, and its place is free again.
func TestAHalfOpenSocketIsFoundAndItsPlaceIsFree(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *terminal.Config) { c.MaxViewers, c.PingEvery = 1, 20*time.Millisecond })
	p := b.open("ann.owner.home")
	p.pause(true)
	b.shell(0).print("wakes the reader")
	p.until("the reader stopped", func(p *peer) bool { return len(p.out) > 0 })
	b.pass(time.Minute / 2)
	for {
		q := b.dial("bob.owner.home")
		q.until("an answer", func(p *peer) bool { return p.answered || p.ended })
		if q.answered {
			return
		}
	}
}

// Who connects and says nothing holds a socket for the hello's time only.
func TestASilentSocketIsToldWhyItIsClosed(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *terminal.Config) { c.HelloTimeout = 20 * time.Millisecond })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn := b.silent(ctx)
	var said []string
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			if status := websocket.CloseStatus(err); status != 4408 {
				t.Errorf("closed by %v, want 4408", err)
			}
			break
		}
		said = append(said, string(data))
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "No hello came within 20ms.") || !strings.Contains(all, `"slow"`) {
		t.Errorf("was told %s", all)
	}
}

func TestAFullGatewayTakesASocketOnlyWhenOneIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *terminal.Config) { c.MaxSockets = 1 })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn := b.silent(ctx)
	if _, err := b.try("bob.owner.home"); err == nil {
		t.Fatal("a full gateway took a socket")
	}
	conn.CloseNow()
	for ctx.Err() == nil {
		if q, err := b.try("bob.owner.home"); err == nil { // until then the silent one's place is not free yet
			q.until("live", func(p *peer) bool { return p.answered })
			return
		}
	}
	t.Error("a place was never free again")
}

// silent opens a socket that says nothing.
func (b *bench) silent(ctx context.Context) *websocket.Conn {
	b.t.Helper()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(b.srv.URL, "http")+"/v1/terminal", &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {origin}}, Subprotocols: []string{frame.Protocol, frame.TicketPrefix + "ann.owner.home.0"}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// Whatever one socket sends, its own terminal answers by errors or a close, and another's goes on.
func TestHostileFramesEndNobodyElsesTerminal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.open("bob.owner.quiet")
	for name, attack := range map[string]func(p *peer) error{
		"garbage": func(p *peer) error {
			for range 10_000 {
				if err := p.trySend(websocket.MessageText, []byte(`{"type":`)); err != nil {
					return err
				}
			}
			return nil
		},
		"hellos": func(p *peer) error {
			hello := frame.Client{Type: frame.TypeHello, ClientID: "x"}
			for range 10_000 {
				if err := p.trySend(websocket.MessageText, hello.Encode()); err != nil {
					return err
				}
			}
			return nil
		},
		"a huge frame": func(p *peer) error { return p.trySend(websocket.MessageBinary, make([]byte, 8<<20)) },
		"large pastes": func(p *peer) error {
			for range 200 {
				if err := p.trySend(websocket.MessageBinary, make([]byte, 512<<10)); err != nil {
					return err
				}
			}
			return nil
		},
		"empty frames": func(p *peer) error {
			for range 10_000 {
				if err := p.trySend(websocket.MessageBinary, nil); err != nil {
					return err
				}
			}
			return nil
		},
		"sizes": func(p *peer) error {
			for i := range 10_000 {
				if err := p.trySend(websocket.MessageText, frame.Client{Type: frame.TypeResize, Size: frame.Size{Cols: 1 + i%1000, Rows: 1 + i%1000}}.Encode()); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		p := b.open("mallory.owner." + strings.ReplaceAll(name, " ", "-"))
		if attack(p) == nil {
			bye := frame.Client{Type: frame.TypeDetach}
			_ = p.trySend(websocket.MessageText, bye.Encode()) // it may have been closed by now
		}
		p.until(name+" over", func(p *peer) bool { return p.ended })
		typed := "after " + name
		other.types(typed)
		b.shell(0).until(func(s *shell) bool { return strings.HasSuffix(string(s.typed), typed) })
	}
}

func (p *peer) trySend(typ websocket.MessageType, data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.conn.Write(ctx, typ, data)
}
