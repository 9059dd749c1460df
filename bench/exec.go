package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/bench"
)

// compareExec runs true one after another: our client, Wakebus, the official SDK, on one emulator.
func compareExec(ctx context.Context, b *book) error {
	cells := map[string][]string{}
	for _, mode := range []struct {
		emulator bench.EmulatorMode
		runs     int
	}{{bench.EmulatorInstant, b.n(300, 10)}, {bench.EmulatorReal, b.n(100, 5)}} {
		err := withCaller(ctx, bench.RigConfig{Emulator: mode.emulator}, func(rig *bench.Rig, c *bench.Caller) error {
			direct, through, sdk, err := execThreeWays(ctx, b, rig, c, mode.runs)
			if err != nil {
				return err
			}
			for row, v := range map[string]float64{"our client alone": direct, "through Wakebus": through, "official SDK for Node": sdk} {
				cells[row] = append(cells[row], f2(v), ratio(v, direct))
			}
			b.say("an exec through Wakebus takes %s times the client alone, the official SDK %s times (emulator %s)",
				ratio(through, direct), ratio(sdk, direct), mode.emulator)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for row, c := range cells {
		b.row("exec", row, c...)
	}
	return nil
}

// execThreeWays gives the mean milliseconds of a run.
func execThreeWays(ctx context.Context, b *book, rig *bench.Rig, c *bench.Caller, runs int) (direct, through, sdk float64, err error) {
	t := rig.Target()
	d, err := bench.NewDirect(ctx, t.SpritesURL, t.SpritesToken, "box", "x")
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { _ = d.Close(ctx) }()
	var sumDirect, sumThrough time.Duration
	for i := range runs + 1 { // the first is the warm-up
		took, _, err := d.Exec(ctx, "true")
		if err != nil {
			return 0, 0, 0, err
		}
		s, err := c.Exec(ctx, bench.Job{Argv: []string{"true"}, Conversation: "c0", User: "u0"})
		if err != nil {
			return 0, 0, 0, err
		}
		if i > 0 {
			sumDirect, sumThrough = sumDirect+took, sumThrough+s.Result
		}
	}
	perRun := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(runs) }
	took, err := runSDK(ctx, b, t, runs)
	return perRun(sumDirect), perRun(sumThrough), perRun(took), err
}

// runSDK times the official SDK under the Node that the emulator's own checks install.
func runSDK(ctx context.Context, b *book, t bench.Target, runs int) (time.Duration, error) {
	folder, err := filepath.Abs(filepath.Join(b.opt.root, "internal/sprites/emulator/sdk/node_modules"))
	if err != nil {
		return 0, err
	}
	script, err := filepath.Abs(filepath.Join(b.opt.root, "internal/sprites/testdata/sdk.mjs"))
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(folder, ".bin/node"), script, filepath.Join(folder, "@fly/sprites"), "true", strconv.Itoa(runs))
	cmd.Env = append(os.Environ(), "EMULATOR_URL="+t.SpritesURL, "EMULATOR_TOKEN="+t.SpritesToken)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("run the official SDK (npm ci in internal/sprites/emulator/sdk installs it): %w", err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the SDK's time: %w", err)
	}
	return time.Duration(ns), nil
}
