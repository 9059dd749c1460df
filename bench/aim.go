package main

import (
	"fmt"
	"runtime"
)

// aim is one of the goals that the project set itself, and how it stands.
type aim struct {
	text, value string
	met         bool
	reason      string // why it was missed
}

// aims judges every goal by what was measured. A missed one stands as missed, with the reason.
func (b *book) aims() []aim {
	cores := float64(runtime.NumCPU())
	busy := fmt.Sprintf("A job takes %.2f ms of processor time in this process, so %d cores hold at most %.0f of them a second; the emulator and the caller, "+
		"which a deployment has elsewhere, are in that.", b.job.CPUMsPerJob, runtime.NumCPU(), cores*1000/max(b.job.CPUMsPerJob, 0.001))
	p50, p99, added := b.job.EnqueueStarted.P50, b.job.EnqueueStarted.P99, b.job.Added.P50
	share := b.output.job / max(b.output.bare, 0.001)
	slower := 1 - b.depth.after/max(b.depth.before, 0.001)
	moved := b.noisy.after/max(b.noisy.before, 0.001) - 1
	grew := b.output.peak / max(b.output.smallPeak, 0.001)
	all := []aim{
		{"enqueue to started, p50 at 10 jobs/s: at most 5 ms", f2(p50) + " ms", p50 <= 5,
			"It is a chain of round trips, one after another: claim, cancel marks, lease, link, Sprite, planned, dialing, dial, started. Each waits for a processor when the machine is busy."},
		{"enqueue to started, p99 at 10 jobs/s: at most 25 ms", f2(p99) + " ms", p99 <= 25,
			"The tail is waiting for a processor and for the disk: broker, Redis, worker, emulator and caller share this machine."},
		{"one worker process, 32 slots, real Redis: at least 1,000 jobs/s", f0(b.job.JobsPerSecond) + " jobs/s", b.job.JobsPerSecond >= 1000, busy},
		{"added over a direct exec, p50: at most 3 ms", f2(added) + " ms", added <= 3,
			"What is added is the journal's five events, the lease, the read of the link and of the Sprite, and the way through the queue: some twelve round trips."},
		{"output: at least 0.8 of a bare WebSocket", ratio(b.output.job, b.output.bare), share >= 0.8,
			"Every byte is read from the WebSocket, stored in a stream on disk, and sent again to the caller by a broker on the same cores, and one chunk of at most 64 KiB is under way at a time, since each names the one before it; the bare WebSocket crosses loopback once."},
		{"memory flat while output streams (four times the output, at most 1.25 times the peak)", fmt.Sprintf("%.2f times", grew), grew <= 1.25,
			"The peak is of the whole process, the broker's cache of what it stored included, which the server lets go after a while."},
		{"idle worker: at most 40 MiB", f1(b.process.idleMiB) + " MiB", b.process.idleMiB <= 40, "The binary also holds the embedded broker, the emulator and the terminal gateway's parts."},
		{"start to ready: at most 500 ms", f0(float64(b.process.ready.Milliseconds())) + " ms", b.process.ready.Milliseconds() <= 500,
			"A start checks every stream and consumer, one round trip each, and waits for a processor like everything else."},
		{"take-over after a worker's death: at most 10 s", f1(b.process.takeover.Seconds()) + " s", b.process.takeover.Seconds() <= 10,
			"The broker gives the request away 9 s after the last sign of life, and the peer must be pulling then."},
		{"a deep queue slows the next jobs by at most 10 %", fmt.Sprintf("%.0f %% slower", 100*slower), slower <= 0.10,
			"Acks in a deep work queue leave holes in its blocks, which the broker tidies while the jobs run."},
		{"one noisy tenant moves ten quiet ones' p99 by at most 20 %", fmt.Sprintf("%+.0f %%", 100*moved), moved <= 0.20,
			"All tenants stand in one queue, first come first served. A tenant's backlog (100) bounds how long it can hold others up: to the time that 100 jobs take, which is what is seen here. Strict fairness needs a queue for each group of tenants."},
		{"sync always is shown beside it", fmt.Sprintf("%s times slower", ratio(b.job.JobsPerSecond, b.sync.JobsPerSecond)), b.sync.JobsPerSecond > 0, ""},
	}
	// A figure that is not there must not pass for a small one.
	known := []bool{p50 > 0, p99 > 0, b.job.JobsPerSecond > 0, b.job.Added.P50 != 0, b.output.job > 0, b.output.smallPeak > 0, b.process.idleMiB > 0,
		b.process.ready > 0, b.process.takeover > 0, b.depth.after > 0, b.noisy.after > 0, b.sync.JobsPerSecond > 0}
	for i := range all {
		if !known[i] {
			all[i] = aim{text: all[i].text, value: "-", reason: "It was not measured in this run."}
		}
	}
	return all
}
