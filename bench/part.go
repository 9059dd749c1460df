package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// part is one section's findings and what they hold for, as they are kept.
type part struct {
	Section  string        `json:"section"`
	Scale    float64       `json:"scale"`
	Deep     int           `json:"deep"`
	Revision string        `json:"revision"`
	Began    time.Time     `json:"began"`
	Took     time.Duration `json:"took"`
	// Load is the machine's load average before and after; Others the share of it that other processes used meanwhile.
	Load     [2]string `json:"load"`
	Others   float64   `json:"others"`
	Findings findings  `json:"findings"`
}

func (o options) partFile(section string) string { return filepath.Join(o.results, section+".json") }

// keep writes a section's part, whole or not at all.
func (o options) keep(p part) error {
	data, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return fmt.Errorf("keep %s: %w", p.Section, err)
	}
	if err := os.MkdirAll(o.results, 0o755); err != nil {
		return fmt.Errorf("keep %s: %w", p.Section, err)
	}
	return replaceFile(o.partFile(p.Section), data)
}

// kept reads a section's part; false when there is none of this size.
func (o options) kept(section string) (part, bool, error) {
	data, err := os.ReadFile(o.partFile(section))
	if errors.Is(err, fs.ErrNotExist) {
		return part{}, false, nil
	}
	var p part
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		return part{}, false, fmt.Errorf("read the part %s: %w", section, err)
	}
	return p, p.Scale == o.scale && p.Deep == o.deep, nil
}

func (o options) forget(section string) error {
	err := os.Remove(o.partFile(section))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// add takes a part's findings in. Sections fill different tables and figures.
func (b *book) add(p part) error {
	data, err := json.Marshal(p.Findings)
	if err == nil {
		err = json.Unmarshal(data, &b.findings)
	}
	if err != nil {
		return fmt.Errorf("add %s: %w", p.Section, err)
	}
	b.parts = append(b.parts, p)
	return nil
}

// meter tells how much of the machine others use while a section is measured.
type meter struct {
	busy, own time.Duration
	at        time.Time
	load      string
}

func startMeter() meter { return meter{busyTime(), ownTime(), time.Now(), load()} }

// others is the share of all cores, in percent. Children count as ours once they have ended.
func (m meter) others() float64 {
	span := time.Since(m.at) * time.Duration(runtime.NumCPU())
	return max(0, 100*float64((busyTime()-m.busy)-(ownTime()-m.own))/float64(span))
}

// busyTime is the processor time that the machine has spent on processes (proc(5), stat: all but idle, iowait and what
// guests have in it already).
func busyTime() time.Duration {
	line := firstLine("/proc/stat")
	var ticks int64
	for i, f := range strings.Fields(strings.TrimPrefix(line, "cpu")) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err == nil && (i < 3 || i >= 5 && i < 8) {
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func ownTime() time.Duration {
	var sum int64
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			sum += u.Utime.Nano() + u.Stime.Nano()
		}
	}
	return time.Duration(sum)
}

func load() string {
	fields := strings.Fields(firstLine("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// revision is the repository's commit, with a mark when files differ from it.
func revision(root string) string {
	id := version("git", "-C", root, "rev-parse", "--short=12", "HEAD")
	if version("git", "-C", root, "status", "--porcelain", "--untracked-files=no") != "" {
		id += " and changes"
	}
	return id
}
