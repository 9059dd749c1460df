package plan

// Phase is how far a run has come. Phases are ordered and only go forward; see Before.
type Phase string

// The phases of a run, in their order. PhaseNone is the phase of a run whose journal is empty.
const (
	PhaseNone     Phase = ""
	PhaseAccepted Phase = "accepted"
	PhasePlanned  Phase = "planned"
	PhaseDialing  Phase = "dialing"
	PhaseStarted  Phase = "started"
	PhaseStopping Phase = "stopping"
	PhaseResult   Phase = "result"
)

var phaseOrder = map[Phase]int{
	PhaseNone: 0, PhaseAccepted: 1, PhasePlanned: 2, PhaseDialing: 3, PhaseStarted: 4, PhaseStopping: 5, PhaseResult: 6,
}

// Phases lists every phase from first to last. The caller may keep the slice.
func Phases() []Phase {
	return []Phase{PhaseNone, PhaseAccepted, PhasePlanned, PhaseDialing, PhaseStarted, PhaseStopping, PhaseResult}
}

// Valid reports whether p is one of the closed set.
func (p Phase) Valid() bool { _, ok := phaseOrder[p]; return ok }

// Before reports whether p comes strictly before q. An unknown phase comes before none.
func (p Phase) Before(q Phase) bool {
	a, okA := phaseOrder[p]
	b, okB := phaseOrder[q]
	return okA && okB && a < b
}
