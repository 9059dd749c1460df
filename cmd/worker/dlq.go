package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

func newDLQCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "See what could not be provisioned and why, and run it again",
		Long: `Dead letters are jobs that could not be provisioned, were malformed, killed the workers that took them, or ended with
nobody knowing how. ID is [tenant/]job, the tenant being --tenant's.`,
		Example: "  worker dlq list --since 2h --by fingerprint\n  worker dlq show acme/j1\n" +
			"  worker dlq replay --class provision_unavailable --canary 5 --rate 2/s --stop-on-failure 20% --wait",
	}
	cmd.AddCommand(newDLQListCmd(c), newDLQShowCmd(c), newDLQStatsCmd(c), newDLQReplayCmd(c), newDLQDiscardCmd(c))
	return cmd
}

// letterFlags choose dead letters.
type letterFlags struct {
	tenant, class, fingerprint, reason, state string
	since                                     time.Duration
	limit                                     int
}

func (f *letterFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.tenant, "tenant", "", "only this tenant's; also the tenant of an ID without one")
	fs.StringVar(&f.class, "class", "", "only this class, such as provision_unavailable")
	fs.StringVar(&f.fingerprint, "fingerprint", "", "only those that died of the same thing")
	fs.StringVar(&f.reason, "reason", "", "only this reason code")
	fs.DurationVar(&f.since, "since", 0, "only those that died in this time until now")
	fs.IntVar(&f.limit, "limit", 0, "the newest so many at most")
}

// chooses reports whether anything narrows the choice.
func (f *letterFlags) chooses() bool {
	return f.tenant != "" || f.class != "" || f.fingerprint != "" || f.reason != "" || f.since != 0 || f.limit != 0
}

func (f *letterFlags) filter(now time.Time) (bus.LetterFilter, error) {
	filter := bus.LetterFilter{Tenant: f.tenant, Class: bus.LetterClass(f.class), Fingerprint: f.fingerprint,
		Reason: plan.Reason(f.reason), Limit: f.limit}
	var errs []error
	if f.class != "" && !knownClass(filter.Class) {
		errs = append(errs, fmt.Errorf("--class must be one of %s", words(bus.LetterClasses())))
	}
	if f.reason != "" && !filter.Reason.Valid() {
		errs = append(errs, errors.New("--reason must be a reason code"))
	}
	if f.since < 0 || f.limit < 0 {
		errs = append(errs, errors.New("--since and --limit must not be below zero"))
	}
	if f.since > 0 {
		filter.Since = now.Add(-f.since)
	}
	for word := range strings.SplitSeq(f.state, ",") {
		switch state := bus.LetterState(word); state {
		case "":
		case bus.LetterDead, bus.LetterReplaying, bus.LetterResolved, bus.LetterDiscarded:
			filter.States = append(filter.States, state)
		default:
			errs = append(errs, errors.New("--state must be dead, replaying, resolved or discarded"))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return filter, usage("%w", err)
	}
	return filter, nil
}

// words lists a closed set for people.
func words[T ~string](all []T) string {
	text := make([]string, len(all))
	for i, one := range all {
		text[i] = string(one)
	}
	return strings.Join(text, ", ")
}

func knownClass(class bus.LetterClass) bool {
	for _, known := range bus.LetterClasses() {
		if class == known {
			return true
		}
	}
	return false
}

// letterRow is one line of `dlq list --json`; it can be kept.
type letterRow struct {
	ID          string          `json:"id"`
	State       bus.LetterState `json:"state"`
	Class       bus.LetterClass `json:"class"`
	Reason      plan.Reason     `json:"reason"`
	Fingerprint string          `json:"fingerprint"`
	Run         int             `json:"run"`
	DeadAt      time.Time       `json:"dead_at"`
	At          time.Time       `json:"at"`
}

func newDLQListCmd(c *cli) *cobra.Command {
	var f letterFlags
	var by string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List dead letters",
		Example: "  worker dlq list --class provision_rate_limited --since 2h --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(c.now())
			if err != nil {
				return err
			}
			if by != "" && by != "fingerprint" {
				return usage("--by must be fingerprint")
			}
			b, _, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			letters, err := b.LetterSummaries(cmd.Context(), filter)
			if err != nil {
				return err
			}
			if by != "" {
				return c.printGroups(bus.CountLetters(letters).ByFingerprint)
			}
			rows := make([]letterRow, 0, len(letters))
			for _, l := range letters {
				rows = append(rows, letterRow{l.ID.String(), l.State, l.Class, l.Reason, l.Fingerprint, l.Run, l.DeadAt, l.At})
			}
			return printRows(c, rows, "ID STATE CLASS REASON FINGERPRINT RUN AGE", func(r letterRow) []string {
				return []string{r.ID, string(r.State), string(r.Class), string(r.Reason), r.Fingerprint, strconv.Itoa(r.Run), age(c.now().Sub(r.DeadAt))}
			})
		},
	}
	f.bind(cmd.Flags())
	cmd.Flags().StringVar(&f.state, "state", string(bus.LetterDead), "dead, replaying, resolved or discarded; several by commas")
	cmd.Flags().StringVar(&by, "by", "", "fingerprint: a line per thing they died of")
	return cmd
}

// groupRow is one line of `dlq list --by fingerprint --json` and `dlq stats --json`.
type groupRow struct {
	Fingerprint string          `json:"fingerprint"`
	Class       bus.LetterClass `json:"class"`
	Reason      plan.Reason     `json:"reason"`
	Count       int             `json:"count"`
	Oldest      time.Time       `json:"oldest"`
	Newest      time.Time       `json:"newest"`
	Example     string          `json:"example"`
}

func groupRows(groups []bus.LetterGroup) []groupRow {
	rows := make([]groupRow, 0, len(groups))
	for _, g := range groups {
		rows = append(rows, groupRow{g.Fingerprint, g.Class, g.Reason, g.Count, g.Oldest, g.Newest, g.Example.String()})
	}
	return rows
}

func (c *cli) printGroups(groups []bus.LetterGroup) error {
	return printRows(c, groupRows(groups), "COUNT FINGERPRINT CLASS REASON OLDEST NEWEST EXAMPLE", func(g groupRow) []string {
		now := c.now()
		return []string{strconv.Itoa(g.Count), g.Fingerprint, string(g.Class), string(g.Reason), age(now.Sub(g.Oldest)), age(now.Sub(g.Newest)), g.Example}
	})
}

func newDLQStatsCmd(c *cli) *cobra.Command {
	var f letterFlags
	cmd := &cobra.Command{
		Use:     "stats",
		Short:   "Count dead letters by state, class and fingerprint",
		Example: "  worker dlq stats --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(c.now())
			if err != nil {
				return err
			}
			b, _, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			stats, err := b.LetterStats(cmd.Context(), filter)
			if err != nil {
				return err
			}
			if c.flags.json {
				return c.printJSON(struct {
					ByState       map[bus.LetterState]int `json:"by_state"`
					ByClass       map[bus.LetterClass]int `json:"by_class"`
					ByFingerprint []groupRow              `json:"by_fingerprint"`
					Oldest        time.Time               `json:"oldest,omitzero"`
				}{stats.ByState, stats.ByClass, groupRows(stats.ByFingerprint), stats.Oldest})
			}
			pairs := []pair{}
			for _, state := range []bus.LetterState{bus.LetterDead, bus.LetterReplaying, bus.LetterResolved, bus.LetterDiscarded} {
				pairs = append(pairs, pair{string(state), strconv.Itoa(stats.ByState[state])})
			}
			if !stats.Oldest.IsZero() {
				pairs = append(pairs, pair{"oldest dead", age(c.now().Sub(stats.Oldest))})
			}
			c.printPairs(pairs...)
			return c.printGroups(stats.ByFingerprint)
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

func newDLQDiscardCmd(c *cli) *cobra.Command {
	var tenant, why string
	var yes bool
	cmd := &cobra.Command{
		Use:     "discard ID...",
		Short:   "Close dead letters without running them",
		Example: "  worker dlq discard acme/j1 --why 'the user gave up'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if why == "" {
				return usage("--why is required")
			}
			ids, err := letterIDs(args, tenant)
			if err != nil {
				return err
			}
			if err := c.confirm(len(ids), yes, "discard"); err != nil {
				return err
			}
			b, _, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			return c.discard(cmd.Context(), b, ids, why)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "dev", "tenant of an ID without one")
	cmd.Flags().StringVar(&why, "why", "", "why, for the audit trail (required)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask before more than 10")
	return cmd
}

func (c *cli) discard(ctx context.Context, b *bus.Bus, ids []bus.LetterID, why string) error {
	failed := 0
	for _, id := range ids {
		err := b.Discard(ctx, id, c.operator(), why)
		var held *bus.ReplayRefused
		switch {
		case errors.Is(err, bus.ErrNoLetter):
			failed++
			c.say("%s: no dead letter", id)
			continue
		case errors.As(err, &held):
			failed++
			c.say("%v", held)
			continue
		case err != nil:
			return err
		}
		c.auditOn(ctx, b, audit.Record{Kind: audit.KindOperate, Tenant: id.Tenant, Action: "dlq discard", Job: id.Job, Detail: why})
		if err := c.report(letterDone{ID: id.String(), State: "discarded"}); err != nil {
			return err
		}
	}
	if failed > 0 {
		return endWith(codeRefused)
	}
	return nil
}

// letterDone is one line of what replay and discard report.
type letterDone struct {
	ID      string       `json:"id"`
	State   string       `json:"state"`
	Run     int          `json:"run,omitempty"`
	Outcome plan.Outcome `json:"outcome,omitempty"`
	Reason  plan.Reason  `json:"reason,omitempty"`
	Why     string       `json:"why,omitempty"`
}

func (c *cli) report(done letterDone) error {
	if c.flags.json {
		return c.printJSON(done)
	}
	text := done.State + " " + done.ID
	if done.Run > 0 {
		text += " run " + strconv.Itoa(done.Run)
	}
	for _, part := range []string{string(done.Outcome), string(done.Reason), done.Why} {
		if part != "" {
			text += " " + part
		}
	}
	_, err := fmt.Fprintln(c.out, clean(text))
	return err
}

func letterIDs(args []string, tenant string) ([]bus.LetterID, error) {
	if tenant == "" {
		tenant = "dev"
	}
	var errs []error
	ids := make([]bus.LetterID, 0, len(args))
	for _, arg := range args {
		id, err := bus.ParseLetterID(arg, tenant)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ids = append(ids, id)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, usage("%w", err)
	}
	return ids, nil
}
