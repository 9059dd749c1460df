package job

import (
	"context"

	"github.com/wakebus/wakebus/internal/bus"
)

// Step names a point in the life of a run, in the order they are passed.
type Step string

// The steps at which a worker may be stopped, killed or made to fail in tests.
const (
	StepBeforeClaim   Step = "before_claim"
	StepAfterClaim    Step = "after_claim"
	StepAfterLease    Step = "after_lease"
	StepPlanning      Step = "planning"
	StepProvisioning  Step = "provisioning"
	StepPlanned       Step = "planned"
	StepDialing       Step = "dialing"
	StepOpened        Step = "opened"
	StepStarted       Step = "started"
	StepStreaming     Step = "streaming"
	StepStopping      Step = "stopping"
	StepExited        Step = "exited"
	StepBeforeRelease Step = "before_release"
	StepBeforeResult  Step = "before_result"
	StepAfterResult   Step = "after_result"
	StepAfterLetter   Step = "after_letter"
	StepBeforeAck     Step = "before_ack"
	StepParked        Step = "parked"
)

// Steps lists the closed set in order. The caller may keep the slice.
func Steps() []Step {
	return []Step{StepBeforeClaim, StepAfterClaim, StepAfterLease, StepPlanning, StepProvisioning, StepPlanned, StepDialing,
		StepOpened, StepStarted, StepStreaming, StepStopping, StepExited, StepBeforeRelease, StepBeforeResult, StepAfterResult,
		StepAfterLetter, StepBeforeAck, StepParked}
}

// at passes a step. Its error is what the step fails with; only tests ever make one.
func (w *Worker) at(ctx context.Context, step Step, key bus.RunKey) error {
	stopAt(step, key)
	if w.cfg.Step == nil {
		return nil
	}
	return w.cfg.Step(ctx, step, key)
}
