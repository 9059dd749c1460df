package lease

import (
	"context"
	"fmt"
)

// Charge counts a run against its user's budget, once per run id however often
// it is asked. It returns nil when Config.Budget is 0. Errors: *OverBudget; an
// ErrUnavailable. Blocks for one call at most.
func (m *Manager) Charge(ctx context.Context, tenant, user, runID string) error {
	if m.cfg.Budget == 0 {
		return nil
	}
	reply, _, err := m.call(ctx, m.requests, opCharge, []string{m.keys.budget(tenant, user)},
		[]any{runID, m.cfg.Budget, ms(m.cfg.BudgetWindow)})
	if err != nil {
		return fmt.Errorf("charge run %s: %w", runID, err)
	}
	if reply[0] == "over" {
		return fmt.Errorf("charge run %s: %w", runID, &OverBudget{Limit: m.cfg.Budget, RetryAfter: span(field(reply, 1))})
	}
	return nil
}
