package job_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func TestMain(m *testing.M) {
	emulator.MaybeInit()
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		// The tests wait for schedules and processes more than they compute.
		if err := f.Value.Set("4"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
