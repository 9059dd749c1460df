package emulator

import (
	"context"
	"net/http"
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

// converse runs the socket to its end. The reader is closed here.
func (x *exchange) converse(ws *websocket.Conn, s *session, r *reader, offset *int64) {
	defer r.close()
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
