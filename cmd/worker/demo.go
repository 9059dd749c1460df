package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/demo"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/telemetry"
)

func newDemoCmd(c *cli) *cobra.Command {
	var f struct {
		verbose, keep bool
		isolation     string
	}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Walk through the main job on an instance of its own",
		Long: `Start a broker, a Redis, the Sprites emulator and a worker in this process, in a temporary folder and on free
loopback ports; act as a web app would; check every step from the outside; clean up. The last line says how many
steps held, and the exit code is 0 only if all did.`,
		Example: "  worker demo\n  worker demo --verbose --keep",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.runDemo(cmd.Context(), f.verbose, f.keep, f.isolation)
		},
	}
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "show each step's events and the worker's log")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "keep the instance's folder and say where it is")
	cmd.Flags().StringVar(&f.isolation, "isolation", "auto", "the emulator's isolation: auto, namespace or mapped")
	return cmd
}

func (c *cli) runDemo(ctx context.Context, verbose, keep bool, isolation string) error {
	cfg := demo.Config{Out: c.out, Verbose: verbose, Emulator: func(e *emulator.Config) { e.Isolation = emulator.IsolationMode(isolation) }}
	level := config.LevelError
	if verbose {
		level = config.LevelDebug
	}
	cfg.Log = telemetry.NewLog(telemetry.LogConfig{Output: c.err, Level: level})
	if keep {
		dir, err := os.MkdirTemp("", "wakebus-demo-")
		if err != nil {
			return err
		}
		cfg.Dir = dir
		defer c.say("the demo's folder is %s", dir)
	}
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	err := demo.Run(ctx, cfg)
	if errors.Is(err, demo.ErrStep) {
		return endWith(codeRefused)
	}
	return err
}
