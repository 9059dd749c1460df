package sprites

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Signal is the name of a signal, without SIG.
type Signal string

// The signals the kill endpoint documents.
const (
	SignalTerm Signal = "TERM"
	SignalKill Signal = "KILL"
	SignalInt  Signal = "INT"
	SignalHup  Signal = "HUP"
	SignalQuit Signal = "QUIT"
	SignalUsr1 Signal = "USR1"
	SignalUsr2 Signal = "USR2"
)

func (s Signal) check() error {
	switch s {
	case SignalTerm, SignalKill, SignalInt, SignalHup, SignalQuit, SignalUsr1, SignalUsr2:
		return nil
	}
	return refused(OpKill, "unknown signal")
}

// Killed is what is known after a kill.
type Killed string

// The outcomes of a kill.
const (
	KillConfirmed   Killed = "confirmed"   // the service saw the process end
	KillGone        Killed = "gone"        // the session was over already, or its id names another process
	KillUnconfirmed Killed = "unconfirmed" // it may still run
)

// Kill signals a session's process group and reads the progress to its end. It compares the session's creation time
// first, since ids come round again. The service waits for grace and then escalates to KILL by itself. It blocks for at
// most a few times grace + 2 CallTimeouts and is never held up by the gate. With KillUnconfirmed err says why.
func (c *Client) Kill(ctx context.Context, sprite string, s Session, sig Signal, grace time.Duration) (Killed, error) {
	if err := errors.Join(checkName(OpKill, sprite), sig.check()); err != nil {
		return KillUnconfirmed, fmt.Errorf("kill session: %w", err)
	}
	if !validSessionID(s.ID) {
		return KillUnconfirmed, fmt.Errorf("kill session: %w", refused(OpKill, "malformed session id"))
	}
	var killed Killed
	err := c.retrying(ctx, OpKill, "", func(ctx context.Context, _ int) error {
		var err error
		killed, err = c.killOnce(ctx, sprite, s, sig, grace)
		return err
	})
	if err != nil {
		return KillUnconfirmed, fmt.Errorf("kill session %s of %s: %w", s.ID, sprite, err)
	}
	return killed, nil
}

func (c *Client) killOnce(ctx context.Context, sprite string, s Session, sig Signal, grace time.Duration) (Killed, error) {
	// Asked once, ungated and as part of the kill: a listing with tries and a gate of its own would multiply the one and
	// let the other hold up an end.
	listed, err := c.listed(ctx, sprite, s)
	switch {
	case ClassOf(err) == ClassNotFound:
		return KillGone, nil // the Sprite itself is gone
	case err != nil:
		return KillUnconfirmed, err
	case !listed:
		return KillGone, nil
	}
	query := url.Values{"signal": {"SIG" + string(sig)}, "timeout": {grace.Round(time.Second).String()}}
	req := call{
		op: OpKill, method: http.MethodPost, url: c.spriteURL(sprite, query, "exec", s.ID, "kill"),
		want: []int{http.StatusOK}, timeout: grace + c.cfg.CallTimeout,
	}
	err = c.stream(ctx, req, func(resp *http.Response) error { return readKill(resp.Body) })
	if ClassOf(err) == ClassNotFound {
		return KillGone, nil // 404: unknown, 410: already exited (Sprites API reference, kill)
	}
	if err != nil {
		return KillUnconfirmed, err
	}
	return KillConfirmed, nil
}

// progressMax bounds one progress stream: lines of at most 64 KiB (Sprites API reference, checkpoints), 10,000 of them.
const (
	progressLineMax  = 64 << 10
	progressLinesMax = 10_000
)

// progress is a line of an NDJSON progress stream.
type progress struct {
	Type  string `json:"type"`
	Data  string `json:"data"`
	Error string `json:"error"`
}

// readProgress calls each for every line that parses. It ends without error only after a line of type complete.
func readProgress(r io.Reader, each func(progress)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), progressLineMax)
	completed := false
	for n := 0; lines.Scan(); n++ {
		if n >= progressLinesMax {
			return ErrTooLarge
		}
		var p progress
		if json.Unmarshal(lines.Bytes(), &p) != nil {
			continue
		}
		if p.Type == "error" {
			completed = false // unless something completes after it
		}
		if p.Type == "complete" {
			completed = true
		}
		each(p)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	if !completed {
		return ErrIncomplete
	}
	return nil
}

// readKill reads a kill's progress. An error line means that the signal did not do its work, even when the stream then
// completes.
func readKill(r io.Reader) error {
	failed := false
	err := readProgress(r, func(p progress) { failed = failed || p.Type == "error" })
	if err == nil && failed {
		err = ErrIncomplete
	}
	return err
}

// Stop ends a session for good: TERM, which the service turns into KILL after grace, then a KILL of our own if the end
// was not confirmed.
func (c *Client) Stop(ctx context.Context, sprite string, s Session, grace time.Duration) (Killed, error) {
	killed, err := c.Kill(ctx, sprite, s, SignalTerm, grace)
	if err == nil || ctx.Err() != nil {
		return killed, err
	}
	return c.Kill(ctx, sprite, s, SignalKill, time.Second)
}
