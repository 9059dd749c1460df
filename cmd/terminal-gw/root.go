package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/manual"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// The exit codes of serve; attach has its own.
const (
	codeRefused     = 1
	codeUsage       = 2
	codeUnreachable = 3
)

// cli is what a command may touch of the process it runs in.
type cli struct {
	in       *os.File
	out, err io.Writer
	lookup   func(string) (string, bool)
	environ  []string
	dir      string
	json     bool
}

func newCLI() *cli {
	dir, err := os.Getwd()
	if err != nil {
		dir = "." // a removed working directory has no name; nothing will be found there
	}
	return &cli{in: os.Stdin, out: os.Stdout, err: os.Stderr, lookup: os.LookupEnv, environ: os.Environ(), dir: dir}
}

// exitError ends the process with a code; without a cause nothing more is said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// run executes one command line and returns the process's exit code.
func run(ctx context.Context, c *cli, args []string) int {
	root := newRoot(c)
	root.SetArgs(args)
	root.SetOut(c.out)
	root.SetErr(c.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: codeUsage, err: err} // what cobra itself refuses is wrong usage
	}
	if exit.err != nil {
		fmt.Fprintln(c.err, "terminal-gw: "+exit.err.Error())
	}
	return exit.code
}

// failed classes a failure of serve.
func failed(err error) error {
	if err == nil {
		return nil
	}
	code := codeRefused
	if errors.Is(err, bus.ErrUnreachable) || errors.Is(err, bus.ErrUnauthorized) || errors.Is(err, lease.ErrUnavailable) {
		code = codeUnreachable
	} else if errors.Is(err, bus.ErrInvalid) {
		code = codeUsage
	}
	return &exitError{code: code, err: err}
}

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "terminal-gw",
		Short: "Give browsers and terminals a shell in a sandbox that sleeps",
		Long: `Give browsers and terminals a shell in a sandbox that sleeps.

serve is the gateway: browsers connect to it by WebSocket, and it serves a page with a terminal in it. attach connects a
real terminal to a gateway; it finds a dev instance's by .wakebus/env in this folder or the nearest parent.`,
		Example:       "  terminal-gw serve\n  terminal-gw attach --page home",
		Version:       telemetry.ReadBuild().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("terminal-gw {{.Version}}\n")
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print JSON, one object per line")
	build := telemetry.ReadBuild()
	root.AddCommand(newServeCmd(c), newAttachCmd(c), manual.Command("terminal-gw", "wakebus "+build.Version, build.Committed()))
	root.SetOut(c.out) // the completion command keeps what it finds here when it is made
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			refuseUnknown(cmd)
		}
	}
	return root
}

// refuseUnknown makes a shell that completion does not know wrong usage, where cobra would show help and end well.
func refuseUnknown(completion *cobra.Command) {
	completion.Args = cobra.NoArgs
	completion.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cmd.Help(); err != nil {
			return err
		}
		return &exitError{code: codeUsage}
	}
}
