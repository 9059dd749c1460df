package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
)

// errClosedOutput: whoever read our output has gone away. The job goes on; we leave.
var errClosedOutput = errors.New("standard output is closed")

// codeClosedOutput is what a process killed by SIGPIPE ends with in a shell (128 + 13).
const codeClosedOutput = 141

// printedEvent is one line of `--json`.
type printedEvent struct {
	Seq          uint64          `json:"seq"`
	Event        bus.EventKind   `json:"event"`
	Job          string          `json:"job_id"`
	Run          int             `json:"run"`
	Time         time.Time       `json:"time"`
	StdoutOffset int64           `json:"stdout_offset"`
	StderrOffset int64           `json:"stderr_offset"`
	Data         []byte          `json:"data,omitempty"`
	Body         json.RawMessage `json:"body,omitempty"`
}

// show writes events as they come: the command's bytes to the streams they were written to, or each event as JSON.
type show struct {
	c    *cli
	json bool
	// result is the last result that was shown, nil before the first; key names its run.
	result *bus.ResultBody
	key    bus.RunKey
	// gaps counts places where output is missing; lost is how many bytes, unknown whether there are some of which
	// nobody knows the number.
	gaps    int
	lost    int64
	unknown bool
}

// gap notes a place where output is missing.
func (s *show) gap(ev bus.Event) {
	var body bus.GapBody
	if err := json.Unmarshal(ev.Data, &body); err != nil {
		s.unknown = true
	}
	if ev.IsSeam() {
		return
	}
	s.gaps++
	if body.Bytes == nil {
		s.unknown = true
		return
	}
	s.lost += *body.Bytes
}

// missing says what of the output is missing, or nothing.
func (s *show) missing() string {
	switch {
	case s.gaps == 0:
		return ""
	case s.unknown && s.lost > 0:
		return fmt.Sprintf("output is missing in %d places: %d bytes, and more of which nobody knows the number", s.gaps, s.lost)
	case s.unknown:
		return fmt.Sprintf("output may be missing in %d places; nobody knows how much", s.gaps)
	}
	return fmt.Sprintf("output is missing in %d places: %d bytes", s.gaps, s.lost)
}

// event shows one event. Its error is errClosedOutput, or that of a body that cannot be read.
func (s *show) event(ev bus.Event) error {
	s.key = ev.Key
	if ev.Kind == bus.EventGap {
		s.gap(ev)
	}
	if ev.Kind == bus.EventResult {
		var body bus.ResultBody
		if err := json.Unmarshal(ev.Data, &body); err != nil {
			return fmt.Errorf("read result of %s: %w", ev.Key, err)
		}
		s.result = &body
	}
	if s.json {
		return closedOutput(s.c.printJSON(s.printed(ev)))
	}
	switch ev.Kind {
	case bus.EventStdout:
		return write(s.c.out, ev.Data)
	case bus.EventStderr:
		return write(s.c.err, ev.Data)
	case bus.EventGap, bus.EventAccepted, bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStarted,
		bus.EventStopping, bus.EventTakenOver, bus.EventHeartbeat, bus.EventResult:
	}
	return nil
}

func (s *show) printed(ev bus.Event) printedEvent {
	p := printedEvent{Seq: ev.Seq, Event: ev.Kind, Job: ev.Key.Job, Run: ev.Key.Run, Time: ev.Time,
		StdoutOffset: ev.StdoutOffset, StderrOffset: ev.StderrOffset}
	if p.Time.IsZero() {
		p.Time = s.c.now().UTC() // a live copy does not say when the broker stored it
	}
	if ev.Kind == bus.EventStdout || ev.Kind == bus.EventStderr {
		p.Data = ev.Data
	} else if len(ev.Data) > 0 {
		p.Body = ev.Data
	}
	return p
}

func write(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return closedOutput(err)
}

func closedOutput(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return errClosedOutput
	}
	return err
}
