package sprites

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed warmup.sh
var warmupScript string

// Woke says what a call had to wake.
type Woke string

// What was woken.
const (
	WokeNone    Woke = "none"    // it was running
	WokeWarm    Woke = "warm"    // it was suspended
	WokeCold    Woke = "cold"    // it was stopped, or new
	WokeUnknown Woke = "unknown" // the control plane did not say
)

func wokeFrom(s Status) Woke {
	switch s {
	case StatusRunning:
		return WokeNone
	case StatusWarm:
		return WokeWarm
	case StatusCold:
		return WokeCold
	}
	return WokeUnknown
}

// warmth is what a warm-up found.
type warmth struct {
	bash bool
	skew time.Duration
}

// warmUp runs the warm-up command: it wakes the Sprite, makes the workspace and the guards' folder, proves both writable,
// prunes guard files older than 48 h and compares clocks. Every step may be repeated.
func (c *Client) warmUp(ctx context.Context, name, tenant string, limit time.Duration, once bool) (warmth, error) {
	marker := c.cfg.Nonce()
	began := c.cfg.Now()
	out, err := c.run(ctx, probe{
		sprite: name, tenant: tenant, limit: limit, once: once,
		argv: []string{"sh", "-c", warmupScript, "wakebus", marker, guestWorkspace, guardFolder},
	})
	if err != nil {
		return warmth{}, fmt.Errorf("warm up %s: %w", name, err)
	}
	w, err := parseWarmup(marked(out, marker), began, c.cfg.Now())
	if err != nil {
		return warmth{}, fmt.Errorf("warm up %s: %w", name, err)
	}
	return w, nil
}

// parseWarmup reads the warm-up's lines. It is pure.
func parseWarmup(lines []string, began, ended time.Time) (warmth, error) {
	if !slices.Contains(lines, "done yes") {
		return warmth{}, &Error{Op: OpProbe, Class: ClassUnavailable, Opened: true, cause: ErrMalformed}
	}
	if !slices.Contains(lines, "workspace yes") {
		return warmth{}, &Error{Op: OpProbe, Class: ClassInvalid, Opened: true, cause: ErrWorkspaceUnwritable}
	}
	if !slices.Contains(lines, "guard yes") {
		return warmth{}, &Error{Op: OpProbe, Class: ClassInvalid, Opened: true, cause: ErrGuardUnwritable}
	}
	w := warmth{bash: slices.Contains(lines, "bash yes")}
	for _, line := range lines {
		if text, ok := strings.CutPrefix(line, "time "); ok {
			if unix, err := strconv.ParseInt(text, 10, 64); err == nil {
				w.skew = skew(unix, began, ended)
			}
		}
	}
	return w, nil
}

// skew is how far the Sprite's clock, read in whole seconds between began and ended, is certainly off: negative when it
// is behind.
func skew(unix int64, began, ended time.Time) time.Duration {
	if earliest := time.Unix(unix, 0); earliest.After(ended) {
		return earliest.Sub(ended)
	}
	if latest := time.Unix(unix+1, 0); latest.Before(began) {
		return latest.Sub(began)
	}
	return 0
}

// EnsureAwake wakes a Sprite by a no-op command, dialling again while the wake drops connections, and says what it had
// to wake. It blocks for at most a few DialTimeouts.
func (c *Client) EnsureAwake(ctx context.Context, name string) (Woke, error) {
	s, err := c.Get(ctx, name)
	if err != nil {
		return WokeUnknown, fmt.Errorf("wake: %w", err)
	}
	if err := c.wake(ctx, name, c.cfg.DialTimeout, "true"); err != nil {
		return WokeUnknown, err
	}
	return wokeFrom(s.Status), nil
}

// wake runs a repeatable command for the sake of waking.
func (c *Client) wake(ctx context.Context, name string, limit time.Duration, argv ...string) error {
	if _, err := c.run(ctx, probe{sprite: name, argv: argv, limit: limit}); err != nil {
		return fmt.Errorf("wake %s: %w", name, err)
	}
	return nil
}
