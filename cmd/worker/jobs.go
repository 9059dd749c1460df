package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

func newJobsCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List jobs, show one, cancel one",
		Long:  "List jobs, show one, cancel one. JOB is [tenant/]job, the tenant being --tenant's.",
		Example: "  worker jobs list --conversation c1\n  worker jobs show acme/j1 --follow\n" +
			"  worker jobs cancel acme/j1 --why 'no longer needed'",
	}
	cmd.AddCommand(newJobsListCmd(c), newJobsShowCmd(c), newJobsCancelCmd(c))
	return cmd
}

func newJobsListCmd(c *cli) *cobra.Command {
	var tenant, conversation, state string
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List a tenant's queued, running and recent jobs",
		Example: "  worker jobs list --tenant acme --state running --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkJobsList(tenant, conversation, state, limit); err != nil {
				return err
			}
			b, _, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			answer, err := jobsOf(cmd.Context(), b, tenant, bus.JobsRequest{V: 1, ConversationID: conversation, State: bus.JobState(state), Limit: limit})
			if err != nil {
				return err
			}
			if answer.Partial {
				c.say("warning: the search ended at its bound; older jobs may be missing")
			}
			return printRows(c, answer.Jobs, "JOB RUN KIND SESSION STATE LAST WAITS-FOR OUTCOME AGE", func(j bus.JobSummary) []string {
				return []string{tenant + "/" + j.JobID, strconv.Itoa(j.Run), string(j.Kind), j.ConversationID + j.PageID, string(j.State),
					string(j.LastEvent), string(j.WaitsFor), string(j.Outcome), c.since(j.QueuedAt)}
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&tenant, "tenant", "dev", "tenant")
	fs.StringVar(&conversation, "conversation", "", "only this conversation's")
	fs.StringVar(&state, "state", "", "only these: queued, running or ended")
	fs.IntVar(&limit, "limit", 50, "so many at most, up to 500")
	return cmd
}

func checkJobsList(tenant, conversation, state string, limit int) error {
	switch {
	case !plan.ValidToken(tenant), conversation != "" && !plan.ValidToken(conversation):
		return usage("--tenant and --conversation must be 1 to 64 letters, digits, _ or -")
	case limit < 1 || limit > bus.MaxJobsListed:
		return usage("--limit must be 1 to %d", bus.MaxJobsListed)
	}
	switch bus.JobState(state) {
	case "", bus.JobQueued, bus.JobRunning, bus.JobEnded:
		return nil
	}
	return usage("--state must be queued, running or ended")
}

// parseJob reads [tenant/]job.
func parseJob(text, tenant string) (bus.RunKey, error) {
	if given, job, ok := strings.Cut(text, "/"); ok {
		tenant, text = given, job
	}
	key := bus.RunKey{Tenant: tenant, Job: text}
	if !key.Valid() {
		return key, usage("JOB must be [tenant/]job, each 1 to 64 letters, digits, _ or -")
	}
	return key, nil
}

// stamp writes a time of day with milliseconds.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "            "
	}
	return t.UTC().Format("15:04:05.000")
}
