//go:build stoppoint

package job

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/wakebus/wakebus/internal/bus"
)

var stopOnce sync.Once

// stopAt blocks for ever, once, at the step that WAKEBUS_TEST_STOP names, after saying so on stderr: a test then kills
// the process in exactly that state. WAKEBUS_TEST_STOP_JOB limits it to jobs with that prefix.
func stopAt(step Step, key bus.RunKey) {
	if os.Getenv("WAKEBUS_TEST_STOP") != string(step) || !strings.HasPrefix(key.Job, os.Getenv("WAKEBUS_TEST_STOP_JOB")) {
		return
	}
	stop := false
	stopOnce.Do(func() { stop = true })
	if stop {
		fmt.Fprintf(os.Stderr, "stoppoint: %s %s\n", step, key)
		select {}
	}
}
