package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/plan"
)

// execFlags are the flags of `worker exec`.
type execFlags struct {
	tenant, user, tier, conversation, drive, grant, job, cwd, shell string
	onLimit, order, onOutputLimit, streamBytes                      string
	timeout, deadline                                               time.Duration
	env                                                             []string
	stdin, freshStart, detach                                       bool
}

func newExecCmd(c *cli) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] [-- argv...]",
		Short: "Run one command in a conversation's sandbox",
		Long: `Run one command in a conversation's sandbox. Standard output and standard error are the command's bytes as they come
and nothing else; one line of our own goes to standard error when the command did not end by itself. A job id that was
used before prints what was recorded and runs nothing.

Exit codes: the command's own; 124 timed out; 125 denied, failed, expired, refused by the queue, not reachable, or
unusable arguments; 126 output limit; 130 canceled; 255 lost. They can collide with the command's own: scripts that
must know use --json. Ctrl-C or SIGTERM cancels and waits for the result, for a minute; a second one leaves at once.`,
		Example: "  worker exec -- python3 -c 'print(1)'\n" +
			"  worker exec --conversation c1 --timeout 30s --shell 'make test 2>&1 | tail'\n" +
			"  worker exec --detach --job nightly-1 -- ./report.sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			return asExec(c.exec(cmd.Context(), f, args))
		},
	}
	// Unusable arguments end exec as every other denial does.
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return asExec(err) })
	fs := cmd.Flags()
	fs.StringVar(&f.tenant, "tenant", "dev", "tenant")
	fs.StringVar(&f.user, "user", "dev", "user, where no signed grant says it")
	fs.StringVar(&f.tier, "tier", string(plan.TierFree), "tier, where no signed grant says it")
	fs.StringVar(&f.conversation, "conversation", "default", "conversation, which owns the sandbox")
	fs.StringVar(&f.drive, "drive", "", "drive")
	fs.StringVar(&f.grant, "grant", "", "signed grant, in place of WAKEBUS_GRANT")
	fs.StringVar(&f.job, "job", "", "job id; a random one without it")
	fs.DurationVar(&f.timeout, "timeout", bus.DefaultTimeout, "how long the command may run")
	fs.DurationVar(&f.deadline, "deadline", bus.DefaultDeadline, "how long it may wait before it starts")
	fs.StringVar(&f.cwd, "cwd", "", "working directory, under /workspace")
	fs.StringArrayVar(&f.env, "env", nil, "K=V, or K to pass on ours; repeatable")
	fs.BoolVar(&f.stdin, "stdin", false, "pass standard input on, 64 KiB at most")
	fs.StringVar(&f.shell, "shell", "", "run this text in a shell, in place of argv")
	fs.StringVar(&f.onLimit, "on-limit", bus.OnLimitDeny, "at the concurrency limit: deny or wait")
	fs.StringVar(&f.order, "order", bus.OrderParallel, "parallel, or serial: one at a time in this conversation")
	fs.StringVar(&f.onOutputLimit, "on-output-limit", bus.OnOutputLimitTrim, "above --stream-bytes: trim or kill")
	fs.StringVar(&f.streamBytes, "stream-bytes", "", "output that is streamed, such as 1MiB; the worker's default without it")
	fs.BoolVar(&f.freshStart, "fresh-start", false, "revive an ended session with a new sandbox")
	fs.BoolVar(&f.detach, "detach", false, "print the job id once it is stored, and leave")
	return cmd
}

// asExec gives an error exec's own code, unless it has one.
func asExec(err error) error {
	var exit *exitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.quiet:
		return err
	}
	return &exitError{code: execNotRun, err: err}
}

func (c *cli) exec(ctx context.Context, f execFlags, argv []string) error {
	req, err := c.execRequest(f, argv)
	if err != nil {
		return err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	// The worker's own checks, so that both refuse the same; nothing is sent when they fail.
	parsed, err := bus.ParseExec(body)
	if err == nil {
		err = parsed.Check(c.now())
	}
	if err != nil {
		return fmt.Errorf("unusable arguments: %w", err)
	}
	hdr, err := c.grantHeader(f.grant, f.user, f.tier)
	if err != nil {
		return err
	}
	b, _, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	done, err := c.trace(ctx, hdr)
	if err != nil {
		return err
	}
	defer done()
	if f.detach {
		if err := c.publish(ctx, b, f, hdr, body, req); err != nil {
			return err
		}
		fmt.Fprintln(c.out, req.JobID)
		return nil
	}
	return c.execAttached(ctx, b, f, hdr, body, req)
}

// execAttached subscribes before it publishes, so that nothing is missed, and shows the job to its end.
func (c *cli) execAttached(ctx context.Context, b *bus.Bus, f execFlags, hdr bus.Header, body []byte, req *bus.ExecRequest) error {
	reader, err := b.Subscribe(ctx, f.tenant, req.JobID, bus.ReadHistory(c.history(b)))
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := c.publish(ctx, b, f, hdr, body, req); err != nil {
		return err
	}
	target := bus.CancelTarget{Tenant: f.tenant, Job: req.JobID}
	ctx, stop := c.cancelOnSignal(ctx, func(ctx context.Context) error {
		return b.MarkCancel(ctx, target, bus.CancelRequest{By: c.operator(), Why: "interrupted"}, hdr)
	})
	defer stop()
	s := &show{c: c, json: c.flags.json}
	err = s.follow(ctx, &withPatience{events: reader, until: req.Deadline.Add(c.grace), now: c.now})
	return c.endExec(s, f, req, err)
}

// startGrace is cli.grace outside tests: a worker says expired itself, soon after the deadline.
const startGrace = 10 * time.Second

func (c *cli) endExec(s *show, f execFlags, req *bus.ExecRequest, err error) error {
	name := f.tenant + "/" + req.JobID
	switch {
	case errors.Is(err, errClosedOutput):
		return endWith(codeClosedOutput)
	case errors.Is(err, errLeft):
		c.say("%s: left; it was asked to stop", name)
		return endWith(execCanceled)
	case errors.Is(err, errNoTaker):
		return fmt.Errorf("%s: expired: no worker took it before its deadline", name)
	case err != nil:
		return fmt.Errorf("%s: %w (it may still run; see: worker jobs show %s)", name, err, name)
	case s.result == nil:
		return fmt.Errorf("%s: its events ended without a result", name)
	}
	if s.result.Outcome != plan.OutcomeExited {
		c.say("%s", outcomeLine(s.key, *s.result))
	}
	if missing := s.missing(); missing != "" && !s.json {
		// The exit code is the command's all the same; but nobody may take what came for the whole.
		c.say("%s: %s", name, missing)
	}
	return endWith(outcomeCode(*s.result))
}

// publish stores the request, unless the caller gave an id that a job has already.
func (c *cli) publish(ctx context.Context, b *bus.Bus, f execFlags, hdr bus.Header, body []byte, req *bus.ExecRequest) error {
	if f.job != "" {
		key := bus.RunKey{Tenant: f.tenant, Job: req.JobID}
		events, _, _, err := c.history(b).History(ctx, key, 1, 1, 0)
		if err == nil && len(events) > 0 {
			return nil
		}
	}
	_, err := b.Publish(ctx, bus.KindExec, f.tenant, hdr, body)
	var full *bus.Refused
	switch {
	case errors.As(err, &full):
		return fmt.Errorf("%s/%s: refused: %w", f.tenant, req.JobID, err)
	case err != nil:
		return fmt.Errorf("%s/%s: not known whether it is stored; the same again with --job %s is safe: %w", f.tenant, req.JobID, req.JobID, err)
	}
	return nil
}

func (c *cli) execRequest(f execFlags, argv []string) (*bus.ExecRequest, error) {
	if !plan.ValidToken(f.tenant) || f.tenant == plan.NoTenant {
		return nil, errors.New("unusable arguments: --tenant must be 1 to 64 letters, digits, _ or -, and not _ alone")
	}
	req := &bus.ExecRequest{
		V: 1, JobID: f.job, ConversationID: f.conversation, DriveID: f.drive, Argv: argv, Shell: f.shell, Cwd: f.cwd,
		TimeoutMs: f.timeout.Milliseconds(), OnOutputLimit: f.onOutputLimit, OnLimit: f.onLimit, Order: f.order, FreshStart: f.freshStart,
	}
	if req.JobID == "" {
		req.JobID = newID()
	}
	deadline := c.now().Add(f.deadline).UTC()
	req.Deadline = &deadline
	if f.timeout <= 0 || f.deadline <= 0 {
		return nil, errors.New("unusable arguments: --timeout and --deadline must be above zero")
	}
	if f.streamBytes != "" {
		size, err := config.ParseSize(f.streamBytes)
		if err != nil {
			return nil, fmt.Errorf("unusable arguments: --stream-bytes %w", err)
		}
		if size <= 0 {
			return nil, errors.New("unusable arguments: --stream-bytes must be above zero")
		}
		req.StreamBytes = size.Bytes()
	}
	env, err := c.execEnv(f.env)
	if err != nil {
		return nil, err
	}
	req.Env = env
	if !textual(req) {
		return nil, errors.New("unusable arguments: a command, its --env and its --cwd must be UTF-8; bytes go by --stdin")
	}
	if f.stdin {
		if req.Stdin, err = io.ReadAll(io.LimitReader(c.in, bus.MaxStdin+1)); err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
	}
	return req, nil
}

// textual reports whether JSON carries the request as it is: what is not UTF-8 it would change without a word.
func textual(req *bus.ExecRequest) bool {
	ok := utf8.ValidString(req.Shell) && utf8.ValidString(req.Cwd)
	for _, arg := range req.Argv {
		ok = ok && utf8.ValidString(arg)
	}
	for _, value := range req.Env {
		ok = ok && utf8.ValidString(value)
	}
	return ok
}

func (c *cli) execEnv(items []string) (map[string]string, error) {
	if len(items) == 0 {
		return nil, nil
	}
	env := make(map[string]string, len(items))
	for _, item := range items {
		name, value, given := strings.Cut(item, "=")
		if !given {
			if value, given = c.lookup(name); !given {
				return nil, fmt.Errorf("unusable arguments: --env %s is not set here", name)
			}
		}
		env[name] = value
	}
	return env, nil
}

// grantHeader is the header a request travels with: a signed grant, or the bare JSON that only a dev instance takes.
func (c *cli) grantHeader(grant, user, tier string) (bus.Header, error) {
	hdr := bus.Header{}
	if grant == "" {
		grant, _ = c.lookup("WAKEBUS_GRANT")
	}
	if grant == "" {
		if !plan.ValidPrincipal(user) || !plan.Tier(tier).Valid() {
			return nil, errors.New("unusable arguments: --user must be printable ASCII and --tier free, pro, founder or business")
		}
		bare, err := json.Marshal(map[string]string{"sub": user, "tier": tier})
		if err != nil {
			return nil, fmt.Errorf("write grant: %w", err)
		}
		grant = string(bare)
	}
	hdr.Set(bus.HeaderGrant, strings.TrimSpace(grant))
	return hdr, nil
}
