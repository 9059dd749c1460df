package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

func newSandboxesSweepCmd(c *cli) *cobra.Command {
	var dry, yes bool
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete sandboxes that nobody has any more",
		Long: `Delete sandboxes of this deployment that no lease, running job or terminal needs, that the provider saw idle for longer
than the hard expiry and a day, and that two sweeps an hour or more apart found so. The first sweep only remembers. A
listing that is not complete deletes nothing; more than 5 percent or 20 at once stop the sweep. Workers sweep by
themselves once an hour and share what they remember with this command.`,
		Example: "  worker sandboxes sweep --dry-run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.sweep(cmd.Context(), dry, yes)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what each sandbox would meet; delete and remember nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask before more than 10")
	return cmd
}

func (c *cli) sweep(ctx context.Context, dry, yes bool) error {
	b, settings, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	client, err := c.sprites(settings)
	if err != nil {
		return err
	}
	defer client.Close()
	leases, err := c.openLeases(ctx, settings)
	if err != nil {
		return err
	}
	defer leases.Close()
	links, err := session.New(b.Links(), session.Config{})
	if err != nil {
		return err
	}
	sweeper, err := job.NewSweeper(job.SweepDeps{
		Bus: b, Leases: leases, Links: links, Sprites: client,
		Audit: func(ctx context.Context, r audit.Record) bool { c.auditOn(ctx, b, r); return true },
	}, job.SweepConfig{DeploymentID: settings.DeploymentID, HardExpiry: settings.HardExpiry, Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	return c.runSweep(ctx, sweeper, dry, yes)
}

func (c *cli) runSweep(ctx context.Context, sweeper *job.Sweeper, dry, yes bool) error {
	report, err := sweeper.Look(ctx)
	if err != nil {
		return sweepError(err)
	}
	rows := report.Rows
	if !dry {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r job.Swept) bool { return r.Verdict == plan.SweepKeep })
	}
	if dry || report.Stopped() != nil {
		if err := c.printSwept(rows); err != nil {
			return err
		}
	}
	if err := report.Stopped(); err != nil {
		return sweepError(err)
	}
	if dry {
		return nil
	}
	if err := c.confirm(report.Doomed, yes, "delete"); err != nil {
		return err
	}
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	failed := sweeper.Delete(ctx, report)
	rows = slices.DeleteFunc(slices.Clone(report.Rows), func(r job.Swept) bool { return r.Verdict == plan.SweepKeep })
	if err := c.printSwept(rows); err != nil {
		return err
	}
	return sweepError(failed)
}

// sweepError keeps what is unreachable apart from what was refused.
func sweepError(err error) error {
	if err == nil || errors.Is(err, bus.ErrUnreachable) || errors.Is(err, lease.ErrUnavailable) {
		return err
	}
	return refused("%w", err)
}

func (c *cli) printSwept(rows []job.Swept) error {
	return printRows(c, rows, "SANDBOX VERDICT WHY DELETED", func(r job.Swept) []string {
		deleted := ""
		switch {
		case r.Deleted:
			deleted = "yes"
		case r.Error != "":
			deleted = fmt.Sprintf("failed (%s)", r.Error)
		}
		return []string{r.Sandbox, string(r.Verdict), r.Why, deleted}
	})
}
