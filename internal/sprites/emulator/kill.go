package emulator

import (
	"fmt"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
