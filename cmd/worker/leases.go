package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/lease"
)

func newLeasesCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "leases",
		Short:   "See who holds a slot, and take one back",
		Example: "  worker leases list --tenant acme\n  worker leases release acme.j1.0.1 --why 'runaway agent'",
	}
	cmd.AddCommand(newLeasesListCmd(c), newLeasesReleaseCmd(c))
	return cmd
}

func newLeasesListCmd(c *cli) *cobra.Command {
	var filter lease.Filter
	var kind string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the live leases",
		Example: "  worker leases list --tenant acme --kind exec --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Kind = lease.Kind(kind); kind != "" && !filter.Kind.Valid() {
				return usage("--kind %s is none of exec, terminal, file, leader", kind)
			}
			m, err := c.leases(cmd.Context())
			if err != nil {
				return err
			}
			defer m.Close()
			records, err := m.List(cmd.Context(), filter)
			if err != nil && !errors.Is(err, lease.ErrPartial) {
				return err
			}
			if kind == "" {
				// An elected role is no slot: who looks for slots that are taken has no use for it.
				records = slices.DeleteFunc(records, func(r lease.Record) bool { return r.Kind == lease.KindLeader })
			}
			now := c.now()
			if printed := printRows(c, records, "ID KIND USER SANDBOX OWNER AGE EXPIRES FENCE MARKED", func(r lease.Record) []string {
				return []string{r.ID, string(r.Kind), r.Tenant + "/" + r.User, r.Sandbox, r.Owner, age(now.Sub(r.Since)),
					age(r.Expires.Sub(now)), fmt.Sprint(r.Fence), r.Why}
			}); printed != nil {
				return printed
			}
			if err != nil {
				return refused("the list is not complete; narrow it with --tenant, --user or --kind")
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&filter.Tenant, "tenant", "", "only this tenant's")
	fs.StringVar(&filter.User, "user", "", "only this user's")
	fs.StringVar(&kind, "kind", "", "only these: exec, terminal or file; or leader, the elected roles, which are no slots")
	fs.IntVar(&filter.Max, "limit", 1000, "list at most so many")
	return cmd
}

func newLeasesReleaseCmd(c *cli) *cobra.Command {
	var why string
	var now bool
	cmd := &cobra.Command{
		Use:   "release ID",
		Short: "Take a lease back",
		Long: `Take a lease back. By default it is marked: its holder stops the run and gives the slot back itself. --now frees the
slot at once, whatever its holder does.`,
		Example: "  worker leases release acme.j1.0.1 --why 'runaway agent'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if why == "" {
				return usage("--why is required")
			}
			m, err := c.leases(cmd.Context())
			if err != nil {
				return err
			}
			defer m.Close()
			err = m.Revoke(cmd.Context(), args[0], why, c.operator(), now)
			if errors.Is(err, lease.ErrNotFound) {
				return refused("no live lease %s", args[0])
			}
			if errors.Is(err, lease.ErrNotRevocable) {
				return refused("%s is neither a command's nor a terminal's lease; it ends by itself", args[0])
			}
			if err != nil {
				return err
			}
			word, action := "marked", "leases release"
			if now {
				word, action = "released", "leases release --now"
			}
			c.auditOperate(cmd.Context(), leaseTenant(args[0]), action, args[0], why)
			if c.flags.json {
				return c.printJSON(map[string]string{"id": args[0], "state": word})
			}
			fmt.Fprintf(c.out, "%s %s\n", word, clean(args[0]))
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&why, "why", "", "why, for the audit trail (required)")
	fs.BoolVar(&now, "now", false, "free the slot at once")
	return cmd
}

// leases opens Redis for a client command.
func (c *cli) leases(ctx context.Context) (*lease.Manager, error) {
	settings, err := c.settings()
	if err != nil {
		return nil, err
	}
	return c.openLeases(ctx, settings)
}

func (c *cli) openLeases(ctx context.Context, settings config.Client) (*lease.Manager, error) {
	if settings.RedisURL == "" {
		return nil, needs("REDIS_URL")
	}
	log := zerolog.Nop()
	// A client command holds no lease, so a fresh Redis must not keep it waiting.
	m, err := lease.Open(ctx, lease.Config{URL: settings.RedisURL.Reveal(), Quarantine: -1, Now: c.now, Logger: &log})
	if err != nil {
		if settings.File != nil && errors.Is(err, lease.ErrUnavailable) {
			return nil, settings.File.Gone(err)
		}
		return nil, err
	}
	return m, nil
}
