package emulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"
)

// Action is what a fault does.
type Action string

// The actions.
const (
	// FaultDelay waits Delay before the call is handled, and adds to any other fault.
	FaultDelay Action = "delay"
	// FaultHang never answers; it ends when the client or the server leaves.
	FaultHang Action = "hang"
	// FaultDrop closes the connection before any answer, without effect.
	FaultDrop Action = "drop"
	// FaultDropWake is FaultDrop for a WebSocket handshake to a sleeping Sprite,
	// which wakes all the same: the next one succeeds.
	FaultDropWake Action = "drop-wake"
	// FaultDropAfter closes the connection after Bytes bytes of output or body.
	FaultDropAfter Action = "drop-after"
	// FaultNoExit closes an exec with code 1000 where its exit frame is due.
	FaultNoExit Action = "no-exit"
	// FaultEmpty closes an exec with code 1000 before its first frame; the
	// command runs (sprites-py issue 16).
	FaultEmpty Action = "empty"
	// FaultSplit sends frames of one byte each, byte by byte.
	FaultSplit Action = "split"
	// FaultFlood sends Bytes bytes of standard output (1 MiB where 0) before the command's own.
	FaultFlood Action = "flood"
	// FaultStatus answers Status, Headers and Body without effect.
	FaultStatus Action = "status"
	// FaultLost lets the call take effect and then drops the connection
	// instead of answering.
	FaultLost Action = "lost-response"
)

var actions = []Action{
	FaultDelay, FaultHang, FaultDrop, FaultDropWake, FaultDropAfter, FaultNoExit, FaultEmpty, FaultSplit,
	FaultFlood, FaultStatus, FaultLost,
}

// Fault is a rule: on which calls, and what to do to them.
type Fault struct {
	// Route is a glob over route names such as "exec.ws" or "fs.*". Defaults to "*".
	Route string
	// Sprite is a glob over names. Defaults to "*".
	Sprite string
	// Nth hits only the nth matching call, counted from 1. Defaults to 0, each.
	Nth int
	// Times ends the rule after so many hits. Defaults to 0, no end.
	Times int
	// Probability of a hit, 0 to 1. Whether a call is hit depends on the server's seed, the rule's place, the route, the
	// Sprite and how many such calls there were, so that a run of concurrent clients repeats, too. Defaults to 0, always.
	Probability float64
	// Asleep hits only while the Sprite is warm or cold. Defaults to false.
	Asleep bool
	// Do is the action; there is no default.
	Do Action
	// Delay of FaultDelay. Defaults to 0.
	Delay time.Duration
	// Bytes of FaultDropAfter and FaultFlood. Defaults to 0.
	Bytes int64
	// Status, Headers and Body of FaultStatus. Status defaults to 500.
	Status  int
	Headers map[string]string
	Body    string
}

// faultJSON is Fault in a file: durations are text.
type faultJSON struct {
	Route       string            `json:"route,omitempty"`
	Sprite      string            `json:"sprite,omitempty"`
	Nth         int               `json:"nth,omitempty"`
	Times       int               `json:"times,omitempty"`
	Probability float64           `json:"probability,omitempty"`
	Asleep      bool              `json:"asleep,omitempty"`
	Do          Action            `json:"do"`
	Delay       string            `json:"delay,omitempty"`
	Bytes       int64             `json:"bytes,omitempty"`
	Status      int               `json:"status,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Body        string            `json:"body,omitempty"`
}

// MarshalJSON writes the form that ParseFaults reads.
func (f Fault) MarshalJSON() ([]byte, error) {
	j := faultJSON{
		Route: f.Route, Sprite: f.Sprite, Nth: f.Nth, Times: f.Times, Probability: f.Probability, Asleep: f.Asleep,
		Do: f.Do, Bytes: f.Bytes, Status: f.Status, Headers: f.Headers, Body: f.Body,
	}
	if f.Delay != 0 {
		j.Delay = f.Delay.String()
	}
	return json.Marshal(j)
}

// UnmarshalJSON refuses unknown fields: a misspelt rule would silently never hit.
func (f *Fault) UnmarshalJSON(raw []byte) error {
	var j faultJSON
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return fmt.Errorf("%w: %w", ErrFault, err)
	}
	*f = Fault{
		Route: j.Route, Sprite: j.Sprite, Nth: j.Nth, Times: j.Times, Probability: j.Probability, Asleep: j.Asleep,
		Do: j.Do, Bytes: j.Bytes, Status: j.Status, Headers: j.Headers, Body: j.Body,
	}
	if j.Delay != "" {
		d, err := time.ParseDuration(j.Delay)
		if err != nil {
			return fmt.Errorf("delay: %w: %w", ErrFault, err)
		}
		f.Delay = d
	}
	return nil
}

func (f Fault) validate() error {
	var errs []error
	bad := func(field string, v any) { errs = append(errs, fmt.Errorf("%s %v: %w", field, v, ErrFault)) }
	if !slices.Contains(actions, f.Do) {
		bad("do", f.Do)
	}
	for field, glob := range map[string]string{"route": f.Route, "sprite": f.Sprite} {
		if _, err := path.Match(glob, ""); err != nil {
			bad(field, glob)
		}
	}
	if f.Nth < 0 || f.Times < 0 || f.Bytes < 0 || f.Delay < 0 {
		bad("counts (must not be negative)", fmt.Sprint(f.Nth, f.Times, f.Bytes, f.Delay))
	}
	if f.Probability < 0 || f.Probability > 1 {
		bad("probability", f.Probability)
	}
	if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
		bad("status", f.Status)
	}
	return errors.Join(errs...)
}

// maxFaultFile bounds what ParseFaults reads.
const maxFaultFile = 1 << 20

// ParseFaults reads rules as a JSON array or as objects one after another, 1 MiB
// at most, and reports every invalid one (ErrFault).
func ParseFaults(r io.Reader) ([]Fault, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxFaultFile+1))
	if err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	if len(raw) > maxFaultFile {
		return nil, fmt.Errorf("read faults: more than %d bytes: %w", maxFaultFile, ErrFault)
	}
	faults, err := decodeFaults(raw)
	if err != nil {
		return nil, fmt.Errorf("parse faults: %w", err)
	}
	var errs []error
	for i, f := range faults {
		if err := f.validate(); err != nil {
			errs = append(errs, fmt.Errorf("fault %d: %w", i, err))
		}
	}
	return faults, errors.Join(errs...)
}

func decodeFaults(raw []byte) ([]Fault, error) {
	var faults []Fault
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		var one json.RawMessage
		err := dec.Decode(&one)
		if errors.Is(err, io.EOF) {
			return faults, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFault, err)
		}
		var list []Fault
		if one[0] != '[' {
			list = make([]Fault, 1)
			err = json.Unmarshal(one, &list[0])
		} else {
			err = json.Unmarshal(one, &list)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFault, err)
		}
		faults = append(faults, list...)
	}
}

func globs(glob, s string) bool {
	if glob == "" || glob == "*" {
		return true
	}
	ok, _ := path.Match(glob, s)
	return ok
}
