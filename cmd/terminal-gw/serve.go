package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/telemetry"
	"github.com/wakebus/wakebus/internal/terminal"
)

// serveFlags are the flags of `terminal-gw serve`.
type serveFlags struct{ envFile, pageDir string }

func newServeCmd(c *cli) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway until SIGTERM",
		Long: `Run the gateway. On SIGTERM it hands its shells over to the other gateways first, then sends its viewers away, spread
over a few seconds, and they come back elsewhere. It never reads a dev instance's file unless --env-file names it.
Settings are environment variables; "worker check --config --role gateway" prints them.`,
		Example: "  terminal-gw serve\n  terminal-gw serve --env-file .wakebus/env --page-dir internal/terminal/page/dist",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.serve(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.envFile, "env-file", "", "KEY=VALUE file that is read before the environment, which wins")
	cmd.Flags().StringVar(&f.pageDir, "page-dir", "", "folder with the built page; "+terminal.DefaultPageDir+" where that exists")
	return cmd
}

func (c *cli) serve(ctx context.Context, f serveFlags) error {
	lookup := c.lookup
	if f.envFile != "" {
		values, err := config.ReadEnvFile(f.envFile)
		if err != nil {
			return &exitError{code: codeUsage, err: fmt.Errorf("--env-file: %w", err)}
		}
		lookup = config.First(c.lookup, config.In(values))
	}
	cfg, warnings, err := config.Load(config.RoleGateway, lookup, c.environ)
	for _, w := range warnings {
		fmt.Fprintf(c.err, "warning: %s\n", w)
	}
	if err != nil {
		return &exitError{code: codeUsage, err: err}
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := telemetry.NewLog(telemetry.LogConfig{Output: c.err, Level: cfg.LogLevel, Service: "terminal-gw"})
	app, err := terminal.NewApp(ctx, cfg, terminal.AppConfig{Log: log, PageDir: f.pageDir})
	if err != nil {
		return failed(err)
	}
	c.ready(app)
	return failed(app.Run(ctx))
}

// ready prints the one line that says where the gateway is.
func (c *cli) ready(app *terminal.App) {
	if !c.json {
		fmt.Fprintf(c.out, "terminal-gw: ready at %s, admin at %s\n", app.URL(), app.AdminURL())
		return
	}
	line, err := json.Marshal(map[string]string{"ready": app.URL(), "admin": app.AdminURL()})
	if err == nil { // two strings cannot fail
		fmt.Fprintf(c.out, "%s\n", line)
	}
}
