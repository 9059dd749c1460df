package survival_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/tests/rig"
)

func TestMain(m *testing.M) {
	emulator.MaybeInit()
	rig.MaybeWorker()
	goleak.VerifyTestMain(m)
}
