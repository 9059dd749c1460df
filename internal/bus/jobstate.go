package bus

import "github.com/wakebus/wakebus/internal/plan"

// stateOf says where a run is by its last state event: it counts as running once its command may run.
func stateOf(last EventKind, phase plan.Phase) JobState {
	switch {
	case last == EventResult:
		return JobEnded
	case phase.Before(plan.PhaseDialing):
		return JobQueued
	}
	return JobRunning
}
