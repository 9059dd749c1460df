package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
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

func (s *session) entry(argv []string) sessionEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sessionEntry{
		ID: s.id, Command: strings.Join(argv, " "), Workdir: s.dir, Created: stamp(s.created),
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
	for i, argv := range sp.present(sessions) {
		entries = append(entries, sessions[i].entry(argv))
	}
	x.json(http.StatusOK, map[string]any{"count": len(entries), "sessions": entries})
}

// present gives what each session runs now, as the live service was seen to list
// it; as documented, what each was started with.
func (sp *sprite) present(sessions []*session) [][]string {
	out := make([][]string, len(sessions))
	pids := make([]int, len(sessions))
	for i, s := range sessions {
		out[i], pids[i] = s.argv, s.pid
	}
	sp.mu.Lock()
	m := sp.machine
	sp.mu.Unlock()
	if m == nil || sp.srv.cfg.Documented {
		return out
	}
	now, err := m.Argv(pids)
	for i := range now {
		if err == nil && len(now[i]) > 0 && i < len(out) {
			out[i] = now[i]
		}
	}
	return out
}

func (x *exchange) getSession() {
	if _, err := x.sprite.session(x.r.PathValue("id")); err != nil {
		x.text(http.StatusNotFound, "session not found: %s", x.r.PathValue("id"))
		return
	}
	x.text(http.StatusBadRequest, "WebSocket upgrade required")
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
