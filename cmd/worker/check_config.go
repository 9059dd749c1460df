package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/config"
)

// checkFlags are the flags of `worker check`.
type checkFlags struct {
	config, markdown, live bool
	role, output, envFile  string
}

func newCheckCmd(c *cli) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check settings and servers, and say what to do",
		Long: `Check the settings and the servers that they name. Each line is ok, note or fail, what was looked at, and what to do;
any fail exits with 1. --config prints the settings in force, secrets redacted, and checks nothing else.`,
		Example: "  worker check\n  worker check --config --role worker --env-file production.env\n" +
			"  worker check --config --markdown --output docs/configuration.md",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(cmd); err != nil {
				return err
			}
			switch {
			case f.markdown:
				return c.writeMarkdown(f.output)
			case f.config:
				return c.printConfig(f)
			}
			return c.check(cmd.Context(), f)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.config, "config", false, "print the settings in force, redacted")
	fs.BoolVar(&f.markdown, "markdown", false, "with --config: print the table of settings as a document")
	fs.StringVar(&f.output, "output", "", "with --markdown: write to this file")
	fs.StringVar(&f.role, "role", string(config.RoleClient), "with --config: read them as worker, gateway, setup or client does")
	fs.StringVar(&f.envFile, "env-file", "", "with --config: KEY=VALUE file that is read before the environment, which wins")
	fs.BoolVar(&f.live, "live", false, "make one throw-away sandbox, run commands in it, and say what the service does where no document tells")
	return cmd
}

// validate refuses flags that would be ignored.
func (f checkFlags) validate(cmd *cobra.Command) error {
	for name, need := range map[string]bool{"role": f.config, "env-file": f.config, "markdown": f.config, "output": f.markdown} {
		if cmd.Flags().Changed(name) && !need {
			return usage("--%s goes with --%s", name, map[bool]string{true: "markdown", false: "config"}[name == "output"])
		}
	}
	if f.envFile != "" && f.role == string(config.RoleClient) {
		return usage("--env-file goes with --role worker, gateway or setup")
	}
	if f.config && f.live {
		return usage("--live and --config exclude each other")
	}
	return nil
}

func (c *cli) writeMarkdown(path string) error {
	if path == "" {
		_, err := fmt.Fprint(c.out, config.Markdown())
		return err
	}
	if err := os.WriteFile(path, []byte(config.Markdown()), 0o644); err != nil {
		return refused("write settings table: %w", err)
	}
	return nil
}

// settingRow is one line of `worker check --config --json`.
type settingRow struct {
	Variable string `json:"variable"`
	Value    string `json:"value"`
	Default  string `json:"default,omitempty"`
	Secret   bool   `json:"secret,omitempty"`
}

func (c *cli) printConfig(f checkFlags) error {
	settings, warnings, err := c.readConfig(f)
	if errors.Is(err, errUsage) {
		return usage("%w", err)
	}
	role := config.Role(f.role)
	var rows []settingRow
	for _, s := range config.Settings() {
		if s.ReadBy(role) {
			rows = append(rows, settingRow{s.Variable, s.Value(settings), s.Default, s.Secret})
		}
	}
	if printed := printRows(c, rows, "VARIABLE VALUE", func(r settingRow) []string { return []string{r.Variable, r.Value} }); printed != nil {
		return printed
	}
	for _, w := range warnings {
		c.say("warning: %s", w)
	}
	if err != nil {
		return refused("%w", err)
	}
	return nil
}

var errUsage = errors.New("wrong usage")

func (c *cli) readConfig(f checkFlags) (config.Config, []config.Warning, error) {
	switch role := config.Role(f.role); role {
	case config.RoleWorker, config.RoleGateway, config.RoleSetup:
		lookup := c.lookup
		if f.envFile != "" {
			values, err := config.ReadEnvFile(f.envFile)
			if err != nil {
				return config.Config{}, nil, fmt.Errorf("%w: %w", errUsage, err)
			}
			lookup = config.First(c.lookup, config.In(values))
		}
		return config.Load(role, lookup, c.environ)
	case config.RoleClient:
		settings, warnings, err := c.load()
		return settings.Config, warnings, err
	default:
		return config.Config{}, nil, fmt.Errorf("%w: --role must be worker, gateway, setup or client", errUsage)
	}
}
