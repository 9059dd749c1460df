// Command worker is the Wakebus worker and the tool of those who use and operate it. See `worker --help`.
package main

import (
	"context"
	"os"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func main() {
	emulator.MaybeInit() // must come first: the emulator starts this binary again as the init of each sandbox
	os.Exit(run(context.Background(), newCLI(), os.Args[1:]))
}
