package authz

import "github.com/wakebus/wakebus/internal/plan"

// Switch is the kill switch. Either half off is off.
type Switch struct {
	// Enabled reads CODE_EXECUTION_ENABLED. An error is a broken setting, which is told apart from off. Nil = off.
	Enabled func() (bool, error)
	// FleetOff reports whether the whole fleet was switched off. Nil = it was not. It must not block.
	FleetOff func() bool
}

// Check returns nil when code may run, *Denied with kill_switch_off, or *Misconfigured. Both must stop the request
// before anything is spent.
func (s Switch) Check() error {
	if s.FleetOff != nil && s.FleetOff() {
		return &Denied{Reason: plan.ReasonKillSwitchOff, Detail: "switched off for the whole fleet"}
	}
	if s.Enabled == nil {
		return &Denied{Reason: plan.ReasonKillSwitchOff}
	}
	on, err := s.Enabled()
	if err != nil {
		return &Misconfigured{What: "CODE_EXECUTION_ENABLED", Err: err}
	}
	if !on {
		return &Denied{Reason: plan.ReasonKillSwitchOff}
	}
	return nil
}
