package main

import (
	"context"
	"errors"
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
	root, out, worker, results string
	scale                      float64
	deep                       int
	only                       string
	resume                     bool
	serve, url                 string
	slots                      int
	limit                      time.Duration
}

func run(ctx context.Context, args []string) error {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&o.root, "root", "..", "the repository")
	fs.StringVar(&o.out, "out", "", "file to write (default docs/performance.md in the repository)")
	fs.StringVar(&o.results, "results", "", "folder in which each section's results are kept (default bench/results in the repository)")
	fs.StringVar(&o.worker, "worker", "", "worker binary; it is built without one")
	fs.Float64Var(&o.scale, "scale", 1, "share of the full size, above 0 and at most 1")
	fs.IntVar(&o.deep, "deep", 1_000_000, "requests in the deepest queue at full size")
	fs.StringVar(&o.only, "only", "", "measure and keep only these sections, separated by commas, and print them; the document is left alone")
	fs.BoolVar(&o.resume, "resume", false, "measure only sections of which no results of this size are kept")
	fs.DurationVar(&o.limit, "limit", 40*time.Minute, "give up after this long")
	fs.StringVar(&o.serve, "serve", "", "be a worker of a peer (asynq or river), for the rows with two processes")
	fs.StringVar(&o.url, "url", "", "with -serve: where its store is")
	fs.IntVar(&o.slots, "slots", 16, "with -serve: jobs at once")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if o.serve != "" {
		return servePeer(ctx, o.serve, o.url, o.slots)
	}
	if err := o.settle(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	return measureAll(ctx, o)
}

// settle checks the flags and fills in the paths.
func (o *options) settle() error {
	var errs []error
	if o.scale <= 0 || o.scale > 1 {
		errs = append(errs, fmt.Errorf("scale %g is not above 0 and at most 1", o.scale))
	}
	if o.only != "" {
		for name := range strings.SplitSeq(o.only, ",") {
			if !isSection(name) {
				errs = append(errs, fmt.Errorf("no section %q", name))
			}
		}
	}
	if o.out == "" {
		o.out = filepath.Join(o.root, "docs", "performance.md")
	}
	if o.results == "" {
		o.results = filepath.Join(o.root, "bench", "results")
	}
	return errors.Join(errs...)
}

// wanted reports whether a section is to be measured now.
func (o *options) wanted(section string) (bool, error) {
	if o.only != "" {
		return strings.Contains(","+o.only+",", ","+section+","), nil
	}
	if !o.resume {
		return true, nil
	}
	_, ok, err := o.kept(section)
	return !ok, err
}

// todo is what to measure now. What was kept of it is forgotten, so that no old figure stands in for one that fails.
func (o *options) todo() ([]section, error) {
	var todo []section
	for _, s := range sections {
		want, err := o.wanted(s.name)
		if err == nil && want {
			todo, err = append(todo, s), o.forget(s.name)
		}
		if err != nil {
			return nil, err
		}
	}
	return todo, nil
}

// measureAll runs the sections one after another: they would disturb each other. Each one's results are kept at once. One
// that fails leaves its rows missing, which fails the command at the end, and the others still run.
func measureAll(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "wakebus-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	whole := newBook(o)
	if whole.worker, err = workerBinary(ctx, o, dir); err != nil {
		return err
	}
	todo, err := o.todo()
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "load when it begins: %s\n", load())
	for _, s := range todo {
		if err := measureSection(ctx, o, whole.worker, s); err != nil {
			whole.failures = append(whole.failures, fmt.Sprintf("%s: %v", s.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Fprintf(os.Stderr, "load when it ends: %s\n", load())
	return whole.finish()
}

// sectionTries is how often a section is measured that fails: on a busy machine a call may take too long.
const sectionTries = 2

// measureSection measures one and keeps what it found.
func measureSection(ctx context.Context, o options, worker string, s section) error {
	fmt.Fprintf(os.Stderr, "measuring %s ...", s.name)
	for try := 1; ; try++ {
		p, err := measureOnce(ctx, o, worker, s)
		if err == nil {
			fmt.Fprintf(os.Stderr, " %.1f s, others used %.0f %% of the machine\n", p.Took.Seconds(), p.Others)
			return o.keep(p)
		}
		fmt.Fprintf(os.Stderr, " failed: %v\n", err)
		if try == sectionTries || ctx.Err() != nil {
			return err
		}
		fmt.Fprint(os.Stderr, "once more ...")
	}
}

func measureOnce(ctx context.Context, o options, worker string, s section) (part, error) {
	b := newBook(o)
	b.worker, b.section = worker, s.name
	m := startMeter()
	if err := s.run(ctx, b); err != nil {
		return part{}, err
	}
	return part{Section: s.name, Scale: o.scale, Deep: o.deep, Revision: revision(o.root), Began: m.at, Took: time.Since(m.at),
		Load: [2]string{m.load, load()}, Others: m.others(), Findings: b.findings}, nil
}

// finish puts the parts together, and prints or writes them.
func (b *book) finish() error {
	for _, s := range sections {
		if b.opt.only != "" && !strings.Contains(","+b.opt.only+",", ","+s.name+",") {
			continue
		}
		p, ok, err := b.opt.kept(s.name)
		if err == nil && ok {
			err = b.add(p)
		}
		if err != nil {
			b.failures = append(b.failures, err.Error())
		}
	}
	b.derive()
	if b.opt.only != "" {
		return b.tables(os.Stdout)
	}
	if err := b.write(b.opt.out); err != nil {
		return err
	}
	return b.complete()
}

// section is one part of the measurement.
type section struct {
	name string
	run  func(context.Context, *book) error
}

func isSection(name string) bool {
	for _, s := range sections {
		if s.name == name {
			return true
		}
	}
	return false
}

// sections in their order; each fills tables of the book.
var sections = []section{
	{"job", measureJob},
	{"profile", profileJob},
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
