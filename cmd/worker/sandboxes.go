package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

func newSandboxesCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandboxes",
		Short: "See which sandbox belongs to whom, end a session, sweep what nobody has",
		Example: "  worker sandboxes list --tenant acme\n  worker sandboxes show --tenant acme --conversation c1\n" +
			"  worker sandboxes end --tenant acme --conversation c1 --why 'asked by the user'\n  worker sandboxes sweep --dry-run",
	}
	cmd.AddCommand(newSandboxesListCmd(c), newSandboxesShowCmd(c), newSandboxesEndCmd(c), newSandboxesSweepCmd(c))
	return cmd
}

// sandboxRow is one line of `sandboxes list --json`: a link, and what the provider says of its Sprite.
type sandboxRow struct {
	Sandbox    string           `json:"sandbox"`
	State      plan.LinkState   `json:"state"`
	Kind       plan.SessionKind `json:"kind"`
	Tenant     string           `json:"tenant"`
	Session    string           `json:"session"`
	Drive      string           `json:"drive,omitempty"`
	Holder     string           `json:"holder,omitempty"`
	LastActive time.Time        `json:"last_active,omitzero"`
	// Provider is cold, warm or running; missing when the provider does not know it; unknown when it was not asked.
	Provider string `json:"provider,omitempty"`
	Unclear  string `json:"unclear,omitempty"`
}

// The words of sandboxRow.Provider beside the provider's own.
const (
	providerMissing = "missing"
	providerUnknown = "unknown"
)

func newSandboxesListCmd(c *cli) *cobra.Command {
	var tenant, state string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the sessions and their sandboxes; wakes none",
		Example: "  worker sandboxes list --tenant acme --state live --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if state != "" && !plan.LinkState(state).Valid() {
				return usage("--state must be one of %s", words(plan.LinkStates()))
			}
			b, settings, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			links, err := c.openSessions(b)
			if err != nil {
				return err
			}
			known, err := c.providerStates(cmd.Context(), settings)
			if err != nil {
				c.say("warning: the provider was not asked: %v", err)
			}
			rows := []sandboxRow{}
			err = links.Walk(cmd.Context(), b.Links(), "", func(snap session.Snapshot, err error) error {
				if tenant != "" && snap.Key.Tenant != tenant || state != "" && snap.State() != plan.LinkState(state) {
					return nil
				}
				rows = append(rows, newSandboxRow(snap, err, known))
				return nil
			})
			if err != nil {
				return err
			}
			return printRows(c, rows, "SANDBOX STATE KIND TENANT SESSION PROVIDER IDLE HELD-BY", func(r sandboxRow) []string {
				return []string{r.Sandbox, string(r.State), string(r.Kind), r.Tenant, r.Session, r.Provider, c.since(r.LastActive), r.Holder}
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this tenant's")
	cmd.Flags().StringVar(&state, "state", "", "only these: creating, live, tearing_down or ended")
	return cmd
}

// newSandboxRow joins a link with the provider's listing; known is nil when there is none.
func newSandboxRow(snap session.Snapshot, broken error, known map[string]sprites.Sprite) sandboxRow {
	r := sandboxRow{Sandbox: snap.Link.Sandbox, State: snap.State(), Kind: snap.Key.Kind, Tenant: snap.Key.Tenant,
		Session: snap.Key.ID, Drive: snap.Key.Drive, Holder: snap.Link.Holder, LastActive: snap.Link.LastActive, Provider: providerUnknown}
	if broken != nil {
		r.Unclear = broken.Error()
	}
	switch {
	case r.Sandbox == "":
		r.Provider = "" // an ended session has none
	case known != nil:
		r.Provider = providerMissing
		if s, ok := known[r.Sandbox]; ok {
			r.Provider = string(s.Status)
		}
	}
	return r
}

func (c *cli) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return age(c.now().Sub(t))
}

// sprites opens the provider for a client command.
func (c *cli) sprites(settings config.Client) (*sprites.Client, error) {
	if settings.SpritesAPIToken == "" {
		return nil, needs("SPRITES_API_TOKEN")
	}
	return sprites.New(nil, sprites.Config{BaseURL: settings.SpritesAPIURL.Reveal(), Token: settings.SpritesAPIToken.Reveal(),
		DialTimeout: settings.DialTimeout, Now: c.now})
}

// providerStates lists the organisation's Sprites by name. A listing that is not complete is an error: what it leaves
// out would look missing.
func (c *cli) providerStates(ctx context.Context, settings config.Client) (map[string]sprites.Sprite, error) {
	client, err := c.sprites(settings)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	all, complete, err := client.List(ctx, "")
	if err != nil {
		return nil, err
	}
	if !complete {
		return nil, errors.New("the provider's listing is not complete")
	}
	known := make(map[string]sprites.Sprite, len(all))
	for _, s := range all {
		known[s.Name] = s
	}
	return known, nil
}

// sessionFlags name one session.
type sessionFlags struct{ tenant, conversation, page, drive string }

func (f *sessionFlags) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.tenant, "tenant", "dev", "tenant")
	fs.StringVar(&f.conversation, "conversation", "", "the conversation")
	fs.StringVar(&f.page, "page", "", "or the page, whose terminal it is")
	fs.StringVar(&f.drive, "drive", "", "drive")
}

func (f *sessionFlags) key() (session.Key, error) {
	key := session.Key{Kind: plan.KindConversation, Tenant: f.tenant, Drive: f.drive, ID: f.conversation}
	if f.page != "" {
		key.Kind, key.ID = plan.KindTerminal, f.page
	}
	if (f.conversation == "") == (f.page == "") {
		return key, usage("give one of --conversation and --page")
	}
	if err := key.Validate(); err != nil {
		return key, usage("%w", err)
	}
	return key, nil
}

func newSandboxesShowCmd(c *cli) *cobra.Command {
	var f sessionFlags
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show one session's link and what the provider says; wakes nothing",
		Example: "  worker sandboxes show --tenant acme --conversation c1",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("a sandbox is named by its session: --conversation %s or --page %s", args[0], args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := f.key()
			if err != nil {
				return err
			}
			b, settings, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			links, err := c.openSessions(b)
			if err != nil {
				return err
			}
			snap, err := links.Load(cmd.Context(), key)
			if err != nil {
				return err
			}
			if snap.Revision == 0 {
				return refused("no session %s of tenant %s", key.ID, key.Tenant)
			}
			return c.printSandbox(cmd.Context(), settings, snap)
		},
	}
	f.bind(cmd)
	return cmd
}

func (c *cli) printSandbox(ctx context.Context, settings config.Client, snap session.Snapshot) error {
	provider, sprite := providerUnknown, sprites.Sprite{}
	if client, err := c.sprites(settings); err == nil && snap.Link.Sandbox != "" {
		defer client.Close()
		sprite, err = client.Get(ctx, snap.Link.Sandbox)
		switch {
		case err == nil:
			provider = string(sprite.Status)
		case sprites.ClassOf(err) == sprites.ClassNotFound:
			provider = providerMissing
		default:
			c.say("warning: the provider did not answer: %v", err)
		}
	}
	if c.flags.json {
		return c.printJSON(struct {
			Link     session.Link `json:"link"`
			Provider string       `json:"provider"`
		}{snap.Link, provider})
	}
	l := snap.Link
	pty, reclaim := "", ""
	if l.PTY != nil {
		pty = fmt.Sprintf("session %s at gateway %s, lease %s", l.PTY.Session, l.PTY.Gateway, l.PTY.Lease)
	}
	if l.Reclaim != nil {
		reclaim = "its tear-down is not confirmed"
	}
	c.printPairs(pair{"sandbox", l.Sandbox}, pair{"state", string(snap.State())}, pair{"provider", provider}, pair{"instance", l.Instance},
		pair{"tenant", snap.Key.Tenant}, pair{string(snap.Key.Kind), snap.Key.ID}, pair{"drive", snap.Key.Drive}, pair{"created", c.ago(l.CreatedAt)},
		pair{"last active", c.ago(l.LastActive)}, pair{"provider saw it", c.ago(sprite.LastActive)}, pair{"held by", l.Holder},
		pair{"ended", c.ago(l.EndedAt)}, pair{"terminal", pty}, pair{"reclaim", reclaim})
	return nil
}

func (c *cli) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339) + ", " + c.since(t) + " ago"
}
