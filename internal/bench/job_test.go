package bench_test

import (
	"testing"

	"github.com/wakebus/wakebus/internal/bench"
)

// BenchmarkJob is a whole job with 64 in flight: broker, worker, emulator and caller in one process. Profile it to see
// what a job costs.
func BenchmarkJob(b *testing.B) {
	rig, err := bench.StartRig(b.Context(), bench.RigConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := rig.Close(); err != nil {
			b.Error(err)
		}
	}()
	caller, err := bench.NewCaller(b.Context(), rig.Target().Bus, "bench", "b")
	if err != nil {
		b.Fatal(err)
	}
	defer caller.Close()
	load := bench.Load{Jobs: 64, InFlight: 16, Conversations: 64}
	if _, err := caller.Run(b.Context(), load); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	load.Jobs, load.InFlight = b.N, 64
	s, err := caller.Run(b.Context(), load)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(s.CPU.Microseconds())/float64(b.N), "cpu-us/op")
	b.ReportMetric(s.PerSecond(), "jobs/s")
}
