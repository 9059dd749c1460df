package terminal

import (
	"context"

	"github.com/wakebus/wakebus/internal/audit"
)

// trail writes terminals into the audit.
type trail struct{ recorder *audit.Recorder }

var _ Journal = trail{}

func (t trail) Terminal(ctx context.Context, kind, id string, v Visitor, sandbox, outcome string) {
	t.recorder.Record(ctx, audit.Record{Kind: audit.Kind(kind), Tenant: v.Page.Tenant, ID: id, Action: "terminal", Page: v.Page.ID,
		Actor: audit.Actor{User: v.User, Tier: v.Tier, AgentPage: v.Agent, Drive: v.Page.Drive}, Sandbox: sandbox, Detail: outcome})
}
