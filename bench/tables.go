package main

// latencyHead is the head of a table of distributions.
var latencyHead = []string{"ms", "p50", "p90", "p99", "max"}

// The rows that more than one place names.
const (
	rowStarted = "enqueue to started"
	rowResult  = "enqueue to result"
	rowDirect  = "the same exec through the client alone"
	rowAdded   = "added by Wakebus, pair by pair"
	rowLease   = "a lease of three scopes, taken and given back"
	rowHeard   = "output: printed to heard by the caller"
	rowOutput  = "output: added by Wakebus, pair by pair"
)

var latencyRows = []string{rowStarted, rowResult, rowDirect, rowAdded, rowHeard, rowOutput, rowLease}

// tables are all tables of the document, with every row that must be there.
var tables = []table{
	{id: "latency", title: "A job's way, emulator instant", head: latencyHead, rows: latencyRows,
		text: "Jobs sent at 10 a second, one process, `true` in a sandbox that is known and awake. Broker and Redis with their default sync."},
	{id: "latency-real", title: "A job's way, emulator real", head: latencyHead, rows: latencyRows,
		text: "The same with a process for every command: both the job and the direct exec run under the guard, which costs the sandbox some\nmilliseconds of its own (a shell, a file and a `sleep`)."},
	{id: "latency-sync", title: "A job's way, sync always", head: latencyHead, rows: latencyRows,
		text: "Emulator instant, and the broker with `sync_interval: always`, Redis with `appendfsync always`: every message is on the disk before it is answered."},
	{id: "throughput", title: "Throughput and cost", head: []string{"", "instant", "real", "instant, sync always"},
		text: "One worker with 32 slots, 64 jobs in flight, everything in one process but Redis. The processor time is that of the whole process: worker,\nbroker, emulator and caller. NATS messages count both ways and all clients, the caller's share included.",
		rows: []string{"jobs a second", "p99 of a job then, ms", "output of one job, MB/s", "processor per job, ms", "processor per job in Redis, ms", "NATS messages per job", "messages stored per job",
			"bytes kept per job", "Redis calls per job", "Sprites calls per job", "peak memory, MiB"}},
	{id: "process", title: "A worker process", head: []string{"", "value"},
		text: "`worker run`, as production starts it, beside the broker, the emulator and the caller in another process. The take-over is from `kill -9` of the\nowner to the peer's `taken_over`; the broker gives a silent owner's request away after 9 s.",
		rows: []string{"start to ready, ms", "memory when idle, MiB", "processor when idle, % of a core", "take-over after a kill, s", "memory after the load, MiB", "processor per job in the worker, ms"}},
	{id: "exec", title: "(a) An exec of true", head: []string{"ms a run, one after another", "instant", "ratio", "real", "ratio"},
		text: "On one emulator each. Through Wakebus means from the publish to the result. The official SDK for Node (`@fly/sprites`) has no guard, so it starts one process where ours start three.",
		rows: []string{"our client alone", "through Wakebus", "official SDK for Node"}},
	{id: "queue", title: "(b) No-op jobs a second beside queues", head: []string{"jobs/s", "no fsync per job", "ratio to Wakebus", "fsync per job", "ratio to Wakebus"},
		text: "32 jobs at once in all. Ours run `true` in the instant emulator: lease, journal of five events, exec, output and audit included. Theirs call an empty\nfunction: they are a queue, and what they do not do is the difference. Wakebus without fsync is the broker's default (a sync every two minutes), PostgreSQL's is `synchronous_commit=off`.\nOurs are sent closed loop with 64 in flight; theirs are inserted by 16 producers while the workers run, and timed to the last one's end.",
		rows: []string{"Wakebus, workers in one process", "Wakebus, two worker processes", "asynq, workers in one process", "asynq, two worker processes", "river, workers in one process", "river, two worker processes"}},
	{id: "output", title: "(c) Output through a job", head: []string{"", "MB/s", "ratio", "peak memory, MiB"},
		text: "256 MiB (at full size) that one command prints, from the same emulator each. The bare WebSocket reads the exec socket and throws away what comes; our client alone\ndoes what a job's does with the socket. The job's output goes on from there: worker, stream on disk, and from the stream to the caller. The median of three, in turn.",
		rows: []string{"bare WebSocket", "our client alone", "one job, a quarter of it", "one job"}},
	{id: "lease", title: "(d) Leases beside lock libraries", head: []string{"pairs/s", "1 at once", "ratio", "16 at once", "ratio", "64 at once", "ratio"},
		text: "Taken and given back on one real Redis. The ratio is the lease of three scopes over this; only that one counts to a limit, tells who holds, and stands in a line.",
		rows: []string{"lease-3-scopes", "lease-1-scope", "redsync-1-mutex", "redislock-1-mutex", "redislock-3-in-turn"}},
	{id: "floor", title: "(e) The floor: publish, pull, ack", head: []string{"", "default sync", "sync always"},
		text: "A work queue stream on disk with nothing in it but the message, on the same embedded broker. No job can be quicker than this.",
		rows: []string{"one at a time, p50 ms", "one at a time, p99 ms", "32 at a time, messages/s"}},
	{id: "concurrency", title: "Concurrent jobs", head: []string{"in flight", "jobs/s", "p50 ms", "p99 ms", "processor per job, ms"},
		text: "One worker, 32 slots, everything in one process.", rows: []string{"1", "2", "4", "8", "16", "32"}},
	{id: "depth", title: "Waiting jobs", head: []string{"waiting, at full size", "here, with the timed", "jobs/s of the first", "ratio"},
		text: "Requests are queued while no worker runs; then one starts, and the first of them are timed. `WAKEBUS_TENANT_BACKLOG` and `WAKEBUS_QUEUE_BYTES` are raised for it.",
		rows: []string{"0", "10,000", "1,000,000"}},
	{id: "conversations", title: "Conversations", head: []string{"conversations in turn", "jobs/s", "ratio", "p99 ms"},
		text: "Each has a sandbox of its own, made before and resumed by the timed jobs.", rows: []string{"1", "100", "1,000", "10,000"}},
	{id: "history", title: "History in the reply streams", head: []string{"stored before", "jobs/s", "ratio", "enqueue to started p50 ms"},
		text: "Half of them state events, half output, of jobs that have ended: what 28,000 jobs a day leave in 24 h.", rows: []string{"nothing", "200,000 events"}},
	{id: "noisy", title: "One noisy tenant beside ten quiet ones", head: []string{"quiet tenants' jobs", "p50 ms", "p99 ms", "ratio of p99", "noisy tenant's jobs/s"},
		text: "Ten tenants send five jobs a second each; the noisy one keeps 100 requests under way, which is the default backlog of a tenant, all within its limits, on one worker\nwith 32 slots. An eighth of the slots is kept for tenants below their share.",
		rows: []string{"alone", "beside commands of 200 ms (it takes slots)", "beside no-op commands (it takes the processor)"}},
}
