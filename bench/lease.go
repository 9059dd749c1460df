package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// pairLine is a line of the comparison in internal/lease/compare.
var pairLine = regexp.MustCompile(`goroutines=(\d+)\s+(\S+)\s+(\d+) pairs/s\s+lease of 3 scopes / this = ([0-9.]+)`)

// compareLeases runs the comparison that stands beside the lease, with the lock libraries in a module of their own.
func compareLeases(ctx context.Context, b *book) error {
	period := max(time.Duration(float64(400*time.Millisecond)*b.opt.scale), 50*time.Millisecond)
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-run", "TestPairsPerSecond", "-v", ".", "-rounds", "3", "-period", period.String())
	cmd.Dir = filepath.Join(b.opt.root, "internal/lease/compare")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("compare leases: %w: %s", err, out)
	}
	cells := map[string][]string{}
	for _, m := range pairLine.FindAllSubmatch(out, -1) {
		name := string(m[2])
		r, err := strconv.ParseFloat(string(m[4]), 64)
		if err != nil {
			return err
		}
		cells[name] = append(cells[name], string(m[3]), f2(r))
	}
	for name, c := range cells {
		if len(c) != 6 {
			return fmt.Errorf("the comparison printed %d of 6 figures for %s", len(c), name)
		}
		b.row("lease", name, c...)
	}
	if c := cells["redislock-3-in-turn"]; len(c) == 6 {
		b.say("a lease of three scopes is %s times as quick as three redislocks in turn (16 at once)", c[3])
	}
	return nil
}
