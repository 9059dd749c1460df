package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/plan"
)

// grantFlags are the flags of `worker grant`.
type grantFlags struct {
	tenant, user, tier, drive, agentPage, conversation, page, job, origin, issuer, role, verdict, kid, key, body string
	ticket                                                                                                       bool
	expires                                                                                                      time.Duration
}

func newGrantCmd(c *cli) *cobra.Command {
	var f grantFlags
	cmd := &cobra.Command{
		Use:   "grant",
		Short: "Make a grant or a terminal ticket",
		Long: `Make the signed grant that a request travels with, as the web app does, and print it alone. --key is the private key
that "worker grant key" makes. Without --job it opens files and ends, never a command. With AUTHZ_MODE=dev and no --key it prints the bare JSON that a dev instance takes.`,
		Example: "  worker grant --tenant acme --user ann --conversation c1 --job j1 --key signing.jwk\n" +
			"  worker grant --tenant acme --user ann --page p1 --ticket --origin https://app.example.com --key signing.jwk\n" +
			"  worker grant key --kid 2026-01 --key signing.jwk --set grant-keys.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.grant(f, cmd.Flags().Changed("expires"))
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.tenant, "tenant", "dev", "tenant")
	fs.StringVar(&f.user, "user", "dev", "user, the grant's sub")
	fs.StringVar(&f.tier, "tier", string(plan.TierFree), "free, pro, founder or business")
	fs.StringVar(&f.drive, "drive", "", "drive")
	fs.StringVar(&f.agentPage, "agent-page", "", "agent page")
	fs.StringVar(&f.conversation, "conversation", "", "conversation that it is for")
	fs.StringVar(&f.page, "page", "", "page that it is for")
	fs.StringVar(&f.job, "job", "", "job_id, or with --page open_id, that it is for: a request to run or open needs it; files, ending and tickets do not")
	fs.StringVar(&f.origin, "origin", "", "web origin that a ticket is bound to")
	fs.StringVar(&f.issuer, "issuer", authz.IssuerWeb, "web, or ops for an operator's replay")
	fs.StringVar(&f.role, "role", string(authz.RoleOwner), "role of a ticket: owner or viewer")
	fs.StringVar(&f.verdict, "verdict", authz.VerdictAllow, "allow, or a reason code")
	fs.StringVar(&f.body, "request-sha256", "", "hex SHA-256 of the one body that it is for")
	fs.BoolVar(&f.ticket, "ticket", false, "make a terminal's ticket, which lives 30 s at most")
	fs.DurationVar(&f.expires, "expires", 5*time.Minute, "how long it lives")
	fs.StringVar(&f.kid, "kid", "", "key id, in place of the key file's")
	fs.StringVar(&f.key, "key", "", "private key, a JWK file")
	cmd.AddCommand(newGrantKeyCmd(c), newGrantCheckCmd(c))
	return cmd
}

func (c *cli) grant(f grantFlags, expiresGiven bool) error {
	if f.ticket && !expiresGiven {
		f.expires = authz.MaxTicketLife
	}
	if err := f.validate(); err != nil {
		return usage("%w", err)
	}
	claims := f.claims(c.now())
	if f.key == "" {
		settings, err := c.settings()
		if err != nil {
			return err
		}
		if settings.AuthzMode != config.AuthDev {
			return usage("--key is required unless AUTHZ_MODE is dev")
		}
		// A dev instance fills in what is absent, and takes times as they are.
		claims.Audience, claims.IssuedAt, claims.Expires, claims.ID = nil, nil, nil, ""
		return c.printJSON(claims)
	}
	data, err := readPrivate(f.key)
	if err != nil {
		return usage("read --key: %w", err)
	}
	key, err := authz.ParseSigningKey(data)
	if err != nil {
		return usage("read --key: %w", err)
	}
	if f.kid != "" {
		key.ID = f.kid
	}
	if !key.Signs(claims.Issuer) {
		return usage("--key does not sign for --issuer %s: no worker would take it", claims.Issuer)
	}
	token, err := authz.Mint(claims, key)
	if err != nil {
		return usage("%w", err)
	}
	fmt.Fprintln(c.out, token)
	return nil
}

func (f grantFlags) validate() error {
	var errs []error
	hold := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	token := func(name, value string) {
		hold(value == "" || plan.ValidToken(value), "--"+name+" must be 1 to 64 letters, digits, _ or -")
	}
	hold(plan.ValidToken(f.tenant), "--tenant must be 1 to 64 letters, digits, _ or -")
	hold(plan.ValidPrincipal(f.user), "--user must be 1 to 128 printable ASCII characters")
	hold(f.drive == "" || plan.ValidPrincipal(f.drive), "--drive must be 1 to 128 printable ASCII characters")
	hold(f.agentPage == "" || plan.ValidPrincipal(f.agentPage), "--agent-page must be 1 to 128 printable ASCII characters")
	token("conversation", f.conversation)
	token("page", f.page)
	token("job", f.job)
	hold(plan.Tier(f.tier).Valid(), "--tier must be free, pro, founder or business")
	hold(f.issuer == authz.IssuerWeb || f.issuer == authz.IssuerOps, "--issuer must be web or ops")
	hold(f.verdict == authz.VerdictAllow || plan.Reason(f.verdict).Valid(), "--verdict must be allow or a reason code")
	hold(f.conversation == "" || f.page == "", "--conversation and --page exclude each other")
	hold(f.conversation != "" || f.page != "" || f.issuer == authz.IssuerOps, "--conversation or --page is required")
	hold(f.expires > 0, "--expires must be above zero")
	if f.ticket {
		hold(f.page != "", "--ticket needs --page")
		hold(f.expires <= authz.MaxTicketLife, "--expires of a ticket must be 30s or less")
		hold(authz.Role(f.role).Valid(), "--role must be owner or viewer")
	}
	return errors.Join(errs...)
}

func (f grantFlags) claims(now time.Time) authz.Claims {
	claims := authz.Claims{
		Issuer: f.issuer, Audience: jwt.ClaimStrings{authz.AudienceGrant}, IssuedAt: jwt.NewNumericDate(now),
		Expires: jwt.NewNumericDate(now.Add(f.expires)), ID: newID(), Subject: f.user, Tenant: f.tenant,
		Tier: plan.Tier(f.tier), Drive: f.drive, Origin: f.origin, AgentPage: f.agentPage, Conversation: f.conversation,
		Page: f.page, Verdict: f.verdict, Request: f.body,
	}
	if f.page != "" {
		claims.Open = f.job
	} else {
		claims.Job = f.job
	}
	if f.ticket {
		claims.Audience = jwt.ClaimStrings{authz.AudienceTerminal}
		claims.Role = authz.Role(f.role)
	}
	return claims
}

func newGrantKeyCmd(c *cli) *cobra.Command {
	var kid, issuer, keyFile, setFile string
	var add bool
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make a signing key and the key set that workers check with",
		Long: `Make a signing key and the key set that workers check with. A key signs for one issuer: the web app's cannot make
operators' grants, nor theirs the web app's. A worker's key set holds the public keys of both.`,
		Example: "  worker grant key --kid 2026-01 --key signing.jwk --set grant-keys.json\n" +
			"  worker grant key --kid ops-2026-01 --issuer ops --key operator.jwk --set grant-keys.json --add",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if kid == "" || keyFile == "" || setFile == "" {
				return usage("--kid, --key and --set are required")
			}
			key, err := authz.GenerateKey(kid, issuer, rand.Reader)
			if err != nil {
				return usage("%w", err)
			}
			private, err := key.Marshal()
			if err != nil {
				return err
			}
			// No key is written over: a lost one cannot be brought back.
			if err := writeNew(keyFile, private, 0o600); err != nil {
				return err
			}
			if err := writeKeySet(setFile, key, add); err != nil {
				return errors.Join(err, os.Remove(keyFile))
			}
			c.say("wrote %s (private: keep it with whoever signs) and %s (public: GRANT_KEYS_FILE)", keyFile, setFile)
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&kid, "kid", "", "key id")
	fs.StringVar(&issuer, "issuer", authz.IssuerWeb, "whose grants it signs: web, or ops for operators' replays and ends")
	fs.StringVar(&keyFile, "key", "", "file for the private key")
	fs.StringVar(&setFile, "set", "", "file for the public key set")
	fs.BoolVar(&add, "add", false, "add to the key set that the file holds, in place of making a new one")
	return cmd
}

// writeKeySet makes a key set with one key, or adds the key to the set that is there.
func writeKeySet(path string, key authz.SigningKey, add bool) error {
	if !add {
		set, err := authz.MarshalKeySet(key)
		if err != nil {
			return err
		}
		return writeNew(path, set, 0o644)
	}
	info, err := os.Stat(path)
	if err != nil {
		return refused("read key set: %w", err)
	}
	if info.Size() > authz.MaxKeySet {
		return refused("read key set: %s is larger than %d bytes", path, authz.MaxKeySet)
	}
	had, err := os.ReadFile(path)
	if err != nil {
		return refused("read key set: %w", err)
	}
	set, err := authz.AddToKeySet(had, key)
	if err != nil {
		return refused("add to key set %s: %w", path, err)
	}
	// Beside and renamed: a worker may read it at any moment.
	temp := path + ".new"
	if err := writeNew(temp, set, info.Mode().Perm()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return refused("write key set: %w", errors.Join(err, os.Remove(temp)))
	}
	return nil
}

func writeNew(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return refused("write key: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return refused("write key %s: %w", path, err)
	}
	return nil
}

// readPrivate reads a small file that must be this user's alone to read.
func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others; it must have mode 0600", path)
	}
	if info.Size() > authz.MaxKeySet {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, authz.MaxKeySet)
	}
	return os.ReadFile(path)
}

// newID makes an id that may be a job_id, an open_id or a jti: 128 random bits.
func newID() string { return strings.ToLower(rand.Text()) }
