package main

import (
	"bytes"
	"context"
	"runtime"
	"runtime/pprof"

	"github.com/wakebus/wakebus/internal/bench"
)

// withRig runs f against a Rig and closes it.
func withRig(ctx context.Context, cfg bench.RigConfig, f func(*bench.Rig) error) (err error) {
	rig, err := bench.StartRig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := rig.Close(); err == nil {
			err = cerr
		}
	}()
	return f(rig)
}

// withCaller also opens a caller for the tenant bench.
func withCaller(ctx context.Context, cfg bench.RigConfig, f func(*bench.Rig, *bench.Caller) error) error {
	return withRig(ctx, cfg, func(rig *bench.Rig) error {
		c, err := bench.NewCaller(ctx, rig.Target().Bus, "bench", "j")
		if err != nil {
			return err
		}
		defer c.Close()
		return f(rig, c)
	})
}

func (b *book) latency(table string, r bench.Report) {
	for row, d := range map[string]bench.Distribution{
		rowStarted: r.EnqueueStarted, rowResult: r.EnqueueResult, rowDirect: r.ExecDirect, rowAdded: r.Added, rowLease: r.Lease,
		rowHeard: r.OutputDelay, rowOutput: r.AddedOutput,
	} {
		b.row(table, row, distribution(d)...)
	}
}

func measureJob(ctx context.Context, b *book) (err error) {
	err = withRig(ctx, bench.RigConfig{}, func(rig *bench.Rig) (err error) {
		b.Job, err = bench.Measure(ctx, rig.Target(), bench.Config{Jobs: b.n(4000, 64), Paced: b.n(200, 10), Output: int64(b.n(64<<20, 1<<20))})
		return err
	})
	if err == nil {
		b.latency("latency", b.Job)
	}
	return err
}

func measureReal(ctx context.Context, b *book) (err error) {
	err = withRig(ctx, bench.RigConfig{Emulator: bench.EmulatorReal}, func(rig *bench.Rig) (err error) {
		b.Real, err = bench.Measure(ctx, rig.Target(), bench.Config{Jobs: b.n(400, 64), Paced: b.n(60, 5), Output: int64(b.n(64<<20, 1<<20))})
		return err
	})
	if err == nil {
		b.latency("latency-real", b.Real)
	}
	return err
}

func measureSync(ctx context.Context, b *book) (err error) {
	err = withRig(ctx, bench.RigConfig{SyncAlways: true}, func(rig *bench.Rig) (err error) {
		b.Sync, err = bench.Measure(ctx, rig.Target(), bench.Config{Jobs: b.n(600, 64), Paced: b.n(60, 5), Output: int64(b.n(64<<20, 1<<20))})
		return err
	})
	if err == nil {
		b.latency("latency-sync", b.Sync)
	}
	return err
}

// derive fills the table whose columns come from different sections.
func (b *book) derive() {
	for row, f := range map[string]func(bench.Report) string{
		"jobs a second":                  func(r bench.Report) string { return f0(r.JobsPerSecond) },
		"p99 of a job then, ms":          func(r bench.Report) string { return f1(r.LoadResult.P99) },
		"output of one job, MB/s":        func(r bench.Report) string { return f0(r.OutputMBPerSecond) },
		"processor per job, ms":          func(r bench.Report) string { return f2(r.CPUMsPerJob) },
		"processor per job in Redis, ms": func(r bench.Report) string { return f2(r.RedisCPUMsPerJob) },
		"NATS messages per job":          func(r bench.Report) string { return f1(r.NATSOpsPerJob) },
		"messages stored per job":        func(r bench.Report) string { return f1(r.MessagesPerJob) },
		"bytes kept per job":             func(r bench.Report) string { return f0(r.BytesPerJob) },
		"Redis calls per job":            func(r bench.Report) string { return f1(r.RedisCallsPerJob) },
		"Sprites calls per job":          func(r bench.Report) string { return f1(r.SpritesCallsPerJob) },
		"peak memory, MiB":               func(r bench.Report) string { return f0(r.PeakRSSMiB) },
	} {
		cells, measured := make([]string, 0, 3), false
		for _, r := range []bench.Report{b.Job, b.Real, b.Sync} {
			if r.Jobs == 0 {
				cells = append(cells, missing)
				continue
			}
			cells, measured = append(cells, f(r)), true
		}
		if measured {
			b.row("throughput", row, cells...)
		}
	}
}

// profileJob tells where a job's processor time and memory go. The profile slows what it looks at, so it is taken apart.
func profileJob(ctx context.Context, b *book) error {
	return withCaller(ctx, bench.RigConfig{}, func(_ *bench.Rig, c *bench.Caller) error {
		if _, err := c.Run(ctx, bench.Load{Jobs: 64, InFlight: 16, Conversations: 64}); err != nil {
			return err
		}
		jobs := b.n(2000, 64)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := c.Run(ctx, bench.Load{Jobs: jobs, InFlight: 64}); err != nil {
			return err
		}
		runtime.ReadMemStats(&after)
		b.Memory = memoryFigures{
			Bytes: float64(after.TotalAlloc-before.TotalAlloc) / float64(jobs), Objects: float64(after.Mallocs-before.Mallocs) / float64(jobs),
		}
		var cpu, heap bytes.Buffer
		if err := pprof.StartCPUProfile(&cpu); err != nil {
			return err
		}
		_, err := c.Run(ctx, bench.Load{Jobs: jobs, InFlight: 64})
		pprof.StopCPUProfile()
		if err != nil {
			return err
		}
		if err := pprof.Lookup("allocs").WriteTo(&heap, 0); err != nil {
			return err
		}
		if b.Profile, err = shares(cpu.Bytes(), "cpu"); err != nil {
			return err
		}
		b.Allocs, err = shares(heap.Bytes(), "alloc_space")
		return err
	})
}
