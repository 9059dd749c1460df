package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// devFlags are the flags of `worker dev`.
type devFlags struct {
	dir, faults, isolation string
	workers                int
	idle                   time.Duration
	seed                   int64
	noTerminal             bool
}

func newDevCmd(c *cli) *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process, and keep its state",
		Long: `Run a broker, a Redis, the Sprites emulator, workers and a terminal gateway in this process, on loopback. State is
kept in ./.wakebus, so that a restart finds its streams, links and sandboxes; leases are gone then, because that Redis
lives in memory. The addresses are in .wakebus/env, which client commands in this folder and below find by
themselves. Ctrl-C ends it.`,
		Example: "  worker dev\n  worker dev --workers 2 --idle 10s\n  worker dev --dir /tmp/instance --no-terminal",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.runDev(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.dir, "dir", config.DevDir, "folder of the instance")
	fs.IntVar(&f.workers, "workers", 1, "workers in this process; 0 = none")
	fs.DurationVar(&f.idle, "idle", 30*time.Second, "how long a sandbox without activity stays awake")
	fs.Int64Var(&f.seed, "seed", 0, "seed of the faults' probabilities")
	fs.StringVar(&f.faults, "faults", "", "file with faults of the emulator, JSON")
	fs.StringVar(&f.isolation, "isolation", "auto", "the emulator's isolation: auto, namespace or mapped")
	fs.BoolVar(&f.noTerminal, "no-terminal", false, "run no terminal gateway")
	return cmd
}

func (c *cli) runDev(ctx context.Context, f devFlags) error {
	if f.workers < 0 || f.idle <= 0 {
		return usage("--workers must be 0 or more, --idle positive")
	}
	var faults []emulator.Fault
	if f.faults != "" {
		read, err := readFaults(f.faults)
		if err != nil {
			return usage("%w", err)
		}
		faults = read
	}
	dir, err := filepath.Abs(f.dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		// Nothing of an instance belongs into anybody's repository.
		err = os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*\n"), 0o600)
	}
	if err != nil {
		return fmt.Errorf("make the instance's folder: %w", err)
	}
	log := telemetry.NewLog(telemetry.LogConfig{Output: c.err, Level: config.LevelInfo})
	kept := readKept(dir)
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	inst, err := instance.Start(ctx, instance.Config{
		Dir: dir, Workers: workersOf(f.workers), Log: log, Ports: kept.ports, Secrets: kept.secrets, Terminal: !f.noTerminal,
		Emulator: func(e *emulator.Config) {
			e.Idle, e.Seed, e.Faults, e.Isolation = f.idle, f.seed, faults, emulator.IsolationMode(f.isolation)
		},
	})
	var locked *bus.StoreLockedError
	if errors.As(err, &locked) {
		return runsAlready(dir, locked)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.serveDev(ctx, inst, dir), inst.Close())
}

// runsAlready says who has the folder and what can be done: two servers on one store would corrupt it.
func runsAlready(dir string, locked *bus.StoreLockedError) error {
	holder := "another process"
	if locked.PID != 0 {
		holder = fmt.Sprintf("process %d", locked.PID)
	}
	return refused("a dev instance runs in %s already: %s has its store. Use that one, end it with Ctrl-C where it runs, "+
		"or start a second one beside it with: worker dev --dir OTHER", dir, holder)
}

func workersOf(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// serveDev says where everything is and waits for the end.
func (c *cli) serveDev(ctx context.Context, inst *instance.Instance, dir string) error {
	path := filepath.Join(dir, config.EnvName)
	keep := filepath.Join(dir, keptName)
	if err := errors.Join(config.WriteDevFile(keep, inst.Env()), config.WriteDevFile(path, inst.Env())); err != nil {
		return err
	}
	defer func() {
		if err := os.Remove(path); err != nil {
			c.say("remove %s: %v", path, err)
		}
	}()
	addresses := inst.Addresses()
	for _, part := range slices.Sorted(maps.Keys(addresses)) {
		fmt.Fprintf(c.out, "%-8s %s\n", part, addresses[part])
	}
	fmt.Fprintf(c.out, "%-8s %s\nwakebus dev: ready\n", "Env", path)
	select {
	case <-ctx.Done():
		return nil
	case <-inst.Failed():
		return errors.New("a part of the instance has ended; see the log above")
	}
}

// keptName is the file that remembers ports and secrets over restarts: sandbox names and sealed dead letters derive from
// the secret, so a new one would orphan them.
const keptName = "keep"

// kept is what an earlier start in the same folder leaves to the next.
type kept struct {
	ports   map[string]int
	secrets map[string]string
}

func readKept(dir string) kept {
	k := kept{ports: map[string]int{}, secrets: map[string]string{}}
	file, err := config.ReadDevFile(filepath.Join(dir, keptName))
	if err != nil {
		return k // the first start here
	}
	env := file.Values
	for name, variable := range map[string]string{"nats": "NATS_URL", "redis": "REDIS_URL", "sprites": "SPRITES_API_URL", "terminal": "TERMINAL_URL"} {
		u, err := url.Parse(env[variable])
		if err != nil {
			continue
		}
		if p, err := strconv.Atoi(u.Port()); err == nil {
			k.ports[name] = p
		}
		if password, ok := u.User.Password(); ok {
			k.secrets[name] = password
		}
	}
	k.secrets["sprites"], k.secrets["SANDBOX_SESSION_SECRET"] = env["SPRITES_API_TOKEN"], env["SANDBOX_SESSION_SECRET"]
	return k
}
