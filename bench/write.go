package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// write makes the whole document and puts it in place at once.
func (b *book) write(path string) error {
	var doc bytes.Buffer
	b.document(&doc)
	return replaceFile(path, doc.Bytes())
}

// replaceFile writes a file, whole or not at all.
func replaceFile(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".bench-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = temp.Write(data)
	if cerr := temp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(temp.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func (b *book) document(w io.Writer) {
	fmt.Fprintf(w, "# Performance\n\nWritten by `bench/run.sh` on %s; do not edit. Every figure holds for the configuration that is named beside it.\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	b.machine(w)
	b.judged(w)
	fmt.Fprint(w, "\n## Jobs\n")
	b.some(w, "latency", "latency-real", "latency-sync", "throughput", "process")
	fmt.Fprintf(w, "\nIn real mode a direct exec takes %s ms at the median where in instant mode it takes %s ms: that is the guard and the processes, which the client\nalone pays as well. What Wakebus adds to it is %s ms (instant: %s ms).\n",
		f2(b.Real.ExecDirect.P50), f2(b.Job.ExecDirect.P50), f2(b.Real.Added.P50), f2(b.Job.Added.P50))
	b.profiled(w)
	fmt.Fprint(w, "\n## Beside what you would pick instead\n")
	var said []string
	for _, s := range sections {
		said = append(said, b.Said[s.name]...)
	}
	if len(said) > 0 {
		fmt.Fprintf(w, "\nIn short:\n\n- %s.\n", strings.Join(said, ".\n- "))
	}
	b.some(w, "exec", "queue", "output", "lease", "floor")
	fmt.Fprint(w, "\n## How it grows\n\nThe cost of a job must stay flat in each of these; where it does not, the ratio says so.\n")
	b.some(w, "concurrency", "depth", "conversations", "history", "noisy")
	b.capacity(w)
	if len(b.failures) > 0 {
		fmt.Fprintf(w, "\n## What failed in this run\n\n- %s\n", strings.Join(b.failures, "\n- "))
	}
}

// some prints tables by their id.
func (b *book) some(w io.Writer, ids ...string) {
	for _, id := range ids {
		for _, t := range tables {
			if t.id == id {
				b.printTable(w, t)
			}
		}
	}
}

func (b *book) machine(w io.Writer) {
	commands := "bench/run.sh"
	if b.opt.scale != 1 {
		commands += fmt.Sprintf(" --scale %g", b.opt.scale)
	}
	fmt.Fprint(w, "\n## Machine and commands\n\n| | |\n|---|---|\n")
	for _, l := range [][2]string{
		{"processor", fmt.Sprintf("%d cores, %s", runtime.NumCPU(), fromFile("/proc/cpuinfo", "model name"))},
		{"memory", fromFile("/proc/meminfo", "MemTotal")},
		{"kernel", firstLine("/proc/sys/kernel/osrelease")},
		{"Go", runtime.Version()},
		{"Redis", version("redis-server", "--version")},
		{"PostgreSQL", postgresVersion()},
		{"sync", "broker: on disk, the server's default interval of 2 minutes; Redis: nothing on disk. Where it says sync always: broker `sync_interval: always`, Redis `appendfsync always`, PostgreSQL `synchronous_commit=on`"},
		{"command", "`" + commands + "`"},
		{"size and time", fmt.Sprintf("scale %g, %d waiting requests at most, took %s", b.opt.scale, b.n(b.opt.deep, 1000), b.took().Round(time.Second))},
		{"one measurement alone", "`worker bench --own [--emulator real] [--sync] [--json]`"},
	} {
		fmt.Fprintf(w, "| %s | %s |\n", l[0], l[1])
	}
	fmt.Fprint(w, "\nEverything runs on this one machine over loopback: broker, Redis, Sprites emulator, workers, and the caller that measures. They take processor time from each\nother, so that a deployment with a machine for each does more.\n")
	b.conditions(w)
}

func (b *book) took() (sum time.Duration) {
	for _, p := range b.parts {
		sum += p.Took
	}
	return sum
}

// quietShare is the share of the machine, in percent, that others may use before figures say more about them than of us.
const quietShare = 10

// conditions tells when each section was measured and what else the machine did meanwhile.
func (b *book) conditions(w io.Writer) {
	fmt.Fprint(w, "\n### Conditions\n\nWhen each section was measured, the machine's load average before and after (our own load included), and how much of all cores other\nprocesses used meanwhile.\n\n| section | began (UTC) | took | load before | load after | used by others | revision |\n|---|---|---|---|---|---|---|\n")
	var loud []string
	for _, p := range b.parts {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %.0f %% | %s |\n", p.Section, p.Began.UTC().Format("2006-01-02 15:04:05"), p.Took.Round(100*time.Millisecond),
			p.Load[0], p.Load[1], p.Others, p.Revision)
		if p.Others > quietShare {
			loud = append(loud, p.Section)
		}
	}
	if len(loud) > 0 {
		fmt.Fprintf(w, "\n**Not a quiet machine:** others used more than %d %% of it during %s. These figures are worse than the machine's own.\n", quietShare, strings.Join(loud, ", "))
	}
}

func (b *book) judged(w io.Writer) {
	fmt.Fprint(w, "\n## Aims\n\n| aim | measured | | |\n|---|---|---|---|\n")
	for _, a := range b.aims() {
		verdict, reason := "met", ""
		if !a.met {
			verdict, reason = "**missed**", a.reason
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", a.text, a.value, verdict, reason)
	}
}

// profiled says what a job's processor time and memory go to, and what was done about it.
func (b *book) profiled(w io.Writer) {
	fmt.Fprint(w, "\n### Where a job's cost goes\n\nThe five largest by processor time and by bytes allocated, of the whole process, 64 jobs in flight.\n")
	printShares(w, b.Profile, b.Allocs)
	fmt.Fprint(w, "\nThe same before the last three changes that the next paragraph names:\n")
	printShares(w, profileBefore, allocsBefore)
	fmt.Fprintf(w, `
A job allocates %s KiB in %s objects; before those three it was %s KiB in %s. What profiles showed and what was done, in the order of size: a buffer
of 64 KiB went with every command's end and was never given back (19 %% of all bytes that a job allocated then); output went out in chunks of 64 KiB,
and the disk, headers and wake-ups of each were half of its processor time (now up to 256 KiB, from a pool of buffers); the guard's script was escaped
anew for every exec's address (6 %%); net/http's transport served each exec's own connection with goroutines and buffers that a socket does not use
(up to a twelfth of a job's processor time, as far as a busy machine let it be told); each request was pulled over a subscription, a goroutine and timers of its own (90 allocations); cancel marks
and link were asked of the leader, one after another, where one server can be asked directly, both marks in one question, beside the lease (220
allocations, two messages, two round trips). What is left at the top is the fresh connection that every exec needs (a kept one could repeat a
handshake unseen, and run a command twice), the broker's own work, and system calls.
`, f0(b.Memory.Bytes/1024), f0(b.Memory.Objects), f0(memoryBefore.Bytes/1024), f0(memoryBefore.Objects))
}

func printShares(w io.Writer, cpu, allocs []profileShare) {
	fmt.Fprint(w, "\n| processor | share | allocation | share |\n|---|---|---|---|\n")
	for i := range 5 {
		line := [4]string{}
		if i < len(cpu) {
			line[0], line[1] = cpu[i].Part, f0(cpu[i].Share)+" %"
		}
		if i < len(allocs) {
			line[2], line[3] = allocs[i].Part, f0(allocs[i].Share)+" %"
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(line[:], " | "))
	}
}

// capacity is the formula for users, and a plan on paper.
func (b *book) capacity(w io.Writer) {
	const (
		jobsADay = 10_000_000
		workers  = 100
		peakTo   = 5.0
		use      = 0.6
		journal  = 48.0 // hours (bus.JournalAge)
	)
	average := jobsADay / 86400.0
	peak := average * peakTo
	cpu := max(b.Process.WorkerCPUMs, 0.001)
	fmt.Fprintf(w, `
## Capacity

What limits it: processor time, first in the worker and the broker; nothing waits for a lock. The floor is physical: five messages must be stored and answered one
after the other before a command may start, and an exec needs a connection of its own.

For short commands, with what this run measured:

- jobs a second and core of a worker = 1000 / processor ms per job = 1000 / %.2f = **%.0f** (worker alone, from two processes at %.0f jobs/s together);
- jobs at once = workers x WAKEBUS_SLOTS; a worker needs slots = jobs a second x seconds that a job lasts;
- NATS = **%.1f** messages a job in and out, plus three for each chunk of output (up to 256 KiB, what was printed while the one before was stored); %.1f are stored, **%.0f bytes** kept without output;
- Redis = **%.1f** script calls a job, %.2f ms of its one core, so about %.0f jobs a second for one Redis, plus a renewal for each running job every 7.5 s;
- Sprites = **%.1f** calls a job whose sandbox is known; a new one takes a create, a policy and a warm-up more;
- terminals are not measured here: one costs a worker nothing once it is open, and the gateway holds one WebSocket on each side of it.

A plan on paper for %d workers and %d jobs a day (not measured; linear from the above):

| | |
|---|---|
| average, and a peak of %.0f times | %.0f and %.0f jobs/s |
| worker cores at %.0f %% use, at the peak | %.1f in all, %.2f for each of %d workers |
| slots for commands of 10 s, at the peak | %.0f, so WAKEBUS_SLOTS=%.0f |
| NATS messages a second, at the peak | %.0f; replicated by three, one server and two copies of each stored one |
| Redis calls a second, at the peak | %.0f for jobs, %.0f renewals; %.0f %% of one Redis core |
| Sprites calls a second, at the peak | %.0f, which the organisation's rate limit must allow |
| kept by the journal and the queue's streams in %.0f h | %.0f GiB without output |
| output kept at 64 KiB a job | %.0f GiB in 24 h |

The journal is kept for 48 h and bounded in bytes, and workers rest when it is %d %% full. At %.0f bytes a job the default of 512 MiB holds about %.0f jobs in
48 h, or %.1f a second; a deployment with more sets WAKEBUS_JOURNAL_BYTES (and WAKEBUS_QUEUE_BYTES, WAKEBUS_OUTPUT_BYTES) first.
`, cpu, 1000/cpu, b.Process.JobsPerS, b.Job.NATSOpsPerJob, b.Job.MessagesPerJob, b.Job.BytesPerJob, b.Job.RedisCallsPerJob, b.Job.RedisCPUMsPerJob,
		1000/max(b.Job.RedisCPUMsPerJob, 0.001), b.Job.SpritesCallsPerJob,
		workers, jobsADay, peakTo, average, peak, use*100, peak*cpu/1000/use, peak*cpu/1000/use/workers, workers,
		peak*10, ceilTo(peak*10/workers*1.3, 8), peak*b.Job.NATSOpsPerJob, peak*b.Job.RedisCallsPerJob, peak*10/7.5, peak*b.Job.RedisCPUMsPerJob/10,
		peak*b.Job.SpritesCallsPerJob, journal, jobsADay*journal/24*b.Job.BytesPerJob/(1<<30), float64(jobsADay)*(64<<10)/(1<<30),
		80, b.Job.BytesPerJob, 0.8*(512<<20)/max(b.Job.BytesPerJob, 1), 0.8*(512<<20)/max(b.Job.BytesPerJob, 1)/(journal*3600))
}

func ceilTo(v, step float64) float64 { return float64(int(v/step)+1) * step }

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "not known"
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// fromFile is the value of the first "key: value" line.
func fromFile(path, key string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "not known"
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "not known"
}

func version(name string, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "none"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

func postgresVersion() string {
	bin, err := postgresBin()
	if err != nil {
		return "none"
	}
	return version(filepath.Join(bin, "postgres"), "--version")
}
