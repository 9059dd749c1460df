package bench_test

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bench"
)

func startRig(t *testing.T, cfg bench.RigConfig) *bench.Rig {
	t.Helper()
	rig, err := bench.StartRig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rig.Close(); err != nil {
			t.Error(err)
		}
	})
	return rig
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestAMeasurementFillsEveryFigureAndCountsEveryCall(t *testing.T) {
	t.Parallel()
	rig := startRig(t, bench.RigConfig{Slots: 4})
	var phases []string
	r, err := bench.Measure(within(t), rig.Target(), bench.Config{
		Jobs: 40, Paced: 3, Rate: 100, Output: 1 << 20, Progress: func(p string) { phases = append(phases, p) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(phases) != 6 {
		t.Fatalf("phases %v", phases)
	}
	for name, v := range map[string]float64{
		"started": r.EnqueueStarted.P50, "result": r.EnqueueResult.P50, "direct": r.ExecDirect.P50, "lease": r.Lease.P50, "load": r.LoadResult.P50, "output delay": r.OutputDelay.P50,
		"rate": r.JobsPerSecond, "output": r.OutputMBPerSecond, "bytes": r.BytesPerJob, "nats": r.NATSOpsPerJob,
		"cpu": r.CPUMsPerJob, "memory": r.PeakRSSMiB,
	} {
		if v <= 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
	if r.EnqueueStarted.P50 > r.EnqueueResult.P50 {
		t.Errorf("started %v after result %v", r.EnqueueStarted, r.EnqueueResult)
	}
	// The request, five events and the audit record of each.
	if r.MessagesPerJob < 7 || r.MessagesPerJob > 8 {
		t.Errorf("%v messages were stored for a job", r.MessagesPerJob)
	}
	// A job whose Sprite is known costs one read of it and one exec, no more.
	if r.SpritesCallsPerJob != 2 {
		t.Errorf("%v Sprites calls for a job", r.SpritesCallsPerJob)
	}
	if r.Slots != 4 || r.InFlight != 8 || r.Sync != "interval" || r.Emulator != bench.EmulatorInstant {
		t.Errorf("configuration %+v", r)
	}
	if _, err := exec.LookPath("redis-server"); err == nil && (r.Redis != "redis-server" || r.RedisCallsPerJob < 2) {
		t.Errorf("redis %q with %v calls for a job", r.Redis, r.RedisCallsPerJob)
	}
}

func TestAPayloadIsPrintedByEveryJobAndKeptInTheStreams(t *testing.T) {
	t.Parallel()
	rig := startRig(t, bench.RigConfig{Slots: 4, InMemoryRedis: true})
	caller, err := bench.NewCaller(within(t), rig.Target().Bus, "bench", "p")
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	s, err := caller.Exec(within(t), bench.Job{Argv: []string{"head", "-c", "100000", "/dev/zero"}, Conversation: "c", User: "u"})
	if err != nil || s.Bytes != 100_000 {
		t.Fatalf("%d bytes, %v", s.Bytes, err)
	}
	r, err := bench.Measure(within(t), rig.Target(), bench.Config{Jobs: 10, Paced: 1, Rate: 100, Payload: 100_000, Output: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	if r.BytesPerJob < 100_000 {
		t.Errorf("%v bytes were kept of a job", r.BytesPerJob)
	}
	if r.Redis != "in memory" || r.RedisCPUMsPerJob != 0 {
		t.Errorf("redis %q used %v ms for a job", r.Redis, r.RedisCPUMsPerJob)
	}
}

func TestAJobThatDoesNotExitWithZeroEndsTheMeasurement(t *testing.T) {
	t.Parallel()
	rig := startRig(t, bench.RigConfig{Slots: 2, InMemoryRedis: true})
	caller, err := bench.NewCaller(within(t), rig.Target().Bus, "bench", "f")
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	_, err = caller.Run(within(t), bench.Load{Jobs: 5, InFlight: 2, Argv: []string{"false"}})
	var failed *bench.NotExitedError
	if !errors.As(err, &failed) || failed.ExitCode != 1 {
		t.Fatalf("got %v", err)
	}
	_, err = caller.Exec(within(t), bench.Job{Argv: []string{"true"}, Conversation: "not valid", User: "u"})
	if !errors.As(err, &failed) || failed.Outcome != "denied" {
		t.Fatalf("got %v", err)
	}
}

func TestAnUnusableConfigurationIsRefusedWithEveryProblem(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]bench.RigConfig{
		"slots": {Slots: -1}, "workers": {Workers: 65}, "emulator": {Emulator: "other"},
	} {
		if _, err := bench.StartRig(t.Context(), cfg); !errors.Is(err, bench.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := bench.Measure(t.Context(), bench.Target{}, bench.Config{Jobs: -1, Rate: -1}); !errors.Is(err, bench.ErrConfig) {
		t.Errorf("got %v", err)
	}
}

func TestTheRealEmulatorIsMeasuredToo(t *testing.T) {
	t.Parallel()
	rig := startRig(t, bench.RigConfig{Slots: 2, Emulator: bench.EmulatorReal, InMemoryRedis: true})
	r, err := bench.Measure(within(t), rig.Target(), bench.Config{Jobs: 4, Paced: 1, Output: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	if r.JobsPerSecond <= 0 || r.Emulator != bench.EmulatorReal {
		t.Fatalf("got %+v", r)
	}
}

func TestMemoryAndProcessorTimeOfAProcessAreRead(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	now, peak, err := bench.Memory(cmd.Process.Pid)
	if err != nil || now <= 0 || peak < now {
		t.Fatalf("%d now, %d at most, %v", now, peak, err)
	}
	if _, err := bench.ProcessCPU(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.ProcessCPU(1 << 30); err == nil {
		t.Fatal("a process that is not there has processor time")
	}
}
