package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/plan"
)

func newPlanCmd(c *cli) *cobra.Command {
	var file string
	var presence, intent, kind, link, denial string
	var idle, hardExpiry time.Duration
	facts := plan.Facts{}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what the lifecycle plan decides for given facts",
		Long: `Say what the lifecycle plan decides for given facts, which row of its table decided, and why. The plan is a pure
function: nothing is asked and nothing is done.`,
		Example: "  worker plan --intent run --authorised --link live --idle 20m\n" +
			"  echo '{\"intent\":\"end\",\"authentic\":true,\"link\":\"live\"}' | worker plan --facts -",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				read, err := c.readFacts(file)
				if err != nil {
					return err
				}
				return c.printPlan(read)
			}
			facts.Intent, facts.Kind, facts.Link = plan.Intent(intent), plan.SessionKind(kind), plan.LinkState(link)
			facts.Denial, facts.Idle, facts.HardExpiry = plan.Reason(denial), idle, hardExpiry
			facts.Presence = plan.Presence(presence)
			if !cmd.Flags().Changed("authentic") {
				facts.Authentic = facts.Authorised
			}
			if err := facts.Validate(); err != nil {
				return usage("%w", err)
			}
			return c.printPlan(facts)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&file, "facts", "", "read the facts as JSON from this file, - for standard input")
	fs.StringVar(&intent, "intent", "run", "run or end")
	fs.StringVar(&kind, "kind", "conversation", "conversation or terminal")
	fs.BoolVar(&facts.Authorised, "authorised", false, "the actor may run code here, now")
	fs.BoolVar(&facts.Authentic, "authentic", false, "the grant is authentic (default: as --authorised)")
	fs.StringVar(&denial, "denial", "", "why not, a reason code")
	fs.StringVar(&link, "link", "none", "none, creating, live, tearing_down or ended")
	fs.StringVar(&presence, "presence", "unknown", "what the control plane says: unknown, present or gone")
	fs.DurationVar(&idle, "idle", 0, "time since the session was last active")
	fs.DurationVar(&hardExpiry, "hard-expiry", plan.DefaultHardExpiry, "when an idle conversation's sandbox is made anew; 0s = never")
	fs.BoolVar(&facts.FreshStart, "fresh-start", false, "the request may revive an ended session")
	fs.BoolVar(&facts.Recreated, "recreated", false, "this run has created anew once already")
	fs.Uint64Var(&facts.Queued, "queued", 0, "the request's sequence")
	fs.Uint64Var(&facts.EndedSeq, "ended-seq", 0, "the sequence of the session's latest end")
	fs.Uint64Var(&facts.RevivedSeq, "revived-seq", 0, "the sequence of the fresh start that made the present sandbox")
	return cmd
}

func (c *cli) readFacts(path string) (plan.Facts, error) {
	in := c.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return plan.Facts{}, usage("read facts: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, plan.MaxFacts+1))
	if err != nil {
		return plan.Facts{}, usage("read facts: %w", err)
	}
	facts, err := plan.ParseFacts(data)
	if err != nil {
		return plan.Facts{}, usage("%w", err)
	}
	return facts, nil
}

func (c *cli) printPlan(facts plan.Facts) error {
	decided, row := plan.Explain(facts)
	if c.flags.json {
		return c.printJSON(struct {
			plan.Plan
			plan.Row
		}{decided, row})
	}
	text := string(decided.Action)
	if decided.Then != "" {
		text += ", then " + string(decided.Then)
	}
	c.printPairs(pair{"plan", text}, pair{"why", string(decided.Why)}, pair{"row", row.Name + ": " + row.Says},
		pair{"spends", fmt.Sprint(decided.Spends())})
	if decided.Reason != "" {
		c.printPairs(pair{"reason", string(decided.Reason) + ": " + decided.Reason.Sentence()})
	}
	return nil
}
