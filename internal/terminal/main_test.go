package terminal_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func TestMain(m *testing.M) {
	emulator.MaybeInit() // must come first: the emulator starts this binary again as the init of each sandbox
	goleak.VerifyTestMain(m)
}
