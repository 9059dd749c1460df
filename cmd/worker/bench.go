package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/bench"
	"github.com/wakebus/wakebus/internal/config"
)

// benchFlags are the flags of `worker bench`.
type benchFlags struct {
	jobs, workers, slots, inFlight int
	payload, output, emulator      string
	rate                           float64
	sync, own                      bool
}

func newBenchCmd(c *cli) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what a job takes and costs",
		Long: `Measure jobs as a web app sees them: enqueue to started, enqueue to result, what is added to a direct exec, jobs a
second, output, and what each job costs in messages, bytes, processor time and memory.

Where a server is known (by flag, environment or a dev instance's file) that one is measured; it must run with
AUTHZ_MODE=dev and let as many jobs through at once as --in-flight says. Else, or with --own, everything is started in
this process with every limit lifted: broker, emulator, workers, and a redis-server where one is on the PATH (the one in
memory where not; the last line says which).`,
		Example: "  worker bench --own\n  worker bench --own --jobs 500 --emulator real\n  worker bench --jobs 200 --in-flight 4 --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.bench(cmd, f) },
	}
	fs := cmd.Flags()
	fs.IntVar(&f.jobs, "jobs", 2000, "jobs to take the throughput from")
	fs.IntVar(&f.workers, "workers", 1, "workers in this process")
	fs.IntVar(&f.slots, "concurrency", 32, "jobs that each worker runs at once")
	fs.IntVar(&f.inFlight, "in-flight", 0, "jobs under way at a time; twice the slots, or 4 on a server that is not ours, without it")
	fs.StringVar(&f.payload, "payload", "0B", "output of each job; without it the command is true")
	fs.StringVar(&f.output, "output", "64MiB", "output of the one job that output throughput is taken from")
	fs.Float64Var(&f.rate, "rate", 10, "jobs a second while latency is measured")
	fs.StringVar(&f.emulator, "emulator", string(bench.EmulatorInstant), "instant (no processes, so that Wakebus is measured) or real")
	fs.BoolVar(&f.sync, "sync", false, "let broker and Redis write through to the disk before they answer")
	fs.BoolVar(&f.own, "own", false, "start everything here, even where a server is known")
	return cmd
}

func (c *cli) bench(cmd *cobra.Command, f benchFlags) error {
	if f.jobs < 1 {
		return usage("--jobs is %d, must be 1 or more", f.jobs)
	}
	payload, err := config.ParseSize(f.payload)
	if err != nil {
		return usage("--payload %w", err)
	}
	output, err := config.ParseSize(f.output)
	if err != nil {
		return usage("--output %w", err)
	}
	cfg := bench.Config{Jobs: f.jobs, Rate: f.rate, InFlight: f.inFlight, Payload: payload.Bytes(), Output: output.Bytes(), Progress: func(phase string) {
		if c.person {
			c.say("measuring: %s", phase)
		}
	}}
	ctx, stop := c.untilSignal(cmd.Context())
	defer stop()
	report, err := c.measure(ctx, cmd, f, cfg)
	if errors.Is(err, bench.ErrConfig) {
		return usage("%w", err)
	}
	if err != nil {
		return err
	}
	if c.flags.json {
		return c.printJSON(report)
	}
	return report.Print(c.out)
}

// measure measures the server that is known, else one of our own.
func (c *cli) measure(ctx context.Context, cmd *cobra.Command, f benchFlags, cfg bench.Config) (bench.Report, error) {
	if f.own {
		return c.measureOwn(ctx, f, cfg)
	}
	settings, err := c.settings()
	if err != nil {
		return bench.Report{}, err
	}
	if settings.NATSURL == "" {
		return c.measureOwn(ctx, f, cfg)
	}
	for _, name := range []string{"workers", "concurrency", "emulator", "sync"} {
		if cmd.Flags().Changed(name) {
			return bench.Report{}, usage("--%s is for a server of our own: add --own", name)
		}
	}
	b, settings, err := c.connect(ctx)
	if err != nil {
		return bench.Report{}, err
	}
	defer b.Close()
	if cfg.InFlight == 0 {
		cfg.InFlight = 4 // what a server with default limits lets through
	}
	return bench.Measure(ctx, bench.Target{
		Bus: b, RedisURL: settings.RedisURL.Reveal(), SpritesURL: settings.SpritesAPIURL.Reveal(), SpritesToken: settings.SpritesAPIToken.Reveal(),
		Sync: "not known", Redis: "as it runs", Emulator: bench.EmulatorNone,
	}, cfg)
}

func (c *cli) measureOwn(ctx context.Context, f benchFlags, cfg bench.Config) (report bench.Report, err error) {
	if f.workers < 1 {
		return report, usage("--workers is %d, must be 1 or more", f.workers)
	}
	rig, err := bench.StartRig(ctx, bench.RigConfig{
		Workers: f.workers, Slots: f.slots, Emulator: bench.EmulatorMode(f.emulator), SyncAlways: f.sync,
	})
	if err != nil {
		return report, err
	}
	defer func() {
		if cerr := rig.Close(); cerr != nil {
			err = errors.Join(err, fmt.Errorf("end what was measured: %w", cerr))
		}
	}()
	return bench.Measure(ctx, rig.Target(), cfg)
}
