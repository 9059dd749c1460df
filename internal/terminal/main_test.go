package terminal_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func TestMain(m *testing.M) {
	emulator.MaybeInit() // must come first: the emulator starts this binary again as the init of each sandbox
	if settings := os.Getenv(gatewayVariable); settings != "" {
		os.Exit(gatewayProcess(settings)) // a gateway that a test can kill
	}
	goleak.VerifyTestMain(m)
}
