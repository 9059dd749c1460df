package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
)

// showFlags are the flags of `worker jobs show`.
type showFlags struct {
	tenant         string
	run            int
	runGiven       bool
	fromSeq        uint64
	output, follow bool
}

func newJobsShowCmd(c *cli) *cobra.Command {
	var f showFlags
	cmd := &cobra.Command{
		Use:   "show JOB",
		Short: "Print a job's events, also after it ended; say why it waits",
		Long: `Print a job's events, a line each, of its latest run unless --run says another. A job that waits says what for, until
when, and who holds the slot. --output writes the command's bytes instead, to the streams they were written to.
--follow stays: with --run until that run has ended, else through its replays until Ctrl-C.`,
		Example: "  worker jobs show acme/j1\n  worker jobs show acme/j1 --output > out.txt\n  worker jobs show acme/j1 --follow --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.runGiven = cmd.Flags().Changed("run")
			key, err := parseJob(args[0], f.tenant)
			if err != nil {
				return err
			}
			if f.run < 0 || f.output && c.flags.json {
				return usage("--run must not be below zero; --output and --json exclude each other")
			}
			key.Run = f.run
			return c.showJob(cmd.Context(), key, f)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.tenant, "tenant", "dev", "tenant of a JOB without one")
	fs.IntVar(&f.run, "run", 0, "this run; 0 is the first, replays count up")
	fs.Uint64Var(&f.fromSeq, "from-seq", 1, "from this event on")
	fs.BoolVar(&f.output, "output", false, "write the command's output instead of lines")
	fs.BoolVar(&f.follow, "follow", false, "stay for what comes")
	return cmd
}

func (c *cli) showJob(ctx context.Context, key bus.RunKey, f showFlags) error {
	b, settings, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	if !f.runGiven {
		if key.Run, err = c.latestRun(ctx, b, key); err != nil {
			return err
		}
	}
	view := &jobView{show: show{c: c, json: c.flags.json}, lines: !f.output && !c.flags.json}
	if f.follow {
		return c.followJob(ctx, b, view, key, f)
	}
	for from, more := f.fromSeq, true; more; {
		var page []bus.Event
		var last uint64
		if page, last, more, err = c.history(b).History(ctx, key, from, 0, 0); err != nil {
			return err
		}
		for _, ev := range page {
			if err := view.event(ev); err != nil {
				return leaveQuietly(err)
			}
		}
		from = last + 1
	}
	if view.last == nil {
		return c.showQueued(ctx, b, key, f)
	}
	if view.result == nil && !c.flags.json {
		c.explainWait(ctx, settings, view)
	}
	return nil
}

// maxRunsShown bounds the search for a job's latest run.
const maxRunsShown = 1000

// latestRun finds the last run that has events; 0 when none has.
func (c *cli) latestRun(ctx context.Context, b *bus.Bus, key bus.RunKey) (int, error) {
	for run := 1; run < maxRunsShown; run++ {
		key.Run = run
		events, _, _, err := c.history(b).History(ctx, key, 1, 1, 0)
		if err != nil {
			return 0, err
		}
		if len(events) == 0 {
			return run - 1, nil
		}
	}
	return maxRunsShown - 1, nil
}

func (c *cli) followJob(ctx context.Context, b *bus.Bus, view *jobView, key bus.RunKey, f showFlags) error {
	options := []bus.ReadOption{bus.ReadRun(key.Run), bus.ReadFrom(f.fromSeq), bus.ReadHistory(c.history(b))}
	if !f.runGiven {
		options = append(options, bus.ReadFollow())
	}
	reader, err := b.Subscribe(ctx, key.Tenant, key.Job, options...)
	if err != nil {
		return err
	}
	defer reader.Close()
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	c.sayUnclaimed(ctx, b, key, f)
	err = view.follow(ctx, reader)
	if ctx.Err() != nil {
		return nil // Ctrl-C is how this ends
	}
	return leaveQuietly(err)
}

// sayUnclaimed tells who follows a job without events why nothing comes. It stays: the job may be published yet.
func (c *cli) sayUnclaimed(ctx context.Context, b *bus.Bus, key bus.RunKey, f showFlags) {
	events, _, _, err := c.history(b).History(ctx, key, 1, 1, 0)
	if err != nil || len(events) > 0 || c.flags.json {
		return
	}
	f.fromSeq = 1
	if err := c.showQueued(ctx, b, key, f); err != nil {
		c.say("%v; its events are shown when they come", err)
	}
}

func leaveQuietly(err error) error {
	if errors.Is(err, errClosedOutput) {
		return endWith(codeClosedOutput)
	}
	return err
}

// showQueued is for a job that nobody has claimed: it waits in the queue, or is not known.
func (c *cli) showQueued(ctx context.Context, b *bus.Bus, key bus.RunKey, f showFlags) error {
	if f.fromSeq > 1 {
		return nil // a valid question about a run that may be there, and has nothing more
	}
	answer, err := jobsOf(ctx, b, key.Tenant, bus.JobsRequest{V: 1, State: bus.JobQueued, Limit: bus.MaxJobsListed})
	if err != nil {
		return err
	}
	for _, j := range answer.Jobs {
		if j.JobID == key.Job && j.Run == key.Run {
			if c.flags.json {
				return c.printJSON(j)
			}
			c.say("queued for %s: no worker has taken it yet", c.since(j.QueuedAt))
			return nil
		}
	}
	return refused("no job %s/%s", key.Tenant, key.Job)
}

// jobView shows events as lines for people, or as show does.
type jobView struct {
	show
	lines bool
	// last is the last state event, nil before the first; record is the one in it.
	last   *bus.Event
	record bus.Record
}

func (v *jobView) follow(ctx context.Context, source events) error {
	return followWith(ctx, source, v.event)
}

func (v *jobView) event(ev bus.Event) error {
	if !ev.Kind.IsOutput() {
		v.last = &ev
		if record, err := ev.Record(); err == nil {
			v.record = record
		}
	}
	if !v.lines {
		return v.show.event(ev)
	}
	if ev.Kind == bus.EventResult {
		var body bus.ResultBody
		if err := json.Unmarshal(ev.Data, &body); err == nil {
			v.result = &body
		}
	}
	return write(v.c.out, []byte(clean(eventLine(ev))+"\n"))
}

// eventLine is an event in one line.
func eventLine(ev bus.Event) string {
	text := fmt.Sprintf("%5d  %s  %-10s", ev.Seq, stamp(ev.Time), ev.Kind)
	switch ev.Kind {
	case bus.EventStdout:
		return fmt.Sprintf("%s  %d bytes from %d", text, len(ev.Data), ev.StdoutOffset)
	case bus.EventStderr:
		return fmt.Sprintf("%s  %d bytes from %d", text, len(ev.Data), ev.StderrOffset)
	case bus.EventResult:
		var body bus.ResultBody
		if json.Unmarshal(ev.Data, &body) == nil {
			return text + "  " + outcomeLine(ev.Key, body)
		}
	case bus.EventAccepted, bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStarted, bus.EventStopping,
		bus.EventTakenOver, bus.EventHeartbeat, bus.EventGap:
	}
	return strings.TrimRight(text+"  "+bodyWords(ev.Data), " ")
}

// bodyWords are a state event's own fields, without the record that each carries.
func bodyWords(data []byte) string {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	var words []string
	if _, err := dec.Token(); err != nil {
		return ""
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			break
		}
		if name != "run" {
			words = append(words, fmt.Sprintf("%s=%s", name, strings.Trim(string(value), `"`)))
		}
	}
	return strings.Join(words, " ")
}

// explainWait says what a job that has not ended waits for, and who holds the slot.
func (c *cli) explainWait(ctx context.Context, settings config.Client, v *jobView) {
	if v.last.Kind != bus.EventWaiting {
		c.say("%s: %s since %s, owner %s", v.record.Phase, v.last.Kind, c.since(v.last.Time), v.last.Owner)
		return
	}
	var w bus.WaitingBody
	if err := json.Unmarshal(v.last.Data, &w); err != nil {
		return
	}
	text := fmt.Sprintf("waits for %s", w.For)
	if w.Scope != "" {
		text += " (" + w.Scope + ")"
	}
	if !w.Until.IsZero() {
		text += " until " + w.Until.UTC().Format(time.RFC3339)
	}
	if w.Why != "" {
		text += ": " + w.Why
	}
	c.say("%s", clean(text))
	if w.For == bus.WaitLimit || w.For == bus.WaitSerial {
		c.sayHolders(ctx, settings, v)
	}
}

func (c *cli) sayHolders(ctx context.Context, settings config.Client, v *jobView) {
	m, err := c.openLeases(ctx, settings)
	if err != nil {
		c.say("who holds the slot is not known: %v", err)
		return
	}
	defer m.Close()
	filter := lease.Filter{Tenant: v.last.Key.Tenant, Kind: lease.KindExec, Max: 20}
	if v.record.Kind == bus.KindTerminal {
		filter.Kind = lease.KindTerminal
	}
	if a := v.record.Actor; a != nil && plan.ValidPrincipal(a.User) {
		filter.User = a.User
	}
	held, err := m.List(ctx, filter)
	if err != nil && len(held) == 0 {
		c.say("who holds the slot is not known: %v", err)
		return
	}
	for _, l := range held {
		c.say("%s", clean(fmt.Sprintf("held by %s (user %s, sandbox %s) since %s", l.ID, l.User, l.Sandbox, c.since(l.Since))))
	}
}
