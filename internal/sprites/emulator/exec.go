package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

var errBadExec = errors.New("invalid exec request")

// parseSpec reads the query of an exec (Sprites API reference, exec).
func (x *exchange) parseSpec(q url.Values) (spec, error) {
	c := spec{Command: guest.Command{Path: q.Get("path"), Argv: q["cmd"], Env: q["env"], Dir: q.Get("dir")}}
	c.TTY = q.Get("tty") == "true"
	if len(c.Argv) == 0 {
		if c.Path == "" {
			c.Path = defaultShell
		}
		c.Argv = []string{c.Path}
	}
	if c.Path == "" {
		c.Path = c.Argv[0]
	}
	if c.Path == "" {
		return c, fmt.Errorf("%w: empty command", errBadExec)
	}
	rows, errRows := size(q.Get("rows"), defaultRows)
	cols, errCols := size(q.Get("cols"), defaultCols)
	c.Rows, c.Cols = rows, cols
	c.stdin = c.TTY
	if v := q.Get("stdin"); v != "" {
		c.stdin = v == "true"
	}
	keep, errKeep := x.parseKeep(q.Get("max_run_after_disconnect"), c.TTY || q.Get("detachable") == "true")
	c.keep = keep
	if len(c.Env) == 0 {
		c.Env = x.defaultEnv(c.TTY)
	}
	for _, s := range append(append([]string{c.Path, c.Dir}, c.Argv...), c.Env...) {
		if strings.ContainsRune(s, 0) {
			return c, fmt.Errorf("%w: NUL byte in an argument", errBadExec)
		}
	}
	return c, errors.Join(errRows, errCols, errKeep)
}

func size(v string, d uint16) (uint16, error) {
	if v == "" || v == "0" {
		return d, nil
	}
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil {
		return d, fmt.Errorf("%w: terminal size %q", errBadExec, v)
	}
	return uint16(n), nil
}

func (x *exchange) parseKeep(v string, forever bool) (time.Duration, error) {
	if v == "" {
		if forever {
			return 0, nil
		}
		return pipeKeep, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%w: max_run_after_disconnect %q", errBadExec, v)
	}
	return d, nil
}

// defaultEnv is what a command gets that brings no variable of its own; one
// that brings any gets only those (Sprites API reference, exec, env).
func (x *exchange) defaultEnv(tty bool) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + guest.Home,
		"USER=" + guest.User, "LOGNAME=" + guest.User, "SHELL=/bin/sh", "LANG=C.UTF-8",
	}
	if tty {
		env = append(env, "TERM=xterm-256color")
	}
	x.sprite.mu.Lock()
	defer x.sprite.mu.Unlock()
	for k, v := range x.sprite.rec.Environment {
		env = append(env, k+"="+v)
	}
	return env
}

// startFailed is how a shell would tell that a command could not start.
func startFailed(err error) (code int, msg string) {
	code = 126
	var f *guest.Failure
	if errors.As(err, &f) && f.Code == "ENOENT" {
		code = 127
	}
	return code, err.Error() + "\n"
}

// signalByName takes "TERM" and "SIGTERM"; SDKs send either.
func signalByName(name string) (syscall.Signal, error) {
	full := strings.ToUpper(name)
	if !strings.HasPrefix(full, "SIG") {
		full = "SIG" + full
	}
	if sig := unix.SignalNum(full); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("%w: signal %q", errBadExec, name)
}

func (x *exchange) probe() { x.w.WriteHeader(http.StatusOK) }

type sessionEntry struct {
	ID           string  `json:"id"`
	Command      string  `json:"command"`
	Workdir      string  `json:"workdir"`
	Created      string  `json:"created"`
	BytesPerSec  float64 `json:"bytes_per_second"`
	IsActive     bool    `json:"is_active"`
	LastActivity string  `json:"last_activity"`
	TTY          bool    `json:"tty"`
}

func (s *session) entry() sessionEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sessionEntry{
		ID: s.id, Command: strings.Join(s.argv, " "), Workdir: s.dir, Created: stamp(s.created),
		IsActive: s.attached > 0, LastActivity: stamp(s.last), TTY: s.tty,
	}
}

func (x *exchange) listSessions() {
	sp := x.sprite
	sp.mu.Lock()
	sessions := make([]*session, 0, len(sp.sessions))
	for _, s := range sp.sessions {
		sessions = append(sessions, s)
	}
	sp.mu.Unlock()
	entries := []sessionEntry{}
	for _, s := range sessions {
		entries = append(entries, s.entry())
	}
	x.json(http.StatusOK, map[string]any{"count": len(entries), "sessions": entries})
}

func (x *exchange) getSession() {
	if _, err := x.sprite.session(x.r.PathValue("id")); err != nil {
		x.text(http.StatusNotFound, "session not found: %s", x.r.PathValue("id"))
		return
	}
	x.text(http.StatusBadRequest, "WebSocket upgrade required")
}

type killEvent struct {
	Type    string `json:"type"`
	Message string `json:"message,omitempty"`
	Signal  string `json:"signal,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Exit    *int   `json:"exit_code,omitempty"`
}

func (x *exchange) killSession() {
	id, q := x.r.PathValue("id"), x.r.URL.Query()
	name := q.Get("signal")
	if name == "" {
		name = "SIGTERM"
	}
	sig, err := signalByName(name)
	patience := killGrace
	if v := q.Get("timeout"); v != "" && err == nil {
		patience, err = time.ParseDuration(v)
	}
	if err != nil {
		x.text(http.StatusBadRequest, "%v", err)
		return
	}
	s, err := x.sprite.session(id)
	if err != nil {
		x.noSession(id)
		return
	}
	x.note(func(c *Call) { c.Session = id })
	x.killStream(s, sig, max(patience, 0))
}

func (x *exchange) noSession(id string) {
	x.sprite.mu.Lock()
	defer x.sprite.mu.Unlock()
	for _, e := range x.sprite.exited {
		if e == id {
			x.text(http.StatusGone, "session already exited: %s", id)
			return
		}
	}
	x.text(http.StatusNotFound, "session not found: %s", id)
}

// killStream tells what happens as it does; the client may leave at any time,
// and the kill goes on.
func (x *exchange) killStream(s *session, sig syscall.Signal, patience time.Duration) {
	out := x.ndjson()
	name := unix.SignalName(sig)
	say := func(e killEvent) { _ = out.send(e) }
	err := s.signal(sig)
	say(killEvent{
		Type: "signal", Message: fmt.Sprintf("Signaling %s to process group %d", name, s.pid), Signal: name, PID: s.pid,
	})
	if err != nil && !s.over() {
		say(killEvent{Type: "error", Message: err.Error()})
	}
	if s.waitEnd(patience) {
		say(killEvent{Type: "exited", Message: "Process exited"})
	} else {
		say(killEvent{Type: "timeout", Message: "Process did not exit in time"})
		_ = s.signal(syscall.SIGKILL)
		s.waitEnd(killGrace)
		say(killEvent{Type: "killed", Message: "Process killed"})
	}
	if s.tty {
		say(killEvent{Type: "signal", Message: "Closing PTY master", PID: s.pid})
	}
	code := s.code
	say(killEvent{Type: "complete", Exit: &code})
}

func (s *session) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// waitEnd says whether the session ended within d.
func (s *session) waitEnd(d time.Duration) bool {
	late := make(chan struct{})
	t := s.sp.srv.cfg.Clock.AfterFunc(d, func() { close(late) })
	defer t.Stop()
	select {
	case <-s.ended:
		return true
	case <-late:
		return s.over()
	case <-s.lost:
		return true
	}
}

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
			_, _ = io.Copy(s.stdin, x.r.Body)
			_ = s.stdin.Close()
		})
	}
	x.w.WriteHeader(http.StatusOK)
	_ = rc.Flush()
	r := s.out.open(0, false)
	defer r.close()
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

// sessionInfo is the first frame of every exec socket.
type sessionInfo struct {
	Type      string          `json:"type"`
	SessionID json.RawMessage `json:"session_id"`
	Command   string          `json:"command"`
	Created   int64           `json:"created"`
	Cols      uint16          `json:"cols"`
	Rows      uint16          `json:"rows"`
	IsOwner   bool            `json:"is_owner"`
	TTY       bool            `json:"tty"`
	Offset    *int64          `json:"output_offset,omitempty"`
}
