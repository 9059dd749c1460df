package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/bus"
)

func newDLQShowCmd(c *cli) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one dead letter: the request, the attempts, and what to do",
		Example: "  worker dlq show acme/j1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := bus.ParseLetterID(args[0], tenant)
			if err != nil {
				return usage("%w", err)
			}
			b, _, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			letter, err := b.Letter(cmd.Context(), id)
			if errors.Is(err, bus.ErrNoLetter) {
				return refused("no dead letter %s", id)
			}
			if err != nil {
				return err
			}
			if c.flags.json {
				return c.printJSON(letter)
			}
			return c.printLetter(letter)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "dev", "tenant of an ID without one")
	return cmd
}

func (c *cli) printLetter(l *bus.Letter) error {
	actor := ""
	if l.Actor != nil {
		actor = fmt.Sprintf("%s/%s (%s)", l.Actor.Tenant, l.Actor.User, l.Actor.Tier)
	}
	ran := "no"
	if l.MayHaveRun {
		ran = "yes: a replay needs --force"
	}
	c.printPairs(
		pair{"id", l.ID().String()}, pair{"state", string(l.State)}, pair{"run", strconv.Itoa(l.Run)}, pair{"class", string(l.Class)},
		pair{"reason", string(l.Reason) + ": " + l.Reason.Sentence()}, pair{"message", l.Message}, pair{"step", l.Step},
		pair{"provider", strings.TrimSpace(nonZero(l.Status) + " " + l.Code)}, pair{"fingerprint", l.Fingerprint},
		pair{"may have run", ran}, pair{"actor", actor}, pair{"sandbox", l.Sandbox}, pair{"crashes", nonZero(l.Crashes)},
		pair{"died", l.DeadAt.Format(time.RFC3339) + ", " + age(c.now().Sub(l.DeadAt)) + " ago"}, pair{"worker", l.Worker},
		pair{"request", string(l.Redacted)}, pair{"by", l.By}, pair{"why", l.Why}, pair{"to do", l.Class.Suggestion()},
	)
	if len(l.Attempts) > 0 {
		fmt.Fprintf(c.out, "\nattempts (%d):\n", l.AttemptCount)
		quiet := *c
		quiet.flags.json = false
		if err := printRows(&quiet, l.Attempts, "AT STEP CLASS STATUS CODE REQUEST ERROR", func(a bus.LetterAttempt) []string {
			return []string{a.At.Format(time.RFC3339), a.Step, a.Class, nonZero(a.Status), a.Code, a.RequestID, a.Error}
		}); err != nil {
			return err
		}
	}
	for _, mark := range l.History {
		c.printPairs(pair{"before", fmt.Sprintf("%s (run %d) %s", mark.State, mark.Run, mark.At.Format(time.RFC3339))})
	}
	return nil
}

func nonZero(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
