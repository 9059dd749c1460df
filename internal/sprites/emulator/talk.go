package emulator

import (
	"bytes"
	"context"
	"encoding/json"
	"path"
	"strconv"

	"github.com/coder/websocket"
)

// talk is one exec socket while it is open: this goroutine writes, another reads.
type talk struct {
	x   *exchange
	ws  *websocket.Conn
	s   *session
	r   *reader
	ctx context.Context // ends when the client left or the Sprite dropped it
}

func (t *talk) speak(offset *int64) {
	if t.x.does(FaultEmpty) {
		_ = t.ws.Close(websocket.StatusNormalClosure, "")
		return
	}
	if !t.x.mutated(MutateSessionInfoLate) && t.sendInfo(offset) != nil {
		return
	}
	if t.x.does(FaultFlood) && !t.x.flood(func(frame []byte) bool { return t.sendFrame(frame) == nil }) {
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

// flood sends the fault's bytes as standard output.
func (x *exchange) flood(send func([]byte) bool) bool {
	left := x.fault.Bytes
	if left == 0 {
		left = defaultFlood
	}
	frame := bytes.Repeat([]byte{'x'}, 1+readSize)
	frame[0] = streamStdout
	for left > 0 {
		n := min(left, readSize)
		if !send(frame[:1+n]) {
			return false
		}
		left -= n
	}
	return true
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
		if !t.input(data) {
			_ = t.ws.Close(websocket.StatusPolicyViolation, "input is not read")
			return
		}
	}
}

// input is false when there is no room for more.
func (t *talk) input(data []byte) bool {
	switch {
	case t.s.tty:
		return t.s.input.add(t.ctx, data)
	case len(data) > 0 && data[0] == streamStdin:
		return t.s.input.add(t.ctx, data[1:])
	case len(data) > 0 && data[0] == streamEOF:
		t.s.input.end()
	}
	return true
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
