package attach

import (
	"context"
	"fmt"
	"time"

	"github.com/coder/websocket"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// client is one attachment over all its connections. Run's goroutine owns it.
type client struct {
	cfg     Config
	address string
	keys    chan []byte // closed at the end of the input
	escape  escape
	typed   backlog
	ending  ending

	session  string
	offset   int64
	tail     []byte
	arrived  int64 // the last ack of this connection
	answered bool  // the session of this connection is known: input may be sent
	replay   bool
	lived    bool // it was live once
	end      *End
	retry    time.Duration
	message  string
}

// Run attaches until the shell ends, the person detaches, the gateway refuses, or ctx ends, which detaches. An error
// means that the gateway could not be reached at all, or not for longer than Config.Patience.
func Run(ctx context.Context, cfg Config) (End, error) {
	cfg.setDefaults()
	address, err := cfg.address()
	if err != nil {
		return End{}, err
	}
	c := &client{cfg: cfg, address: address, keys: make(chan []byte)}
	done := make(chan struct{})
	defer close(done)
	go c.read(done) // ends with Config.Input or with done; see Config.Input
	since, pause := time.Now(), cfg.Pause
	for {
		err := c.connection(ctx)
		switch {
		case c.end != nil:
			return *c.end, nil
		case ctx.Err() != nil:
			return End{Reason: frame.ReasonDetached}, nil
		case c.answered:
			since, pause = time.Now(), cfg.Pause
			c.cfg.Notice("connection lost, coming back")
		case !c.lived || time.Since(since) > cfg.Patience:
			return End{Reason: frame.ReasonGone}, err
		}
		wait := max(pause, c.retry)
		if pause = min(pause*2, 5*time.Second); !c.rest(ctx, wait) {
			return End{Reason: frame.ReasonDetached}, nil
		}
	}
}

// rest waits between connections; what is typed meanwhile is kept, and the detach key works. False when detached.
func (c *client) rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		case p, ok := <-c.input():
			if !c.press(p, ok) {
				return false
			}
		}
	}
}

// read passes the keyboard on.
func (c *client) read(done <-chan struct{}) {
	defer close(c.keys)
	buf := make([]byte, frame.MaxInput)
	for {
		n, err := c.cfg.Input.Read(buf)
		if n > 0 {
			select {
			case c.keys <- append([]byte(nil), buf[:n]...):
			case <-done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// input is the keyboard, unless too much of it waits already.
func (c *client) input() <-chan []byte {
	if c.typed.full() {
		return nil
	}
	return c.keys
}

// press takes what was typed; false when the person detaches. The input's end is typed as Ctrl-D; see ending.
func (c *client) press(p []byte, ok bool) bool {
	if !ok {
		c.keys = nil
		c.typed.add([]byte{4})
		c.ending.begin(c.cfg.EndPause)
		return true
	}
	out, detach := c.escape.filter(p)
	c.typed.add(out)
	return !detach
}

// take handles one frame.
func (c *client) take(ctx context.Context, conn *websocket.Conn, m message) error {
	if !m.text {
		return c.show(ctx, conn, m.data)
	}
	f, err := frame.ParseServer(m.data)
	if err != nil {
		return err
	}
	switch f.Type {
	case frame.TypePhase:
		c.phase(f)
	case frame.TypeAck:
		c.arrived = *f.Input
		if c.answered {
			c.typed.ack(c.arrived)
		}
	case frame.TypeGap:
		return c.gap(f)
	case frame.TypeError:
		c.message = f.Message
		if !*f.Fatal {
			c.cfg.Notice(f.Message)
		}
	case frame.TypeClosed:
		c.closed(f)
	case frame.TypeHello, frame.TypeResize, frame.TypeGrant, frame.TypeDetach:
	}
	return nil
}

// show writes output and tells the gateway how far it got, so that a slow terminal is not flooded.
func (c *client) show(ctx context.Context, conn *websocket.Conn, p []byte) error {
	c.offset += int64(len(p))
	c.tail = append(c.tail, p[max(0, len(p)-frame.MaxTail):]...)
	c.tail = append([]byte(nil), c.tail[max(0, len(c.tail)-frame.MaxTail):]...)
	if c.replay {
		p = withoutQueries(p)
	}
	if _, err := c.cfg.Output.Write(p); err != nil {
		return fmt.Errorf("write to terminal: %w", err)
	}
	ack := frame.Client{Type: frame.TypeAck, Output: c.offset}
	return send(ctx, conn, websocket.MessageText, ack.Encode())
}

func (c *client) phase(f frame.Server) {
	switch f.Phase {
	case frame.PhaseWaking:
		c.cfg.Notice("waking the sandbox")
	case frame.PhaseAttaching:
	case frame.PhaseReplaying, frame.PhaseLive:
		c.replay = f.Phase == frame.PhaseReplaying
		c.lived = true
		if f.Offset != nil {
			c.offset = *f.Offset
		}
		c.know(f.Session)
	}
}

// know learns which session answers. In another one than before the old counts mean nothing.
func (c *client) know(session string) {
	if c.answered {
		return
	}
	c.answered = true
	if session == c.session {
		c.typed.resume(c.arrived)
		return
	}
	lost := c.typed.restart()
	if c.session != "" && lost > 0 {
		c.cfg.Notice(fmt.Sprintf("input lost: %d typed bytes may not have arrived", lost))
	}
	c.session = session
	c.typed.resume(c.arrived)
}

// gap says what is missing; when nobody knows how much, the screen begins anew.
func (c *client) gap(f frame.Server) error {
	text := "\x1bc"
	if f.Bytes != nil {
		c.offset += *f.Bytes
		text = fmt.Sprintf("\x18\x1b[0m\r\n[%d bytes were skipped]\r\n", *f.Bytes)
	}
	c.tail = nil
	if _, err := c.cfg.Output.Write([]byte(text)); err != nil {
		return fmt.Errorf("write to terminal: %w", err)
	}
	return nil
}

// closed decides whether to come back.
func (c *client) closed(f frame.Server) {
	c.retry = min(time.Duration(f.RetryAfterMs)*time.Millisecond, 10*time.Second)
	switch f.Reason {
	case frame.ReasonRestarting, frame.ReasonSlow:
		return
	case frame.ReasonFailed:
		if c.lived {
			return
		}
	case frame.ReasonExited, frame.ReasonGone, frame.ReasonDetached, frame.ReasonRevoked, frame.ReasonDenied, frame.ReasonReplaced,
		frame.ReasonTooMany:
	}
	c.end = &End{Reason: f.Reason, ExitCode: f.ExitCode, Message: c.message}
}
