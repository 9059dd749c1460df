package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/telemetry"
)

func newRunCmd(c *cli) *cobra.Command {
	var envFile string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the production worker",
		Long: `Run the production worker. It is configured by the environment only ("worker check --config" lists every
setting), has no embedded parts, and refuses to start with every cause named. SIGTERM drains it: running jobs may
finish for WAKEBUS_DRAIN_GRACE, then a peer takes them over. It never reads a dev instance's file unless --env-file
names it.`,
		Example: "  worker run\n  worker run --env-file .wakebus/env",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.runWorker(cmd.Context(), envFile) },
	}
	cmd.Flags().StringVar(&envFile, "env-file", "", "KEY=VALUE file that is read before the environment, which wins")
	return cmd
}

func (c *cli) runWorker(ctx context.Context, envFile string) error {
	lookup, err := c.withEnvFile(envFile)
	if err != nil {
		return err
	}
	settings, warnings, err := config.Load(config.RoleWorker, lookup, c.environ)
	for _, w := range warnings {
		c.say("warning: %s", w)
	}
	if err != nil {
		return usage("the worker does not start:\n%w", err)
	}
	build := telemetry.ReadBuild()
	log := telemetry.NewLog(telemetry.LogConfig{Output: c.err, Level: settings.LogLevel, Service: "wakebus-worker", Version: build.Version})
	tracing, err := telemetry.NewTracing(ctx, lookup, telemetry.TraceConfig{Service: "wakebus-worker", Version: build.Version})
	if err != nil {
		return usage("the worker does not start:\n%w", err)
	}
	app, err := job.NewApp(ctx, settings, job.AppConfig{Log: log, Build: &build, Tracing: tracing})
	if err != nil {
		return misnamed(fmt.Errorf("the worker does not start:\n%w", err))
	}
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	fmt.Fprintf(c.out, "wakebus worker: ready, %s, admin %s\n", app.Worker().ID(), app.AdminURL())
	return errors.Join(app.Run(ctx), tracing.Close(context.WithoutCancel(ctx)))
}

// withEnvFile lays the environment over the file, if one is named.
func (c *cli) withEnvFile(path string) (func(string) (string, bool), error) {
	if path == "" {
		return c.lookup, nil
	}
	values, err := config.ReadEnvFile(path)
	if err != nil {
		return nil, usage("--env-file: %w", err)
	}
	return config.First(c.lookup, config.In(values)), nil
}
