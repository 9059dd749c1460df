package emulator

import (
	"io"
	"net/http"
	"time"
)

// httpFrame bounds a frame of an HTTP exec: SDKs need each within one read of
// the body (sprites-js, execFileHTTP).
const httpFrame = 4 << 10

// httpGap parts two frames of an HTTP exec in time. A client that reads a body by
// what has arrived takes two frames for one otherwise, and nothing in the
// protocol could tell it (sprites-js, execFileHTTP).
const httpGap = 5 * time.Millisecond

// execHTTP runs a command without a WebSocket: one chunk of the body is one frame.
func (x *exchange) execHTTP() {
	c, err := x.parseSpec(x.r.URL.Query())
	if err != nil {
		x.text(http.StatusBadRequest, "%v", err)
		return
	}
	c.TTY, c.stdin = false, x.r.URL.Query().Get("stdin") == "true"
	x.note(func(call *Call) { call.Argv = c.Argv })
	rc := http.NewResponseController(x.w)
	// The body is read while the answer is written.
	_ = rc.EnableFullDuplex()
	s, err := x.sprite.startSession(c)
	x.w.Header().Set("Content-Type", "application/octet-stream")
	if err != nil {
		code, msg := startFailed(err)
		x.httpFrames(rc, append([]byte{streamStderr}, msg...))
		x.httpFrames(rc, []byte{streamExit, byte(code)})
		return
	}
	x.note(func(call *Call) { call.Session = s.id })
	s.attach()
	defer s.detach()
	if c.stdin {
		x.srv.goOwned(func() { // ends with the body, which ends with the handler
			_, _ = io.Copy(inputWriter{x.r.Context(), s.input}, x.r.Body)
			s.input.end()
		})
	}
	x.w.WriteHeader(http.StatusOK)
	_ = rc.Flush()
	if x.does(FaultEmpty) {
		return
	}
	r := s.out.open(0, false)
	defer r.close()
	if x.does(FaultFlood) && !x.flood(func(frame []byte) bool { return x.httpFrames(rc, frame) }) {
		return
	}
	for frame := r.next(x.r.Context()); frame != nil; frame = r.next(x.r.Context()) {
		if !x.httpFrames(rc, frame) {
			return
		}
	}
	if s.over() && s.known && !x.does(FaultNoExit) && !x.mutated(MutateNoExit) {
		x.httpFrames(rc, x.exitFrame(s.code))
		return
	}
	x.drop()
}

func (x *exchange) httpFrames(rc *http.ResponseController, frame []byte) bool {
	for body := frame[1:]; len(body) > 0; {
		n := min(len(body), httpFrame-1)
		if _, err := x.w.Write(append([]byte{frame[0]}, body[:n]...)); err != nil {
			return false
		}
		body = body[n:]
		if x.mutated(MutateMergedHTTP) {
			continue
		}
		if rc.Flush() != nil || pause(x.r.Context(), x.srv.cfg.Clock, httpGap) != nil {
			return false
		}
	}
	return true
}

func (x *exchange) exitFrame(code int) []byte {
	if x.mutated(MutateExitFourBytes) {
		return []byte{streamExit, 0, 0, 0, byte(code)}
	}
	return []byte{streamExit, byte(code)}
}
