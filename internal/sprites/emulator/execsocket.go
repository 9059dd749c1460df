package emulator

import (
	"context"
	"encoding/json"
	"net/http"
	"path"
	"strconv"

	"github.com/coder/websocket"
)

// execSocket starts a command, or joins a session that the query names.
func (x *exchange) execSocket() {
	q := x.r.URL.Query()
	if id := q.Get("id"); id != "" {
		x.attachTo(id)
		return
	}
	if id := q.Get("session_id"); id != "" {
		x.attachTo(id) // what sprites-ex sends; the path form is meant
		return
	}
	c, err := x.parseSpec(q)
	if err != nil {
		x.text(http.StatusBadRequest, "%v", err)
		return
	}
	x.note(func(call *Call) { call.Argv = c.Argv })
	ws, err := x.upgrade()
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	s, err := x.sprite.startSession(c)
	if err != nil {
		x.sendStartFailure(ws, c, err)
		return
	}
	x.note(func(call *Call) { call.Session = s.id })
	if x.does(FaultLost) {
		s.attach()
		s.detach()
		x.drop()
	}
	s.attach()
	defer s.detach()
	x.converse(ws, s, s.out.open(0, false), nil)
}

// attachSocket joins a session by path.
func (x *exchange) attachSocket() { x.attachTo(x.r.PathValue("id")) }

func (x *exchange) attachTo(id string) {
	s, err := x.sprite.session(id)
	if err != nil {
		x.text(http.StatusNotFound, "session not found: %s", id)
		return
	}
	x.note(func(call *Call) { call.Session = s.id })
	var from int64
	if x.srv.cfg.Offset {
		if v := x.r.URL.Query().Get("output_offset"); v != "" {
			if from, err = strconv.ParseInt(v, 10, 64); err != nil || from < 0 {
				x.text(http.StatusBadRequest, "invalid output_offset %q", v)
				return
			}
		}
	}
	ws, err := x.upgrade()
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	if x.does(FaultLost) {
		x.drop()
	}
	s.attach()
	defer s.detach()
	r := s.out.open(from, x.srv.cfg.Attach == AttachMerged)
	var offset *int64
	if x.srv.cfg.Offset {
		offset = &r.at
	}
	x.converse(ws, s, r, offset)
}

func (x *exchange) sendStartFailure(ws *websocket.Conn, c spec, err error) {
	ctx := x.r.Context()
	code, msg := startFailed(err)
	_ = sendText(ctx, ws, map[string]string{"type": "error", "message": msg})
	if c.TTY {
		_ = ws.Write(ctx, websocket.MessageBinary, []byte(msg))
		_ = sendText(ctx, ws, exitText{Type: "exit", ExitCode: code, Code: code})
		_ = ws.Close(websocket.StatusInternalError, "")
		return
	}
	_ = ws.Write(ctx, websocket.MessageBinary, append([]byte{streamStderr}, msg...))
	_ = ws.Write(ctx, websocket.MessageBinary, x.exitFrame(code))
	_ = sendText(ctx, ws, exitText{Type: "exit", ExitCode: code, Code: code})
	_ = ws.Close(websocket.StatusNormalClosure, "")
}

// exitText has both names: go reads exit_code, ex reads code.
type exitText struct {
	Type     string `json:"type"`
	ExitCode int    `json:"exit_code"`
	Code     int    `json:"code"`
}

// talk is one exec socket while it is open: this goroutine writes, another reads.
type talk struct {
	x   *exchange
	ws  *websocket.Conn
	s   *session
	r   *reader
	ctx context.Context // ends when the client left or the Sprite dropped it
}

// converse runs the socket to its end. The reader is closed here.
func (x *exchange) converse(ws *websocket.Conn, s *session, r *reader, offset *int64) {
	defer r.close()
	defer x.sprite.hold(x.conn)()
	ctx, cancel := context.WithCancel(x.r.Context())
	t := &talk{x: x, ws: ws, s: s, r: r, ctx: ctx}
	heard := make(chan struct{})
	x.srv.goOwned(func() {
		defer close(heard)
		defer cancel()
		t.listen()
	})
	t.speak(offset)
	_ = ws.CloseNow() // ends listen
	<-heard
}

func (t *talk) speak(offset *int64) {
	if t.x.does(FaultEmpty) {
		_ = t.ws.Close(websocket.StatusNormalClosure, "")
		return
	}
	if !t.x.mutated(MutateSessionInfoLate) && t.sendInfo(offset) != nil {
		return
	}
	if t.x.does(FaultFlood) && !t.flood() {
		return
	}
	if t.s.tty {
		// Only sockets of terminals were seen to tell of ports (live service).
		defer t.tellPorts()()
	}
	if !t.relay() {
		return
	}
	if t.x.mutated(MutateSessionInfoLate) {
		_ = t.sendInfo(offset)
	}
	if !t.s.over() || !t.s.known {
		t.x.drop() // the machine went away
	}
	t.sendExit()
}

// tellPorts sends port frames beside the output until the function it gives is
// called.
func (t *talk) tellPorts() func() {
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan struct{})
	t.x.srv.goOwned(func() {
		defer close(done)
		t.x.followPorts(ctx, nil, func(e portEvent) error { return sendText(ctx, t.ws, e) })
	})
	return func() { cancel(); <-done }
}

func (t *talk) sendInfo(offset *int64) error {
	id := json.RawMessage(strconv.Quote(t.s.id))
	if t.x.mutated(MutateNumericSession) {
		id = json.RawMessage(t.s.id)
	}
	return sendText(t.ctx, t.ws, sessionInfo{
		Type: "session_info", SessionID: id, Command: path.Base(t.s.argv[0]), Created: t.s.created.Unix(),
		IsOwner: true, TTY: t.s.tty, Offset: offset,
	})
}

// relay sends output until it is complete; it is false when the client left.
func (t *talk) relay() bool {
	budget := int64(-1)
	if t.x.does(FaultDropAfter) {
		budget = t.x.fault.Bytes
	}
	for {
		if budget == 0 {
			t.x.drop()
		}
		frame := t.next()
		if frame == nil {
			return t.ctx.Err() == nil
		}
		if budget > 0 {
			frame = frame[:min(int64(len(frame)), 1+budget)]
			budget -= int64(len(frame) - 1)
		}
		if t.sendFrame(frame) != nil {
			return false
		}
	}
}

// next sends keepalives while it waits, where they are asked for.
func (t *talk) next() []byte {
	every := t.x.srv.cfg.KeepAlive
	if every <= 0 {
		return t.r.next(t.ctx)
	}
	for {
		ctx, cancel := context.WithCancel(t.ctx)
		timer := t.x.srv.cfg.Clock.AfterFunc(every, cancel)
		frame := t.r.next(ctx)
		quiet := frame == nil && ctx.Err() != nil && t.ctx.Err() == nil
		timer.Stop()
		cancel()
		if !quiet {
			return frame
		}
		if sendText(t.ctx, t.ws, map[string]string{"type": "debug"}) != nil {
			return nil
		}
	}
}

func (t *talk) sendFrame(frame []byte) error {
	if t.x.does(FaultSplit) && len(frame) > 2 {
		for _, b := range frame[1:] {
			if err := t.sendFrame([]byte{frame[0], b}); err != nil {
				return err
			}
		}
		return nil
	}
	if t.s.tty {
		frame = frame[1:]
	}
	return t.ws.Write(t.ctx, websocket.MessageBinary, frame)
}

const defaultFlood = 1 << 20

func (t *talk) flood() bool {
	left := t.x.fault.Bytes
	if left == 0 {
		left = defaultFlood
	}
	frame := make([]byte, 1+readSize)
	for i := range frame {
		frame[i] = 'x'
	}
	frame[0] = streamStdout
	for left > 0 {
		n := min(left, readSize)
		if t.sendFrame(frame[:1+n]) != nil {
			return false
		}
		left -= n
	}
	return true
}

// sendExit says the code in every way that an SDK looks for it.
func (t *talk) sendExit() {
	text := exitText{Type: "exit", ExitCode: t.s.code, Code: t.s.code}
	t.x.release() // a socket that only lingers keeps nothing awake
	if t.x.does(FaultNoExit) || t.x.mutated(MutateNoExit) {
		_ = t.ws.Close(websocket.StatusNormalClosure, "")
		return
	}
	if t.s.tty {
		_ = sendText(t.ctx, t.ws, text)
		// js and py read the result from how the socket closes.
		code := websocket.StatusNormalClosure
		if t.s.code != 0 {
			code = websocket.StatusInternalError
		}
		_ = t.ws.Close(code, "")
		return
	}
	if t.x.mutated(MutateTextExitFirst) {
		_ = sendText(t.ctx, t.ws, exitText{Type: "exit", ExitCode: 0, Code: 0})
		_ = t.ws.Close(websocket.StatusNormalClosure, "")
		return
	}
	_ = t.ws.Write(t.ctx, websocket.MessageBinary, t.x.exitFrame(t.s.code))
	// After the frame: go, js and py are done by now, ex finds its code here.
	_ = sendText(t.ctx, t.ws, text)
	if pause(t.ctx, t.x.srv.cfg.Clock, t.x.srv.cfg.Linger) == nil {
		_ = t.ws.Close(websocket.StatusNormalClosure, "")
	}
}

// listen takes what the client sends until it leaves. It also answers pings,
// which the library does while it reads.
func (t *talk) listen() {
	for {
		kind, data, err := t.ws.Read(t.ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageText {
			t.command(data)
			continue
		}
		t.input(data)
	}
}

func (t *talk) input(data []byte) {
	if t.s.tty {
		_, _ = t.s.stdin.Write(data)
		return
	}
	if len(data) == 0 {
		return
	}
	switch data[0] {
	case streamStdin:
		_, _ = t.s.stdin.Write(data[1:]) // closed when not asked for: harmless
	case streamEOF:
		_ = t.s.stdin.Close()
	}
}

func (t *talk) command(data []byte) {
	var m struct {
		Type   string `json:"type"`
		Cols   uint16 `json:"cols"`
		Rows   uint16 `json:"rows"`
		Signal string `json:"signal"`
	}
	if json.Unmarshal(data, &m) != nil {
		return
	}
	switch m.Type {
	case "resize":
		if t.s.tty && m.Cols > 0 && m.Rows > 0 {
			_ = t.s.proc.Resize(m.Rows, m.Cols)
		}
	case "signal":
		if sig, err := signalByName(m.Signal); err == nil {
			_ = t.s.signal(sig)
		}
	}
}
