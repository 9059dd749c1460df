package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/authz"
)

func newGrantCheckCmd(c *cli) *cobra.Command {
	var setFile string
	cmd := &cobra.Command{
		Use:   "check [TOKEN]",
		Short: "Say what a grant or a ticket is for, and whether a worker would take it now",
		Long: `Check a grant or a ticket as a worker does, by the public key set that workers have: signature, audience, times. It
prints the claims, and exits 1 with the reason when the token is worth nothing. Without TOKEN it is read from standard
input, where no process list shows it. That it fits a request is not checked: there is none.`,
		Example: "  worker grant check --set grant-keys.json < token\n  worker grant check --set grant-keys.json \"$WAKEBUS_GRANT\" --json",
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return c.checkGrant(setFile, args) },
	}
	cmd.Flags().StringVar(&setFile, "set", "", "public key set, in place of GRANT_KEYS_FILE")
	return cmd
}

func (c *cli) checkGrant(setFile string, args []string) error {
	if setFile == "" {
		setFile, _ = c.lookup("GRANT_KEYS_FILE")
	}
	if setFile == "" {
		return usage("--set or GRANT_KEYS_FILE is required")
	}
	token, err := c.tokenOf(args)
	if err != nil {
		return err
	}
	keys, err := authz.OpenKeyFile(setFile, authz.KeyFileConfig{})
	if err != nil {
		return usage("read --set: %w", err)
	}
	verifier, err := authz.NewVerifier(keys, authz.VerifierConfig{})
	if err != nil {
		return err
	}
	claims, err := verifier.Authentic(token, authz.AudienceGrant, authz.AudienceTerminal)
	if err != nil {
		return refusedGrant(err)
	}
	if err := verifier.Current(claims, c.now()); err != nil {
		return refusedGrant(err)
	}
	return c.printJSON(claims)
}

func (c *cli) tokenOf(args []string) (string, error) {
	if len(args) == 1 {
		return args[0], nil
	}
	data, err := io.ReadAll(io.LimitReader(c.in, authz.MaxToken+2))
	if err != nil {
		return "", refused("read the token: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// refusedGrant tells the detail too, which callers never see: who runs this has the token.
func refusedGrant(err error) error {
	var denied *authz.Denied
	if errors.As(err, &denied) {
		return refused("%s: %s", denied.Reason, denied.Detail)
	}
	return refused("%w", err)
}
