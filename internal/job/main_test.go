package job_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func TestMain(m *testing.M) {
	emulator.MaybeInit()
	goleak.VerifyTestMain(m)
}
