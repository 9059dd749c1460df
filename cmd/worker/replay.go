package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
)

// replayFlags are the flags of `worker dlq replay`.
type replayFlags struct {
	letterFlags
	dryRun, force, wait, yes bool
	canary                   int
	rate, stopOn, why, key   string
	deadline                 time.Duration
}

func newDLQReplayCmd(c *cli) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Run dead letters again",
		Long: `Run dead letters again, by IDs or by filters. A replay is the next run of the same job: whoever listens to the job sees
it, and authorisation and limits are looked at anew. A record is replayed once, whoever else is at it; what has
succeeded or runs is refused, and what may have run already needs --force.

--canary N replays N first and goes on only when all of them ended well. --stop-on-failure P stops once more than P
percent of those that ended did not end well. Ctrl-C stops between records; a second run continues.`,
		Example: "  worker dlq replay acme/j1 --wait\n" +
			"  worker dlq replay --class provision_unavailable --since 2h --dry-run\n" +
			"  worker dlq replay --class provision_unavailable --canary 5 --rate 2/s --stop-on-failure 20% --wait --yes",
		RunE: func(cmd *cobra.Command, args []string) error { return c.replay(cmd.Context(), f, args) },
	}
	fs := cmd.Flags()
	f.bind(fs)
	fs.BoolVar(&f.dryRun, "dry-run", false, "say what would be replayed, and change nothing")
	fs.IntVar(&f.canary, "canary", 0, "replay so many first, and the rest when all of them ended well")
	fs.StringVar(&f.rate, "rate", "", "so many at most, such as 2/s or 30/m")
	fs.StringVar(&f.stopOn, "stop-on-failure", "", "stop when more than this share did not end well, such as 20%")
	fs.BoolVar(&f.force, "force", false, "also what may have run already")
	fs.BoolVar(&f.wait, "wait", false, "wait for all results; exit 1 when one did not end well")
	fs.BoolVar(&f.yes, "yes", false, "do not ask before more than 10")
	fs.StringVar(&f.why, "why", "", "why, for the audit trail")
	fs.StringVar(&f.key, "key", "", "signing key of operators' grants, in place of WAKEBUS_OPERATOR_KEY")
	fs.DurationVar(&f.deadline, "deadline", bus.DefaultDeadline, "how long a replay may wait before it starts")
	return cmd
}

func (c *cli) replay(ctx context.Context, f replayFlags, args []string) error {
	pace, share, err := f.validate(args)
	if err != nil {
		return err
	}
	b, settings, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	ids, err := c.chooseLetters(ctx, b, f, args)
	if err != nil {
		return err
	}
	if f.dryRun {
		return c.dryRun(ctx, b, ids, f.force)
	}
	grants, err := c.operatorGrants(settings, f.key)
	if err != nil {
		return err
	}
	if err := c.confirm(len(ids), f.yes, "replay"); err != nil {
		return err
	}
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	r := &replayer{c: c, b: b, f: f, grants: grants, pace: pace, share: share, watch: f.wait || f.canary > 0 || share >= 0,
		explicit: len(args) > 0, slots: make(chan struct{}, maxWatched)}
	return r.run(ctx, ids)
}

func (f replayFlags) validate(args []string) (pace time.Duration, share float64, err error) {
	var errs []error
	if len(args) == 0 && !f.chooses() {
		errs = append(errs, errors.New("name IDs, or choose with --class, --fingerprint, --reason, --tenant, --since or --limit"))
	}
	if len(args) > 0 && (f.class != "" || f.fingerprint != "" || f.reason != "" || f.since != 0 || f.limit != 0) {
		errs = append(errs, errors.New("IDs and filters exclude each other"))
	}
	if f.canary < 0 || f.deadline <= 0 || f.deadline > bus.MaxDeadline {
		errs = append(errs, fmt.Errorf("--canary must not be below zero, --deadline must be above zero and at most %s", bus.MaxDeadline))
	}
	pace, errRate := parseRate(f.rate)
	share, errShare := parseShare(f.stopOn)
	if err := errors.Join(append(errs, errRate, errShare)...); err != nil {
		return 0, 0, usage("%w", err)
	}
	return pace, share, nil
}

// parseRate turns 2/s into the time between two records; nothing is no limit.
func parseRate(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	number, unit, _ := strings.Cut(text, "/")
	per, ok := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || n <= 0 || n > 1000 {
		return 0, errors.New("--rate must be such as 2/s, 30/m or 10/h")
	}
	return time.Duration(float64(per) / n), nil
}

// parseShare turns 20% into 0.2; nothing is -1, no limit.
func parseShare(text string) (float64, error) {
	if text == "" {
		return -1, nil
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !strings.HasSuffix(text, "%") || n < 0 || n > 100 {
		return 0, errors.New("--stop-on-failure must be a percentage, such as 20%")
	}
	return n / 100, nil
}

func (c *cli) chooseLetters(ctx context.Context, b *bus.Bus, f replayFlags, args []string) ([]bus.LetterID, error) {
	if len(args) > 0 {
		return letterIDs(args, f.tenant)
	}
	filter, err := f.filter(c.now())
	if err != nil {
		return nil, err
	}
	letters, err := b.LetterSummaries(ctx, filter)
	if err != nil {
		return nil, err
	}
	ids := make([]bus.LetterID, 0, len(letters))
	for _, l := range letters {
		ids = append(ids, l.ID)
	}
	return ids, nil
}

func (c *cli) dryRun(ctx context.Context, b *bus.Bus, ids []bus.LetterID, force bool) error {
	for _, id := range ids {
		done := letterDone{ID: id.String(), State: "would replay"}
		err := b.CheckReplay(ctx, id, force)
		var refusal *bus.ReplayRefused
		switch {
		case errors.As(err, &refusal):
			done.State, done.Why = "refused", refusal.Error()
		case errors.Is(err, bus.ErrNoLetter):
			done.State, done.Why = "refused", "there is no such dead letter"
		case err != nil:
			return err
		}
		if err := c.report(done); err != nil {
			return err
		}
	}
	return nil
}

// operatorGrants makes the grant of each replay: a replay's grant is for one job alone. It is tried once before
// anything is changed.
func (c *cli) operatorGrants(settings config.Client, keyFile string) (func(bus.LetterID) (string, error), error) {
	grants := func(id bus.LetterID) (string, error) {
		return c.operatorGrant(settings, keyFile, authz.Claims{Tenant: id.Tenant, Job: id.Job})
	}
	_, err := grants(bus.LetterID{Tenant: "dev", Job: "dev"})
	return grants, err
}
