package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/manual"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// The groups of the help text.
const (
	groupRun     = "run"
	groupUse     = "use"
	groupOperate = "operate"
)

// commands is the whole tree below the root, in the order of the help text.
var commands = []struct {
	group string
	make  func(*cli) *cobra.Command
}{
	{groupRun, newRunCmd},
	{groupRun, newDevCmd},
	{groupRun, newDemoCmd},
	{groupRun, newEmulatorCmd},

	{groupUse, newExecCmd},
	{groupUse, newJobsCmd},
	{groupUse, newFilesCmd},
	{groupUse, newGrantCmd},

	{groupOperate, newStatusCmd},
	{groupOperate, newDLQCmd},
	{groupOperate, newLeasesCmd},
	{groupOperate, newSandboxesCmd},
	{groupOperate, newExecutionCmd},
	{groupOperate, newCheckCmd},
	{groupOperate, newPlanCmd},
	{groupOperate, newBenchCmd},
	{groupOperate, newDocsCmd},
}

// run executes one command line and returns the process's exit code.
func run(ctx context.Context, c *cli, args []string) int {
	root := newRoot(c)
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetErr(c.err)
	err := root.ExecuteContext(ctx)
	code, quiet := exitCode(err)
	if !c.began && code == codeRefused {
		code = codeUsage // no command was found to run
	}
	if !quiet {
		fmt.Fprintln(c.err, "worker: "+err.Error())
	}
	return code
}

func newDocsCmd(*cli) *cobra.Command {
	build := telemetry.ReadBuild()
	return manual.Command("worker", "wakebus "+build.Version, build.Committed())
}

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "worker",
		Short: "Run commands and terminals in sandboxes that sleep",
		Long: `Wakebus runs commands and terminals in sandboxes that sleep.

Client commands find their servers by flag, else by environment, else by .wakebus/env in this folder or the nearest
parent, which "worker dev" writes. Exit codes: 0 done, 1 not found or refused, 2 wrong usage, 3 NATS or Redis cannot
be reached; exec has its own.`,
		Example:          "  worker demo\n  worker dev\n  worker exec -- echo hello",
		Version:          telemetry.ReadBuild().String(),
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { c.began = true },
	}
	root.SetVersionTemplate("worker {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err) })
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run it:"},
		&cobra.Group{ID: groupUse, Title: "Use it:"},
		&cobra.Group{ID: groupOperate, Title: "Operate it:"},
	)
	c.bind(root.PersistentFlags())
	root.PersistentFlags().SortFlags = false
	for _, entry := range commands {
		cmd := entry.make(c)
		cmd.GroupID = entry.group
		wrapArgs(cmd)
		root.AddCommand(cmd)
	}
	root.SetOut(c.out) // the completion command keeps what it finds here when it is made
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			wrapArgs(cmd) // a shell that it does not know is wrong usage
		}
	}
	return root
}

// wrapArgs makes a wrong number of arguments a usage error, as a wrong flag is, in the whole subtree.
func wrapArgs(cmd *cobra.Command) {
	check := cmd.Args
	if check == nil && cmd.HasSubCommands() {
		check = cobra.NoArgs
	}
	if check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usage("%w", err)
			}
			return nil
		}
	}
	// A group alone, such as `worker dlq`, shows its help and is wrong usage all the same.
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			if err := cmd.Help(); err != nil {
				return err
			}
			return endWith(codeUsage)
		}
	}
	for _, sub := range cmd.Commands() {
		wrapArgs(sub)
	}
}
