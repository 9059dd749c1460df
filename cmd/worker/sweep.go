package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

func newSandboxesSweepCmd(c *cli) *cobra.Command {
	var dry, yes bool
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete sandboxes that nobody has any more",
		Long: `Delete sandboxes of this deployment that no session, lease or job names, that the provider saw idle for longer than the
hard expiry and a day, and that two sweeps an hour or more apart found so. The first sweep only remembers. A listing
that is not complete deletes nothing; more than 5 percent or 20 at once stop the sweep.`,
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

// sweepRow is one line of `sandboxes sweep --json`.
type sweepRow struct {
	Sandbox string            `json:"sandbox"`
	Verdict plan.SweepVerdict `json:"verdict"`
	Why     string            `json:"why"`
	Deleted bool              `json:"deleted"`
	Error   string            `json:"error,omitempty"`

	instance string
}

// sweepState are the sightings of earlier sweeps, by sandbox and instance, kept beside the links.
type sweepState struct {
	Seen map[string]time.Time `json:"seen"`
}

// sweepKey is where a deployment's sightings are kept. It is no session's key, which has four parts.
func sweepKey(deployment string) string { return "sweep." + deployment }

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
	all, complete, err := client.List(ctx, "")
	if err != nil {
		return err
	}
	seen, revision, err := readSightings(ctx, b, settings.DeploymentID)
	if err != nil {
		return err
	}
	used, err := inUse(ctx, b, leases)
	if err != nil {
		return err
	}
	rows, next := c.judge(all, used, seen, settings.Config)
	doomed := slices.DeleteFunc(slices.Clone(rows), func(r sweepRow) bool { return r.Verdict != plan.SweepDelete })
	budget := plan.SweepBudget(len(all), complete)
	if err := c.printSweep(rows, dry); err != nil {
		return err
	}
	switch {
	case !complete:
		return refused("the provider's listing is not complete: nothing was deleted")
	case len(doomed) > budget:
		return refused("%d of %d sandboxes look unused, more than one sweep may delete (%d): look at them first", len(doomed), len(all), budget)
	case dry:
		return nil
	}
	if err := c.confirm(len(doomed), yes, "delete"); err != nil {
		return err
	}
	if err := saveSightings(ctx, b, settings.DeploymentID, next, revision); err != nil {
		return err
	}
	return c.deleteSwept(ctx, b, client, leases, doomed)
}

// inUse are the sandboxes that a link, a lease or a terminal names. A link that cannot be read may name any of them.
func inUse(ctx context.Context, b *bus.Bus, leases *lease.Manager) (map[string]bool, error) {
	links, err := session.New(b.Links(), session.Config{})
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	err = links.Walk(ctx, b.Links(), "", func(snap session.Snapshot, err error) error {
		if err != nil {
			return err
		}
		used[snap.Link.Sandbox] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	held, err := leases.List(ctx, lease.Filter{Max: 100_000})
	if err != nil {
		return nil, err
	}
	for _, l := range held {
		used[l.Sandbox] = true
	}
	return used, nil
}

func (c *cli) judge(all []sprites.Sprite, used map[string]bool, seen map[string]time.Time, cfg config.Config) ([]sweepRow, map[string]time.Time) {
	label, now := job.DeploymentLabel(cfg.DeploymentID), c.now()
	next := map[string]time.Time{}
	rows := make([]sweepRow, 0, len(all))
	for _, s := range all {
		id := s.Name + "/" + s.Instance
		facts := plan.SweepFacts{Ours: slices.Contains(s.Labels, label), HardExpiry: cfg.HardExpiry, InUse: used[s.Name]}
		// A Sprite that never was active counts from its creation.
		if active := latest(s.LastActive, s.CreatedAt); !active.IsZero() {
			facts.ActivityKnown, facts.Idle = true, now.Sub(active)
		}
		if first, ok := seen[id]; ok {
			facts.FirstSeen = now.Sub(first)
		}
		verdict, why := plan.Sweep(facts)
		if verdict != plan.SweepKeep {
			next[id] = now
			if first, ok := seen[id]; ok {
				next[id] = first
			}
		}
		rows = append(rows, sweepRow{Sandbox: s.Name, Verdict: verdict, Why: why, instance: s.Instance})
	}
	return rows, next
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (c *cli) printSweep(rows []sweepRow, all bool) error {
	if !all {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r sweepRow) bool { return r.Verdict == plan.SweepKeep })
	}
	return printRows(c, rows, "SANDBOX VERDICT WHY", func(r sweepRow) []string { return []string{r.Sandbox, string(r.Verdict), r.Why} })
}

// deleteSwept deletes one after another, looking at links and leases again right before each.
func (c *cli) deleteSwept(ctx context.Context, b *bus.Bus, client *sprites.Client, leases *lease.Manager, doomed []sweepRow) error {
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	failed := 0
	for _, row := range doomed {
		used, err := inUse(ctx, b, leases)
		if err != nil {
			return err
		}
		if used[row.Sandbox] {
			c.say("%s is in use by now", row.Sandbox)
			continue
		}
		// The name may have been made anew since the listing: delete only what was judged.
		current, err := client.Get(ctx, row.Sandbox)
		if err == nil && current.Instance == row.instance {
			err = client.Delete(ctx, row.Sandbox)
		}
		if err != nil && sprites.ClassOf(err) != sprites.ClassNotFound {
			failed++
			c.say("%s: %v", row.Sandbox, err)
			continue
		}
		c.auditOn(ctx, b, audit.Record{Kind: audit.KindTeardown, Tenant: plan.NoTenant, Action: "sandboxes sweep", Sandbox: row.Sandbox, Detail: row.Why})
		if !c.flags.json {
			fmt.Fprintln(c.out, "deleted "+clean(row.Sandbox))
		}
	}
	if failed > 0 {
		return endWith(codeRefused)
	}
	return nil
}

func readSightings(ctx context.Context, b *bus.Bus, deployment string) (map[string]time.Time, uint64, error) {
	entry, err := b.Links().Get(ctx, sweepKey(deployment))
	if errors.Is(err, session.ErrNotFound) {
		return map[string]time.Time{}, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read earlier sightings: %w", err)
	}
	var state sweepState
	if err := json.Unmarshal(entry.Value, &state); err != nil {
		return map[string]time.Time{}, entry.Revision, nil // start over: nothing is deleted on a first sighting
	}
	return state.Seen, entry.Revision, nil
}

// maxSightings bounds what is remembered; what is beyond it is seen again later.
const maxSightings = 2000

func saveSightings(ctx context.Context, b *bus.Bus, deployment string, seen map[string]time.Time, revision uint64) error {
	if len(seen) > maxSightings {
		for _, id := range slices.Sorted(maps.Keys(seen))[maxSightings:] {
			delete(seen, id)
		}
	}
	value, err := json.Marshal(sweepState{Seen: seen})
	if err != nil {
		return fmt.Errorf("write sightings: %w", err)
	}
	if revision == 0 {
		_, err = b.Links().Create(ctx, sweepKey(deployment), value)
	} else {
		_, err = b.Links().Update(ctx, sweepKey(deployment), value, revision)
	}
	if errors.Is(err, session.ErrConflict) {
		return refused("another sweep runs now")
	}
	if err != nil {
		return fmt.Errorf("keep sightings: %w", err)
	}
	return nil
}
