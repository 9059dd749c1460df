package sprites

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Observation is what the service does where no document says it.
type Observation struct {
	// SessionIsPID: a session's id is its process's PID as seen inside. Rejoin relies on it when no session was seen.
	SessionIsPID bool
	// OffsetAdvertised: the handshake names the capability output_offset.
	OffsetAdvertised bool
	// OffsetHonoured: an attach with output_offset replays from there.
	OffsetHonoured bool
	// Written is how many bytes the observed command wrote, ReplayBytes how many of them an attach replays.
	Written, ReplayBytes int64
	// User runs commands, WorkspaceOwner owns /workspace.
	User, WorkspaceOwner string
}

// observeScript says who and where it is ($1 marker, $2 workspace), writes 256 KiB in numbered lines, and waits.
const observeScript = `printf '%s pid %s\n%s user %s\n%s owner %s\n' "$1" "$$" "$1" "$(id -un)" "$1" "$(stat -c %U "$2")"
i=0
while [ $i -lt 4096 ]; do printf '%063d\n' "$i"; i=$((i + 1)); done
printf '%s end\n' "$1"
exec sleep 120`

// Observe runs one command in a Sprite, attaches to it twice, and ends it. It wakes the Sprite and takes some seconds.
func (c *Client) Observe(ctx context.Context, sprite string) (Observation, error) {
	if err := checkName(OpProbe, sprite); err != nil {
		return Observation{}, fmt.Errorf("observe: %w", err)
	}
	o, err := c.observe(ctx, sprite)
	if err != nil {
		return Observation{}, fmt.Errorf("observe %s: %w", sprite, err)
	}
	return o, nil
}

func (c *Client) observe(ctx context.Context, sprite string) (Observation, error) {
	marker := c.cfg.Nonce()
	argv := []string{"sh", "-c", observeScript, "wakebus", marker, guestWorkspace}
	s, info, err := c.dial(ctx, OpExec, c.spriteURL(sprite, url.Values{
		"cmd": argv, "path": {"sh"}, "env": c.environment(nil, false, nil), "stdin": {"false"}, "max_run_after_disconnect": {"60s"},
	}, "exec"), false)
	if err != nil {
		return Observation{}, err
	}
	session := Session{ID: info.id, Created: info.created}
	defer func() { _, _ = c.Kill(context.WithoutCancel(ctx), sprite, session, SignalKill, time.Second) }() // else it ends by itself
	head, written, err := c.gather(ctx, s, marker+" end\n")
	if err != nil {
		return Observation{}, err
	}
	o := readObservation(marked(head, marker), session, written)
	return o, c.observeReplay(ctx, sprite, session, &o)
}

// readObservation reads the script's own lines.
func readObservation(lines []string, session Session, written int64) Observation {
	o := Observation{Written: written}
	for _, line := range lines {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "pid":
			o.SessionIsPID = value == session.ID
		case "user":
			o.User = value
		case "owner":
			o.WorkspaceOwner = value
		}
	}
	return o
}

// observeReplay attaches without and with an offset and counts what is replayed.
func (c *Client) observeReplay(ctx context.Context, sprite string, session Session, o *Observation) error {
	const last = 64
	for _, offset := range []int64{0, o.Written - last} {
		query := url.Values{"stdin": {"false"}}
		if offset > 0 {
			query.Set("output_offset", strconv.FormatInt(offset, 10))
		}
		s, _, err := c.attach(ctx, sprite, "", session, query)
		if err != nil {
			return err
		}
		o.OffsetAdvertised = s.offsets
		_, n, err := c.gather(ctx, s, "")
		if err != nil {
			return err
		}
		if offset == 0 {
			o.ReplayBytes = n
		} else {
			o.OffsetHonoured = n == last
		}
	}
	return nil
}

// gather reads a socket until end stands at the end of the output or, without end, until it is quiet; then it closes it.
// It returns the first 4 KiB and the number of bytes.
func (c *Client) gather(ctx context.Context, s *socket, end string) (head []byte, n int64, err error) {
	defer s.close()
	wait := 4 * c.cfg.ReplayQuiet
	if end != "" {
		wait = c.cfg.CallTimeout
	}
	var tail []byte
	for {
		qctx, cancel := context.WithTimeout(ctx, wait)
		got, err := s.next(qctx)
		cancel()
		switch {
		case err != nil && end == "" && ctx.Err() == nil && ClassOf(err) == ClassTimeout:
			return head, n, nil
		case err != nil:
			return nil, 0, err
		case got.kind == frameEnded:
			return nil, 0, &Error{Op: OpProbe, Class: ClassUnavailable, Opened: true, cause: errors.New("observed command ended")}
		}
		n += int64(len(got.data))
		head = append(head, got.data[:min(len(got.data), TailMax-len(head))]...)
		tail = append(tail, got.data...)
		tail = tail[max(0, len(tail)-len(end)):]
		got.release()
		if end != "" && string(tail) == end {
			return head, n, nil
		}
	}
}
