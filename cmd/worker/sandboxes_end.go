package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

func newSandboxesEndCmd(c *cli) *cobra.Command {
	var f sessionFlags
	var why, grant, key string
	cmd := &cobra.Command{
		Use:   "end",
		Short: "End a session: cancel its jobs and delete its sandbox",
		Long: `End a session, as the web app does when a conversation is deleted: its jobs are canceled, its sandbox is deleted, and
it stays ended. The disk in the sandbox is lost. The command waits for the result.`,
		Example: "  worker sandboxes end --tenant acme --conversation c1 --why 'asked by the user'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			session, err := f.key()
			if err != nil {
				return err
			}
			if why == "" {
				return usage("--why is required")
			}
			return c.endSession(cmd.Context(), session, grant, key, why)
		},
	}
	f.bind(cmd)
	cmd.Flags().StringVar(&why, "why", "", "why, for the audit trail (required)")
	cmd.Flags().StringVar(&grant, "grant", "", "signed grant, in place of WAKEBUS_GRANT")
	cmd.Flags().StringVar(&key, "key", "", "signing key of operators' grants, in place of WAKEBUS_OPERATOR_KEY")
	return cmd
}

// endPatience bounds how long a tear-down is waited for.
const endPatience = 3 * time.Minute

func (c *cli) endSession(ctx context.Context, key session.Key, grant, keyFile, why string) error {
	b, settings, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	req, claims := endRequest(key)
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	if grant == "" {
		grant, _ = c.lookup("WAKEBUS_GRANT")
	}
	if grant == "" {
		if grant, err = c.operatorGrant(settings, keyFile, claims); err != nil {
			return err
		}
	}
	hdr := bus.Header{}
	hdr.Set(bus.HeaderGrant, grant)
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	reader, err := b.Subscribe(ctx, key.Tenant, req.JobID, bus.ReadHistory(c.history(b)))
	if err != nil {
		return err
	}
	defer reader.Close()
	if _, err := b.Publish(ctx, bus.KindEnd, key.Tenant, hdr, body); err != nil {
		return err
	}
	c.auditOn(ctx, b, audit.Record{Kind: audit.KindOperate, Tenant: key.Tenant, Action: "sandboxes end", Job: req.JobID,
		Conversation: req.ConversationID, Page: req.PageID, Detail: why})
	return c.awaitEnd(ctx, reader, key, req.JobID)
}

// endRequest is the request that ends a session, and what its grant must say.
func endRequest(key session.Key) (bus.EndRequest, authz.Claims) {
	req := bus.EndRequest{V: 1, JobID: newID(), DriveID: key.Drive}
	claims := authz.Claims{Tenant: key.Tenant, Drive: key.Drive}
	if key.Kind == plan.KindTerminal {
		req.PageID, claims.Page, claims.Open = key.ID, key.ID, req.JobID
	} else {
		req.ConversationID, claims.Conversation, claims.Job = key.ID, key.ID, req.JobID
	}
	return req, claims
}

func (c *cli) awaitEnd(ctx context.Context, reader events, key session.Key, job string) error {
	s := &show{c: c, json: c.flags.json}
	if err := s.follow(ctx, reader); err != nil {
		return refused("%s/%s: stored, its result did not come: %w", key.Tenant, job, err)
	}
	if s.result == nil || s.result.Outcome != plan.OutcomeEnded {
		return c.notEnded(s)
	}
	if !c.flags.json {
		c.printPairs(pair{"ended", key.ID}, pair{"plan", string(s.result.Plan)}, pair{"sandbox", s.result.Sandbox})
	}
	return nil
}

func (c *cli) notEnded(s *show) error {
	if s.result == nil {
		return refused("its events ended without a result")
	}
	return refused("%s", outcomeLine(s.key, *s.result))
}

// operatorGrant makes one operator's grant for claims: signed with the key file, or bare for a dev instance.
func (c *cli) operatorGrant(settings config.Client, keyFile string, claims authz.Claims) (string, error) {
	claims.Issuer, claims.Subject = authz.IssuerOps, c.operator()
	if keyFile == "" {
		keyFile = settings.OperatorKey
	}
	if keyFile == "" {
		if settings.AuthzMode != config.AuthDev {
			return "", usage("--key or WAKEBUS_OPERATOR_KEY is required: this needs an operator's grant")
		}
		bare, err := json.Marshal(claims)
		return string(bare), err
	}
	data, err := readPrivate(keyFile)
	if err != nil {
		return "", usage("read operator key: %w", err)
	}
	key, err := authz.ParseSigningKey(data)
	if err != nil {
		return "", usage("read operator key: %w", err)
	}
	if !key.Signs(authz.IssuerOps) {
		return "", usage("the operator key does not sign operators' grants: make one with worker grant key --issuer ops")
	}
	now := c.now()
	claims.Audience, claims.ID, claims.Verdict = jwt.ClaimStrings{authz.AudienceGrant}, newID(), authz.VerdictAllow
	claims.IssuedAt, claims.Expires, claims.Tier = jwt.NewNumericDate(now), jwt.NewNumericDate(now.Add(operatorGrantLife)), plan.TierFree
	return authz.Mint(claims, key)
}

// operatorGrantLife is how long an operator's grant lives: from its making to the request's first dequeue.
const operatorGrantLife = 10 * time.Minute
