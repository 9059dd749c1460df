package emulator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

// controlPrefix marks the frames of the channel itself; all others belong to the
// running operation (Sprites API reference, control).
const controlPrefix = "control:"

type envelope struct {
	Type string         `json:"type"`
	Op   string         `json:"op,omitempty"`
	Args map[string]any `json:"args,omitempty"`
}

// channel is one control socket: operations one after another.
type channel struct {
	x   *exchange
	ws  *websocket.Conn
	ctx context.Context

	mu sync.Mutex // protects op
	op *talk      // nil while idle
	wg sync.WaitGroup
}

func (x *exchange) controlSocket() {
	if !x.srv.cfg.Control {
		x.text(http.StatusNotFound, "not found")
		return
	}
	ws, err := x.upgrade()
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ctx, cancel := context.WithCancel(x.r.Context())
	c := &channel{x: x, ws: ws, ctx: ctx}
	defer c.wg.Wait()
	defer cancel()
	for {
		kind, data, err := ws.Read(ctx)
		if err != nil {
			return
		}
		c.take(kind, data)
	}
}

func (c *channel) take(kind websocket.MessageType, data []byte) {
	raw, mine := strings.CutPrefix(string(data), controlPrefix)
	c.mu.Lock()
	op := c.op
	c.mu.Unlock()
	switch {
	case mine && kind == websocket.MessageText:
		var e envelope
		if json.Unmarshal([]byte(raw), &e) != nil || e.Type != "op.start" {
			return
		}
		c.start(e, op != nil)
	case op == nil: // "release" and the like, which go sends after each operation
	case kind == websocket.MessageText:
		op.command(data)
	default:
		c.input(op, data)
	}
}

// input tells apart what SDKs send as standard input: js and py number the
// stream, go sends it bare. js also sends commands as binary frames.
func (c *channel) input(op *talk, data []byte) {
	switch {
	case op.s.tty:
		op.input(data)
	case len(data) == 1 && data[0] == streamEOF, len(data) > 0 && data[0] == streamStdin:
		op.input(data)
	case strings.HasPrefix(string(data), `{"type":`):
		op.command(data)
	default:
		op.s.input.add(c.ctx, data)
	}
}

func (c *channel) reply(kind string, args map[string]any) {
	raw, err := json.Marshal(envelope{Type: kind, Args: args})
	if err == nil {
		_ = c.ws.Write(c.ctx, websocket.MessageText, append([]byte(controlPrefix), raw...))
	}
}

func (c *channel) start(e envelope, busy bool) {
	if busy || e.Op != "exec" {
		c.reply("op.error", map[string]any{"error": fmt.Sprintf("cannot start operation %q", e.Op)})
		return
	}
	op, err := c.open(e)
	if err != nil {
		c.reply("op.error", map[string]any{"error": err.Error()})
		return
	}
	c.mu.Lock()
	c.op = op
	c.mu.Unlock()
	c.wg.Go(func() { c.run(op) })
}

// open acquires the Sprite and starts or joins a session.
func (c *channel) open(e envelope) (*talk, error) {
	q := url.Values{}
	for k, v := range e.Args {
		if list, ok := v.([]any); ok {
			for _, item := range list {
				q.Add(k, fmt.Sprint(item))
			}
			continue
		}
		q.Set(k, fmt.Sprint(v)) // booleans and numbers come as text from some SDKs
	}
	spec, err := c.x.parseSpec(q)
	if err != nil {
		return nil, err
	}
	sp := c.x.sprite
	if err := sp.acquire(c.ctx); err != nil {
		return nil, err
	}
	var s *session
	if id := q.Get("id"); id != "" {
		s, err = sp.session(id)
	} else {
		s, err = sp.startSession(spec)
	}
	if err != nil {
		sp.release()
		return nil, err
	}
	s.attach()
	return &talk{x: c.x, ws: c.ws, s: s, r: s.out.open(0, false), ctx: c.ctx}, nil
}

func (c *channel) run(op *talk) {
	defer c.x.sprite.release()
	defer op.s.detach()
	defer op.r.close()
	whole := op.sendInfo(nil) == nil && op.relay() && op.s.over() && op.s.known
	c.mu.Lock()
	c.op = nil
	c.mu.Unlock()
	if !whole {
		c.reply("op.error", map[string]any{"error": "session ended without an exit code"})
		return
	}
	if op.s.tty {
		_ = sendText(c.ctx, c.ws, exitText{Type: "exit", ExitCode: op.s.code, Code: op.s.code})
	} else {
		_ = c.ws.Write(c.ctx, websocket.MessageBinary, c.x.exitFrame(op.s.code))
	}
	c.reply("op.complete", map[string]any{"exitCode": op.s.code})
}
