package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/plan"
)

func newExecutionCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "execution",
		Short: "Switch running code off and on for the whole fleet",
		Long: `Switch running code off for the whole fleet at once, and take that off away again. Off beats every worker's own
CODE_EXECUTION_ENABLED; on does not switch a worker on whose own setting is off. Ending sessions is always possible.`,
		Example: "  worker execution off --why 'incident 42'\n  worker execution on --why 'incident 42 is over'\n  worker execution show",
	}
	cmd.AddCommand(newSwitchCmd(c, true), newSwitchCmd(c, false), newExecutionShowCmd(c))
	return cmd
}

func newSwitchCmd(c *cli, on bool) *cobra.Command {
	word, short := "off", "Switch running code off"
	if on {
		word, short = "on", "Take an off away"
	}
	var why string
	cmd := &cobra.Command{
		Use:     word,
		Short:   short,
		Example: "  worker execution " + word + " --why 'incident 42'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if why == "" {
				return usage("--why is required")
			}
			b, _, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			if err := b.SetExecution(cmd.Context(), on, c.operator(), why); err != nil {
				return err
			}
			c.auditOn(cmd.Context(), b, audit.Record{Kind: audit.KindOperate, Tenant: plan.NoTenant, Action: "execution " + word, Detail: why})
			if c.flags.json {
				return c.printJSON(map[string]bool{"on": on})
			}
			fmt.Fprintln(c.out, "execution "+word)
			return nil
		},
	}
	cmd.Flags().StringVar(&why, "why", "", "why, for the audit trail (required)")
	return cmd
}

func newExecutionShowCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "show",
		Short:   "Say how the fleet's switch stands",
		Example: "  worker execution show --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, _, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			s, err := b.Execution(cmd.Context())
			if err != nil {
				return err
			}
			if c.flags.json {
				return c.printJSON(s)
			}
			word := "off"
			if s.On {
				word = "on"
			}
			c.printPairs(pair{"execution", word}, pair{"by", s.By}, pair{"why", s.Why})
			return nil
		},
	}
}
