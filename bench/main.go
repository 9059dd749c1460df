package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

func main() {
	emulator.MaybeInit() // the emulator starts this binary anew inside its namespaces
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	root, out, worker string
	scale             float64
	deep              int
	only              string
	serve, url        string
	slots             int
	limit             time.Duration
}

func run(ctx context.Context, args []string) error {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&o.root, "root", "..", "the repository")
	fs.StringVar(&o.out, "out", "", "file to write (default docs/performance.md in the repository)")
	fs.StringVar(&o.worker, "worker", "", "worker binary; it is built without one")
	fs.Float64Var(&o.scale, "scale", 1, "share of the full size, above 0 and at most 1")
	fs.IntVar(&o.deep, "deep", 100_000, "requests in the deepest queue at full size; 1000000 takes minutes")
	fs.StringVar(&o.only, "only", "", "run only these sections, separated by commas; nothing is written")
	fs.DurationVar(&o.limit, "limit", 20*time.Minute, "give up after this long")
	fs.StringVar(&o.serve, "serve", "", "be a worker of a peer (asynq or river), for the rows with two processes")
	fs.StringVar(&o.url, "url", "", "with -serve: where its store is")
	fs.IntVar(&o.slots, "slots", 16, "with -serve: jobs at once")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if o.serve != "" {
		return servePeer(ctx, o.serve, o.url, o.slots)
	}
	if o.scale <= 0 || o.scale > 1 {
		return fmt.Errorf("scale %g is not above 0 and at most 1", o.scale)
	}
	if o.out == "" {
		o.out = filepath.Join(o.root, "docs", "performance.md")
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	return measureAll(ctx, o)
}

// measureAll runs the sections one after another: they would disturb each other. One that fails leaves its rows missing,
// which fails the command at the end, and the others still run.
func measureAll(ctx context.Context, o options) error {
	b := newBook(o)
	dir, err := os.MkdirTemp("", "wakebus-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b.dir = dir
	if b.worker, err = workerBinary(ctx, o, dir); err != nil {
		return err
	}
	for _, s := range sections {
		if o.only != "" && !strings.Contains(","+o.only+",", ","+s.name+",") {
			continue
		}
		began := time.Now()
		fmt.Fprintf(os.Stderr, "measuring %s ...", s.name)
		if err := s.run(ctx, b); err != nil {
			b.failures = append(b.failures, fmt.Sprintf("%s: %v", s.name, err))
			fmt.Fprintf(os.Stderr, " failed: %v", err)
		}
		fmt.Fprintf(os.Stderr, " %.1f s\n", time.Since(began).Seconds())
		if ctx.Err() != nil {
			break
		}
	}
	b.took = time.Since(b.began)
	if o.only != "" {
		return b.tables(os.Stdout)
	}
	if err := b.write(o.out); err != nil {
		return err
	}
	return b.complete()
}

// sections in their order; each fills tables of the book.
var sections = []struct {
	name string
	run  func(context.Context, *book) error
}{
	{"job", measureJob},
	{"real", measureReal},
	{"sync", measureSync},
	{"process", measureProcess},
	{"exec", compareExec},
	{"queue", compareQueues},
	{"output", compareOutput},
	{"lease", compareLeases},
	{"floor", measureFloor},
	{"concurrency", growConcurrency},
	{"depth", growDepth},
	{"conversations", growConversations},
	{"history", growHistory},
	{"noisy", growNoisy},
}
