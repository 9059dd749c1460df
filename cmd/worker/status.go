package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
)

func newStatusCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show workers, queues, leases, the provider's gate and dead letters",
		Example: "  worker status\n  worker status --json | jq .queues",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.status(cmd.Context()) },
	}
}

// fleetStatus is what `worker status --json` prints.
type fleetStatus struct {
	Server      string                  `json:"server"`
	Workers     []bus.WorkerState       `json:"workers"`
	Execution   bus.ExecutionSwitch     `json:"execution"`
	JournalFull float64                 `json:"journal_full"`
	Queues      []queueRow              `json:"queues"`
	Runs        runCounts               `json:"runs"`
	DeadLetters map[bus.LetterClass]int `json:"dead_letters"`
	OldestDead  time.Time               `json:"oldest_dead,omitzero"`
	Leases      []scopeRow              `json:"leases"`
	Gates       []lease.GateState       `json:"gates"`
	// Unclear says what could not be read.
	Unclear []string `json:"unclear,omitempty"`
}

// queueRow is how many requests of a tenant stand in a queue.
type queueRow struct {
	Queue  bus.QueueState `json:"queue"`
	Kind   bus.Kind       `json:"kind,omitempty"`
	Tenant string         `json:"tenant"`
	Count  uint64         `json:"count"`
	Oldest time.Time      `json:"oldest,omitzero"`
}

// runCounts is what stands between requests and results.
type runCounts struct {
	Running   int                 `json:"running"`
	Preparing int                 `json:"preparing"`
	Waiting   map[bus.WaitFor]int `json:"waiting"`
	Oldest    time.Time           `json:"oldest,omitzero"`
	Partial   bool                `json:"partial,omitempty"`
}

// scopeRow is how many leases one tenant holds of a kind.
type scopeRow struct {
	Kind   lease.Kind `json:"kind"`
	Tenant string     `json:"tenant"`
	Held   int        `json:"held"`
}

func (c *cli) status(ctx context.Context) error {
	b, settings, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	s := fleetStatus{Server: b.Server(), Queues: []queueRow{}, Leases: []scopeRow{}, Gates: []lease.GateState{}}
	if err := s.readBus(ctx, b); err != nil {
		return err
	}
	m, err := c.openLeases(ctx, settings)
	if err != nil {
		s.Unclear = append(s.Unclear, "leases and gates: "+err.Error())
	} else {
		defer m.Close()
		s.readLeases(ctx, m)
	}
	if c.flags.json {
		return c.printJSON(s)
	}
	return c.printStatus(s)
}

func (s *fleetStatus) readBus(ctx context.Context, b *bus.Bus) error {
	var err error
	if s.Execution, err = b.Execution(ctx); err != nil {
		return err
	}
	if s.Workers, err = b.Workers(ctx); err != nil {
		return err
	}
	if s.JournalFull, err = b.JournalShare(ctx); err != nil {
		return err
	}
	depths, err := b.Backlog(ctx)
	if err != nil {
		return err
	}
	for _, d := range depths {
		s.Queues = append(s.Queues, queueRow{d.State, d.Kind, d.Tenant, d.Count, d.Oldest})
	}
	runs, err := b.Unfinished(ctx)
	if err != nil {
		return err
	}
	s.Runs = runCounts{runs.Running, runs.Preparing, runs.Waiting, runs.Oldest, runs.Partial}
	stats, err := b.LetterStats(ctx, bus.LetterFilter{})
	if err != nil {
		return err
	}
	s.DeadLetters, s.OldestDead = stats.ByClass, stats.Oldest
	return nil
}

func (s *fleetStatus) readLeases(ctx context.Context, m *lease.Manager) {
	held, err := m.List(ctx, lease.Filter{Max: 10_000})
	if err != nil {
		s.Unclear = append(s.Unclear, "leases: "+err.Error())
	}
	counts := map[scopeRow]int{}
	for _, l := range held {
		counts[scopeRow{Kind: l.Kind, Tenant: l.Tenant}]++
	}
	for row, n := range counts {
		row.Held = n
		s.Leases = append(s.Leases, row)
	}
	slices.SortFunc(s.Leases, func(x, y scopeRow) int {
		return strings.Compare(string(x.Kind)+" "+x.Tenant, string(y.Kind)+" "+y.Tenant)
	})
	gates, err := m.Gate().States(ctx)
	if err != nil {
		s.Unclear = append(s.Unclear, "gates: "+err.Error())
	}
	s.Gates = append(s.Gates, gates...)
}

func (c *cli) printStatus(s fleetStatus) error {
	execution := "not switched off"
	switch {
	case s.Execution.Unreadable:
		execution = "OFF: " + s.Execution.Why + " (worker execution on)"
	case !s.Execution.On:
		execution = "off, by " + s.Execution.By + ": " + s.Execution.Why
	}
	runs := fmt.Sprintf("%d running, %d preparing", s.Runs.Running, s.Runs.Preparing)
	if s.Runs.Partial {
		runs += ", and more"
	}
	c.printPairs(pair{"nats", s.Server}, pair{"execution", execution}, pair{"journal", fmt.Sprintf("%.1f %% full", s.JournalFull*100)},
		pair{"runs", runs}, pair{"waiting for", tally(s.Runs.Waiting)}, pair{"oldest run", c.since(s.Runs.Oldest)},
		pair{"dead letters", tally(s.DeadLetters)}, pair{"oldest dead", c.since(s.OldestDead)})
	for _, u := range s.Unclear {
		c.say("warning: %s", u)
	}
	if err := printRows(c, s.Workers, "WORKER VERSION RUNNING SLOTS DRAINING LAST-PROVIDER-ERROR", func(w bus.WorkerState) []string {
		failed := w.LastProviderError
		if failed != "" {
			failed += " " + c.since(w.LastProviderAt)
		}
		return []string{w.ID, w.Version, strconv.Itoa(w.Running), strconv.Itoa(w.Slots), strconv.FormatBool(w.Draining), failed}
	}); err != nil {
		return err
	}
	if err := printRows(c, s.Queues, "QUEUE KIND TENANT COUNT OLDEST", func(q queueRow) []string {
		return []string{string(q.Queue), string(q.Kind), q.Tenant, strconv.FormatUint(q.Count, 10), c.since(q.Oldest)}
	}); err != nil {
		return err
	}
	if err := printRows(c, s.Leases, "LEASES TENANT HELD", func(l scopeRow) []string {
		return []string{string(l.Kind), l.Tenant, strconv.Itoa(l.Held)}
	}); err != nil {
		return err
	}
	return printRows(c, s.Gates, "GATE STATUS WHY UNTIL FAILURES", func(g lease.GateState) []string {
		return []string{g.Op, string(g.Status), g.Why, untilText(g.Until, c.now()), strconv.Itoa(g.Failures)}
	})
}

// tally is counts by a word in one line.
func tally[W ~string](counts map[W]int) string {
	words := []string{}
	for word, n := range counts {
		words = append(words, fmt.Sprintf("%s %d", word, n))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func untilText(t, now time.Time) string {
	if t.IsZero() || !t.After(now) {
		return ""
	}
	return "in " + age(t.Sub(now))
}
