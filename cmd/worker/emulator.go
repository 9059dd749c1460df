package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// emulatorFlags are the flags of `worker emulator`.
type emulatorFlags struct {
	addr, tokenFile, wake, attach, offset, faults, isolation, mutation, dir string
	fault                                                                   []string
	idle, coldAfter                                                         time.Duration
	createLimit, runningLimit                                               int
	seed                                                                    int64
	instant, control, documented, verbose                                   bool
}

func newEmulatorCmd(c *cli) *cobra.Command {
	var f emulatorFlags
	cmd := &cobra.Command{
		Use:   "emulator",
		Short: "Run the Sprites emulator alone",
		Long: `Run the Sprites emulator alone, on loopback. Two lines on standard output say where it is and its token; then it is
silent. Under /_emulator/ on the same port and with the same token: GET calls, POST and DELETE faults, POST
sprites/NAME/sleep, cold and kill.`,
		Example: "  worker emulator --addr 127.0.0.1:0 --idle 5s\n  worker emulator --faults faults.json --seed 7\n" +
			`  worker emulator --fault '{"route":"exec.ws","do":"drop","probability":0.1}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.runEmulator(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.addr, "addr", "127.0.0.1:0", "loopback address to listen on; port 0 takes a free one")
	fs.StringVar(&f.tokenFile, "token-file", "", "file with the token; a random one without it")
	fs.StringVar(&f.dir, "dir", "", "keep sprites and their files here over restarts; a temporary folder without it")
	fs.DurationVar(&f.idle, "idle", 30*time.Second, "how long a sprite without activity stays running")
	fs.DurationVar(&f.coldAfter, "cold-after", 5*time.Minute, "how long a sprite stays warm")
	fs.StringVar(&f.wake, "wake", "300ms,1.5s", "how long a warm and a cold sprite take to wake")
	fs.IntVar(&f.createLimit, "create-limit", 0, "sprites that may be created in a minute; 0 = no limit")
	fs.IntVar(&f.runningLimit, "running-limit", 0, "sprites that may run at once; 0 = no limit")
	fs.StringVar(&f.attach, "attach", "exact", "how an attach replays: exact or merged")
	fs.StringVar(&f.offset, "offset", "off", "honour output_offset on attach: on or off")
	fs.StringVar(&f.faults, "faults", "", "file with faults, JSON")
	fs.StringArrayVar(&f.fault, "fault", nil, "one more fault, JSON; may be repeated")
	fs.Int64Var(&f.seed, "seed", 0, "seed of the faults' probabilities")
	fs.StringVar(&f.isolation, "isolation", "auto", "auto, namespace or mapped")
	fs.BoolVar(&f.control, "control", false, "offer the control channel; otherwise it answers 404")
	fs.BoolVar(&f.documented, "documented", false, "behave as documented where the live service was seen to differ")
	fs.StringVar(&f.mutation, "mutation", "", "break the protocol on purpose: "+strings.Join(mutationNames(), ", "))
	fs.BoolVar(&f.instant, "instant", false, "answer a few commands without starting a process, for benchmarks")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "log to standard error")
	return cmd
}

func (c *cli) runEmulator(ctx context.Context, f emulatorFlags) error {
	cfg, err := f.config()
	if err != nil {
		return err
	}
	level := config.LevelWarn
	if f.verbose {
		level = config.LevelDebug
	}
	cfg.Logger = telemetry.NewLog(telemetry.LogConfig{Output: c.err, Level: level, Service: "emulator"}).Logger
	server, err := emulator.New(cfg)
	if errors.Is(err, emulator.ErrConfig) {
		return usage("%w", err)
	}
	if err != nil {
		return err
	}
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	if err := server.Start(ctx); err != nil {
		return errors.Join(err, server.Close())
	}
	fmt.Fprintf(c.out, "SPRITES_API_URL=%s\nSPRITES_API_TOKEN=%s\n", server.URL(), server.Token())
	return server.Run(ctx)
}

// config turns the flags into the emulator's configuration; all that is wrong is said at once.
func (f emulatorFlags) config() (emulator.Config, error) {
	cfg := emulator.Config{
		Addr: f.addr, Dir: f.dir, Idle: f.idle, ColdAfter: f.coldAfter, CreateLimit: f.createLimit,
		RunningLimit: f.runningLimit, Attach: emulator.AttachMode(f.attach), Seed: f.seed, Instant: f.instant,
		Isolation: emulator.IsolationMode(f.isolation), Offset: f.offset == "on",
		Control: f.control, Documented: f.documented, Mutation: emulator.Mutation(f.mutation),
	}
	var errs []error
	if f.offset != "on" && f.offset != "off" {
		errs = append(errs, errors.New("--offset must be on or off"))
	}
	warm, cold, ok := strings.Cut(f.wake, ",")
	var errWarm, errCold error
	cfg.WarmWake, errWarm = config.ParseDuration(warm)
	cfg.ColdWake, errCold = config.ParseDuration(cold)
	if !ok || errWarm != nil || errCold != nil || cfg.WarmWake < 0 || cfg.ColdWake < 0 {
		errs = append(errs, errors.New("--wake must be two durations, such as 300ms,1.5s"))
	}
	// The emulator takes zero for "default" and a negative wake for none.
	if cfg.WarmWake == 0 {
		cfg.WarmWake = -1
	}
	if cfg.ColdWake == 0 {
		cfg.ColdWake = -1
	}
	if f.tokenFile != "" {
		data, err := os.ReadFile(f.tokenFile)
		cfg.Token = strings.TrimSpace(string(data))
		if err != nil || cfg.Token == "" {
			errs = append(errs, errors.New("--token-file cannot be read or is empty"))
		}
	}
	faults, err := f.rules()
	if err != nil {
		errs = append(errs, err)
	}
	cfg.Faults = faults
	if err := errors.Join(errs...); err != nil {
		return cfg, usage("%w", err)
	}
	return cfg, nil
}

// rules are the faults of the file and of the flags, in this order.
func (f emulatorFlags) rules() ([]emulator.Fault, error) {
	var rules []emulator.Fault
	var errs []error
	if f.faults != "" {
		faults, err := readFaults(f.faults)
		rules, errs = append(rules, faults...), append(errs, err)
	}
	for _, text := range f.fault {
		faults, err := emulator.ParseFaults(strings.NewReader(text))
		if err != nil {
			err = fmt.Errorf("--fault %s: %w", text, err)
		}
		rules, errs = append(rules, faults...), append(errs, err)
	}
	return rules, errors.Join(errs...)
}

func mutationNames() []string {
	var names []string
	for _, m := range emulator.Mutations() {
		names = append(names, string(m))
	}
	return names
}

// readFaults reads a file of emulator faults.
func readFaults(path string) ([]emulator.Fault, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	defer file.Close()
	faults, err := emulator.ParseFaults(file)
	if err != nil {
		return nil, fmt.Errorf("read faults %s: %w", path, err)
	}
	return faults, nil
}
