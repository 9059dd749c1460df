// Command serve runs the emulator for the SDK checks: it wakes fast, and breaks
// the protocol in the one way that -mutation names. -list prints the mutations.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func main() {
	emulator.MaybeInit()
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func run(args []string, out, errOut io.Writer) error {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	mutation := fs.String("mutation", "", "break the protocol in this way")
	isolation := fs.String("isolation", "auto", "auto, namespace or mapped")
	list := fs.Bool("list", false, "print the mutations and exit")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, m := range emulator.Mutations() {
			fmt.Fprintln(out, m)
		}
		return nil
	}
	s, err := emulator.New(emulator.Config{
		Mutation: emulator.Mutation(*mutation), Isolation: emulator.IsolationMode(*isolation), Control: true,
		WarmWake: time.Millisecond, ColdWake: time.Millisecond,
		Logger: zerolog.New(errOut).Level(zerolog.WarnLevel),
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := fmt.Fprintf(out, "SPRITES_API_URL=%s\nSPRITES_API_TOKEN=%s\n", s.URL(), s.Token()); err != nil {
		return errors.Join(err, s.Close())
	}
	return s.Run(ctx)
}
