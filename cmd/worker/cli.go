package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/wakebus/wakebus/internal/config"
)

// cli is what a command may touch of the process it runs in, so that a test can run a command in its own.
type cli struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	// lookup and environ are the environment, dir the working directory.
	lookup  func(string) (string, bool)
	environ []string
	dir     string
	now     func() time.Time
	// notify and unnotify are signal.Notify and signal.Stop.
	notify   func(chan<- os.Signal, ...os.Signal)
	unnotify func(chan<- os.Signal)
	// person says that somebody watches standard error.
	person bool
	flags  globalFlags
	// warned says that the warnings about settings were said.
	warned bool
	// grace is how long after a job's deadline its first event may still come.
	grace time.Duration
	// farewell is how long after an interrupt a job's result is waited for.
	farewell time.Duration
	// began says that the command line was understood and its command runs.
	began bool
}

// globalFlags are the flags that every command has.
type globalFlags struct {
	json       bool
	natsURL    string
	redisURL   string
	spritesURL string
}

func newCLI() *cli {
	dir, err := os.Getwd()
	if err != nil {
		dir = "." // a removed working directory has no name; nothing will be found there
	}
	return &cli{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		lookup: os.LookupEnv, environ: os.Environ(), dir: dir, now: time.Now,
		notify: signal.Notify, unnotify: signal.Stop, person: term.IsTerminal(int(os.Stderr.Fd())),
		grace: startGrace, farewell: farewell,
	}
}

func (c *cli) bind(flags *pflag.FlagSet) {
	flags.BoolVar(&c.flags.json, "json", false, "print JSON, one object per line")
	flags.StringVar(&c.flags.natsURL, "nats-url", "", "where NATS is, in place of NATS_URL")
	flags.StringVar(&c.flags.redisURL, "redis-url", "", "where Redis is, in place of REDIS_URL")
	flags.StringVar(&c.flags.spritesURL, "sprites-api-url", "", "where the Sprites API is, in place of SPRITES_API_URL")
}

// say writes one of our own lines to standard error.
func (c *cli) say(format string, args ...any) {
	fmt.Fprintf(c.err, format+"\n", args...)
}

// settings loads a client command's settings: flags, else environment, else the dev instance of this folder.
func (c *cli) settings() (config.Client, error) {
	settings, warnings, err := c.load()
	for _, w := range warnings {
		if !c.warned {
			c.say("warning: %s", w)
		}
	}
	return settings, err
}

// told is c after its settings' warnings were said.
func (c *cli) told() *cli {
	told := *c
	told.warned = true
	return &told
}

// load reads the settings and says nothing.
func (c *cli) load() (config.Client, []config.Warning, error) {
	given := map[string]string{}
	for name, value := range map[string]string{
		"NATS_URL": c.flags.natsURL, "REDIS_URL": c.flags.redisURL, "SPRITES_API_URL": c.flags.spritesURL,
	} {
		if value != "" {
			given[name] = value
		}
	}
	settings, warnings, err := config.LoadClient(given, c.lookup, c.environ, c.dir)
	var file *config.DevFileError
	if errors.As(err, &file) {
		return settings, warnings, &exitError{code: codeUnreachable, err: err}
	}
	if err != nil {
		return settings, warnings, &exitError{code: codeUsage, err: err}
	}
	return settings, warnings, nil
}

// interrupts delivers SIGINT, SIGTERM and SIGHUP until the returned function is called. At most two are kept.
func (c *cli) interrupts() (<-chan os.Signal, func()) {
	signals := make(chan os.Signal, 2) // never closed; signal.Stop ends the sending
	c.notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return signals, func() { c.unnotify(signals) }
}

// untilSignal returns a context that the first SIGINT, SIGTERM or SIGHUP ends.
func (c *cli) untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signals, stop := c.interrupts()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{}) // closed when the watcher has ended
	go func() {
		defer close(done)
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		stop()
		cancel()
		<-done
	}
}
