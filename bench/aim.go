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
		"which a deployment has elsewhere, are in that. The profile is flat: no part has more than a fifth, and about a quarter is system calls.", b.Job.CPUMsPerJob, runtime.NumCPU(), cores*1000/max(b.Job.CPUMsPerJob, 0.001))
	p50, p99, added := b.Job.EnqueueStarted.P50, b.Job.EnqueueStarted.P99, b.Job.Added.P50
	share := b.Output.Job / max(b.Output.Bare, 0.001)
	slower := 1 - b.Depth.After/max(b.Depth.Before, 0.001)
	moved := func(g growthFigure) float64 { return g.After/max(g.Before, 0.001) - 1 }
	grew := b.Output.Peak / max(b.Output.SmallPeak, 0.001)
	all := []aim{
		{"enqueue to started, p50 at 10 jobs/s: at most 5 ms", f2(p50) + " ms", p50 <= 5,
			"Timed between its steps, a job spends (p50, ms) 0.8 from the publish to the worker, 0.4 on the claim, 1.1 on lease, marks and link side by side, 1.4 on the Sprite's record and planned, 1.1 on dialing and the socket, 0.3 on started. Each is a round trip that the next must follow, and none waits for a timer, a lock or a batch: ten jobs a second find goroutines and caches cold, and a round trip of a tenth of a ms in a tight loop takes three to five."},
		{"enqueue to started, p99 at 10 jobs/s: at most 25 ms", f2(p99) + " ms", p99 <= 25,
			"Timed between its steps, the tail is in taking the lease and giving it back (p90 5.9 ms each beside a p50 of 1.1 and 0.5, while others used the machine): Redis is another process, which must first get a core."},
		{"one worker process, 32 slots, real Redis: at least 1,000 jobs/s", f0(b.Job.JobsPerSecond) + " jobs/s", b.Job.JobsPerSecond >= 1000, busy},
		{"added over a direct exec, p50: at most 3 ms", f2(added) + " ms", added <= 3,
			"What is added, timed between its steps (p50, ms): the way through the queue 0.8, claim 0.4, lease 1.1 with marks and link beside it, the Sprite's record and planned 1.4, dialing as much as the claim, started 0.3, the lease given back 0.5, and the result 0.6. Most of these follow one another by the order that a run is promised; what might still be overlapped is small (started beside the lease given back)."},
		{"output: at least 0.8 of a bare WebSocket", ratio(b.Output.Job, b.Output.Bare), share >= 0.8,
			"Every byte is read from the WebSocket, sent to the broker, copied and hashed there, written to a file, and sent to the caller, all on the same cores; the bare WebSocket is read once. One chunk of at most 256 KiB is under way at a time, since each names the one before it."},
		{"memory flat while output streams (four times the output, at most 1.25 times the peak)", fmt.Sprintf("%.2f times", grew), grew <= 1.25,
			"The peak is of the whole process, the broker's cache of what it stored included, which the server lets go after a while."},
		{"idle worker: at most 40 MiB", f1(b.Process.IdleMiB) + " MiB", b.Process.IdleMiB <= 40, "The binary also holds the embedded broker, the emulator and the terminal gateway's parts."},
		{"start to ready: at most 500 ms", f0(float64(b.Process.Ready.Milliseconds())) + " ms", b.Process.Ready.Milliseconds() <= 500,
			"A start checks every stream and consumer, one round trip each, and waits for a processor like everything else."},
		{"take-over after a worker's death: at most 10 s", f1(b.Process.Takeover.Seconds()) + " s", b.Process.Takeover.Seconds() <= 10,
			"The broker gives the request away 9 s after the last sign of life, and the peer must be pulling then."},
		{"a deep queue slows the next jobs by at most 10 %", fmt.Sprintf("%.0f %% slower", 100*slower), slower <= 0.10,
			"Acks in a deep work queue leave holes in its blocks, which the broker tidies while the jobs run."},
		{"a noisy tenant whose commands take slots moves ten quiet ones' p99 by at most 20 %", fmt.Sprintf("%+.0f %%", 100*moved(b.Slots)), moved(b.Slots) <= 0.20,
			"A slot is free for them at once; what is left is the processor time of the noisy tenant's own jobs, and of looking past its waiting requests."},
		{"a noisy tenant whose commands take the processor moves ten quiet ones' p99 by at most 20 %", fmt.Sprintf("%+.0f %%", 100*moved(b.Busy)), moved(b.Busy) <= 0.20,
			"It keeps every core of this machine busy within its limits, and each of a quiet job's round trips waits for a core. Slots can be shared out, a processor cannot: more workers, or a smaller limit for the tenant (WAKEBUS_LIMIT_TENANT)."},
		{"sync always is shown beside it", fmt.Sprintf("%s times slower", ratio(b.Job.JobsPerSecond, b.Sync.JobsPerSecond)), b.Sync.JobsPerSecond > 0, ""},
	}
	// A figure that is not there must not pass for a small one.
	known := []bool{p50 > 0, p99 > 0, b.Job.JobsPerSecond > 0, b.Job.Added.P50 != 0, b.Output.Job > 0, b.Output.SmallPeak > 0, b.Process.IdleMiB > 0,
		b.Process.Ready > 0, b.Process.Takeover > 0, b.Depth.After > 0, b.Slots.After > 0, b.Busy.After > 0, b.Sync.JobsPerSecond > 0}
	for i := range all {
		if !known[i] {
			all[i] = aim{text: all[i].text, value: missing, reason: "It was not measured in this run."}
		}
	}
	return all
}
