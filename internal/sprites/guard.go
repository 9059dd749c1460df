package sprites

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

//go:embed inspect.sh
var inspectScript string

// GuardState is what a guard's file says. The guest is root and could have forged it: it can lie about itself only.
type GuardState struct {
	// Exists tells that the file is there: the command was started, by somebody.
	Exists bool
	// Pid is the guard's process, which is the session's id; 0 when not written yet.
	Pid int
	// Start is the process's start time in clock ticks since boot; with Pid it names the process.
	Start string
	// Nonce is the dial's that started it; empty when not written yet.
	Nonce string
	// Exit is the command's exit code, once it ended by itself or by a signal that the guard outlived.
	Exit *int
	// LimitHit tells that the guard's own limit ended the command.
	LimitHit bool
	// Alive tells that the process Pid runs and is the one that wrote the file.
	Alive bool
}

// Guard reads a guard's file by an unguarded command of our own; it wakes the Sprite. It may be repeated.
func (c *Client) Guard(ctx context.Context, sprite, guard string) (GuardState, error) {
	return c.inspect(ctx, sprite, guard, 0, "")
}

// AwaitGuard waits inside the Sprite until the guarded command has ended, at most for wait (whole seconds, at most 30
// per call), and returns the file's state.
func (c *Client) AwaitGuard(ctx context.Context, sprite, guard string, wait time.Duration) (GuardState, error) {
	return c.inspect(ctx, sprite, guard, min(wait, 30*time.Second), "")
}

// StopGuard signals the process group of the guarded command from inside, after comparing its start time, and waits at
// most for grace (whole seconds, at most 30). It is for a session which the API no longer lists, and like [Client.Kill]
// never held up by the gate.
func (c *Client) StopGuard(ctx context.Context, sprite, guard string, sig Signal, grace time.Duration) (GuardState, error) {
	if err := sig.check(); err != nil {
		return GuardState{}, fmt.Errorf("stop guarded command: %w", err)
	}
	return c.inspect(ctx, sprite, guard, min(grace, 30*time.Second), string(sig))
}

func (c *Client) inspect(ctx context.Context, sprite, guard string, wait time.Duration, signal string) (GuardState, error) {
	if err := checkName(OpProbe, sprite); err != nil {
		return GuardState{}, fmt.Errorf("read guard: %w", err)
	}
	if !guardShape.MatchString(guard) {
		return GuardState{}, fmt.Errorf("read guard: %w", refused(OpProbe, "malformed guard name"))
	}
	marker := c.cfg.Nonce()
	out, err := c.run(ctx, probe{
		sprite: sprite, limit: c.cfg.DialTimeout + wait, end: signal != "",
		argv: []string{"sh", "-c", inspectScript, "wakebus", marker, guardPath(guard), strconv.Itoa(int(wait / time.Second)), signal},
	})
	if err != nil {
		return GuardState{}, fmt.Errorf("read guard %s in %s: %w", guard, sprite, err)
	}
	state, ok := parseGuard(marked(out, marker))
	if !ok {
		return GuardState{}, fmt.Errorf("read guard %s in %s: %w", guard, sprite, &Error{Op: OpProbe, Class: ClassUnavailable, Opened: true, cause: ErrMalformed})
	}
	return state, nil
}

// parseGuard reads the inspect script's lines. It is pure; false means that they are cut short or not ours.
func parseGuard(lines []string) (GuardState, bool) {
	if len(lines) == 0 {
		return GuardState{}, false
	}
	if lines[0] == "none" {
		return GuardState{}, true
	}
	last, ok := strings.CutPrefix(lines[len(lines)-1], "end ")
	if !ok {
		return GuardState{}, false
	}
	state := GuardState{Exists: true, Alive: last == "alive"}
	for i, line := range lines[:len(lines)-1] {
		line, ok := strings.CutPrefix(line, "line ")
		if !ok {
			return GuardState{}, false
		}
		state.read(i, line)
	}
	return state, true
}

// read takes in one complete line of the file: the first names the owner, the others say how it ended.
func (g *GuardState) read(number int, line string) {
	words := strings.Fields(line)
	switch {
	case number == 0 && len(words) == 3:
		if pid, err := strconv.Atoi(words[0]); err == nil && pid > 0 {
			g.Pid, g.Start, g.Nonce = pid, words[1], words[2]
		}
	case number > 0 && line == "limit":
		if g.Exit == nil {
			g.LimitHit = true
		}
	case number > 0 && len(words) == 2 && words[0] == "exit":
		if code, err := strconv.Atoi(words[1]); err == nil && code >= 0 && code <= 255 && g.Exit == nil {
			g.Exit = &code
		}
	}
}
