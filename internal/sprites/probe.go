package sprites

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// probeOutputMax bounds what one of our own commands may print.
const probeOutputMax = 64 << 10

// probe is one of our own repeatable commands.
type probe struct {
	sprite string
	tenant string
	argv   []string
	once   bool          // one dial only, for a caller with a schedule of its own
	end    bool          // it ends a command: tried by OpKill's rule, and never held up by the gate
	limit  time.Duration // of one try, dial included
}

// run executes one of our own repeatable commands without a guard and returns its stdout. It is retried by OpProbe's
// rule, after open as well. A non-zero exit is an error of class ClassInvalid.
func (c *Client) run(ctx context.Context, p probe) ([]byte, error) {
	var out []byte
	try := func(ctx context.Context, _ int) error {
		var err error
		out, err = c.runOnce(ctx, p)
		return err
	}
	if p.once {
		pass, err := c.enter(ctx, OpProbe, p.tenant)
		if err != nil {
			return nil, err
		}
		err = try(ctx, 1)
		_ = c.report(ctx, OpProbe, pass, err) // the caller returns err itself
		return out, err
	}
	rule := OpProbe
	if p.end {
		rule = OpKill
	}
	err := c.retrying(ctx, rule, p.tenant, try)
	return out, err
}

func (c *Client) runOnce(ctx context.Context, p probe) ([]byte, error) {
	pctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	query := url.Values{
		"cmd": p.argv, "path": {p.argv[0]}, "env": c.environment(nil, false, nil), "stdin": {"false"},
		"max_run_after_disconnect": {"10s"},
	}
	s, info, err := c.dial(pctx, OpProbe, c.spriteURL(p.sprite, query, "exec"), false)
	if err != nil {
		return nil, c.probeError(ctx, err)
	}
	proc := newProcess(c, s, info, p.sprite, "", "")
	defer proc.Close()
	var out []byte
	for {
		chunk, err := proc.Next(pctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, c.probeError(ctx, err)
		}
		if chunk.Stream == Stdout {
			out = append(out, chunk.Data...)
		}
		if len(out) > probeOutputMax {
			return nil, &Error{Op: OpProbe, Class: ClassInvalid, Opened: true, cause: ErrTooLarge}
		}
	}
	if exit, _ := proc.Exit(); exit.Code != 0 {
		return nil, &Error{Op: OpProbe, Class: ClassInvalid, Opened: true, cause: fmt.Errorf("exit code %d", exit.Code)}
	}
	return out, nil
}

// probeError tells our own deadline from the caller's giving up.
func (c *Client) probeError(ctx context.Context, err error) error {
	return failure(ctx, OpProbe, err)
}

// marked returns the lines which begin with the marker, without it: whatever else is on stdout (a login banner, a
// warning) is not ours.
func marked(out []byte, marker string) []string {
	var lines []string
	for _, line := range strings.Split(string(out), "\n") {
		if rest, ok := strings.CutPrefix(line, marker+" "); ok {
			lines = append(lines, rest)
		}
	}
	return lines
}
