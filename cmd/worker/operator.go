package main

import (
	"context"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// operator is who runs this command, for marks and the audit trail: the login name, which is a hint and no proof.
func (c *cli) operator() string {
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		if user, ok := c.lookup(name); ok && plan.ValidPrincipal(user) {
			return user
		}
	}
	return "operator"
}

// auditOperate records what an operator did. The act is done by then: a failed record is said and changes nothing.
func (c *cli) auditOperate(ctx context.Context, tenant, action, object, why string) {
	b, _, err := c.quietly().connect(ctx)
	if err != nil {
		c.say("warning: not recorded in the audit trail: %v", err)
		return
	}
	defer b.Close()
	c.auditOn(ctx, b, audit.Record{Kind: audit.KindOperate, Tenant: tenant, Action: action, Detail: object + ": " + why})
}

// auditOn records over an open connection.
func (c *cli) auditOn(ctx context.Context, b *bus.Bus, record audit.Record) {
	recorder, err := audit.New(b.AuditSink(), audit.Config{Timeout: auditTimeout, Now: c.now})
	if err != nil {
		c.say("warning: not recorded in the audit trail: %v", err)
		return
	}
	record.Actor.Operator = c.operator()
	if record.ID == "" {
		record.ID = newID()
	}
	if !plan.ValidToken(record.Tenant) {
		record.Tenant = plan.NoTenant
	}
	if !recorder.Record(ctx, record) {
		c.say("warning: not recorded in the audit trail")
	}
}

// auditTimeout bounds one try of the record that follows an operator's act.
const auditTimeout = 3 * time.Second

// quietly is c without the line that says where it connects.
func (c *cli) quietly() *cli {
	quiet := *c
	quiet.person = false
	return &quiet
}

// leaseTenant is the tenant in a lease's id.
func leaseTenant(id string) string {
	tenant, _, _ := strings.Cut(id, ".")
	return tenant
}
