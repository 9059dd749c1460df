package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

func newJobsCancelCmd(c *cli) *cobra.Command {
	var tenant, conversation, why, grant string
	cmd := &cobra.Command{
		Use:   "cancel [JOB]",
		Short: "Stop a job, or everything in a conversation",
		Long: `Stop a job, or everything in a conversation, queued or running. The mark is stored: a worker that takes the job later
sees it too, and what has ended stays as it is. The job's result says how it ended.`,
		Example: "  worker jobs cancel acme/j1 --why 'no longer needed'\n  worker jobs cancel --tenant acme --conversation c1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target := bus.CancelTarget{Tenant: tenant, Conversation: conversation}
			if len(args) == 1 {
				key, err := parseJob(args[0], tenant)
				if err != nil {
					return err
				}
				target.Tenant, target.Job = key.Tenant, key.Job
			}
			if (target.Job == "") == (conversation == "") || conversation != "" && !plan.ValidToken(conversation) || !plan.ValidToken(target.Tenant) {
				return usage("name one JOB, or one --conversation")
			}
			hdr := bus.Header{}
			if grant == "" {
				grant, _ = c.lookup("WAKEBUS_GRANT")
			}
			if grant != "" {
				hdr.Set(bus.HeaderGrant, grant)
			}
			b, _, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			found := c.whatCancelMeets(cmd.Context(), b, target)
			if err := b.MarkCancel(cmd.Context(), target, bus.CancelRequest{By: c.operator(), Why: why}, hdr); err != nil {
				return err
			}
			c.auditOn(cmd.Context(), b, audit.Record{Kind: audit.KindOperate, Tenant: target.Tenant, Action: "jobs cancel", Job: target.Job,
				Conversation: conversation, Detail: why})
			return c.printCanceled(target, found)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&tenant, "tenant", "dev", "tenant")
	fs.StringVar(&conversation, "conversation", "", "everything in this conversation")
	fs.StringVar(&why, "why", "", "why, for the audit trail and the result")
	fs.StringVar(&grant, "grant", "", "signed grant, in place of WAKEBUS_GRANT")
	return cmd
}

// What a cancel meets, beside the three states of a job.
const (
	metNothing bus.JobState = "not_found"
	metUnknown bus.JobState = "unknown" // it could not be looked for
)

// whatCancelMeets is the state of what a cancel is for; of a conversation's jobs the liveliest. It only helps a person, so
// not being able to look fails nothing.
func (c *cli) whatCancelMeets(ctx context.Context, b *bus.Bus, target bus.CancelTarget) bus.JobState {
	req := bus.JobsRequest{V: 1, ConversationID: target.Conversation, Limit: bus.MaxJobsListed}
	if target.Job != "" {
		last, _, err := b.LastRun(ctx, target.Tenant, target.Job)
		switch {
		case err == nil && last.Kind == bus.EventResult:
			return bus.JobEnded
		case err == nil && last.Owner == bus.NoOwner:
			return bus.JobQueued
		case err == nil:
			return bus.JobRunning
		case !errors.Is(err, bus.ErrNoJournal):
			return metUnknown
		}
		req.State = bus.JobQueued // nobody has taken it yet, if it is there
	}
	answer, err := jobsOf(ctx, b, target.Tenant, req)
	if err != nil {
		return metUnknown
	}
	met := metNothing
	for _, j := range answer.Jobs {
		switch {
		case target.Job != "" && j.JobID != target.Job:
		case j.State == bus.JobRunning, met == metNothing, met == bus.JobEnded:
			met = j.State
		}
	}
	return met
}

// printCanceled says that the mark is stored, and what it meets.
func (c *cli) printCanceled(target bus.CancelTarget, met bus.JobState) error {
	if c.flags.json {
		return c.printJSON(map[string]string{"tenant": target.Tenant, "job_id": target.Job, "conversation_id": target.Conversation,
			"state": "marked", "found": string(met)})
	}
	text := fmt.Sprintf("marked %s/%s%s", target.Tenant, target.Job, target.Conversation)
	switch {
	case met == bus.JobEnded:
		text += ": it has ended, and stays as it is"
	case met == metNothing && target.Job != "":
		text += ": no such job yet; it will not start when it is published"
	case met == metNothing:
		text += ": it has no jobs"
	case met != metUnknown:
		text += ": it is " + string(met)
	}
	fmt.Fprintln(c.out, text)
	return nil
}
