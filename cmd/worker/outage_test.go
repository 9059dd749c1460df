package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// outage is a whole deployment whose provider goes away, its callers, and the operators' command lines.
type outage struct {
	*rig
	inst *instance.Instance
	rand *rand.Rand
	// jobs, rooms: how many commands, in how many conversations. least is how long the provider is away at least.
	jobs, rooms int
	least       time.Duration
	results     map[string]bus.ResultBody // of the first runs
}

// newOutage is small and quick, or, with WAKEBUS_TEST_OUTAGE_JOBS, as long as a real one with the real settings.
func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{jobs: 12, rooms: 4, rand: rand.New(rand.NewPCG(8, 74)), results: map[string]bus.ResultBody{}}
	patience := "3s"
	gate := func(c *lease.Config) {
		c.Gate.FirstBackoff, c.Gate.LastBackoff = 50*time.Millisecond, 400*time.Millisecond
	}
	if v := os.Getenv("WAKEBUS_TEST_OUTAGE_JOBS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		o.jobs, o.rooms, o.least, patience, gate = n, n/10, time.Minute, "20s", func(*lease.Config) {}
	}
	inst, err := instance.Start(t.Context(), instance.Config{
		Workers: 2, Settings: map[string]string{"WAKEBUS_TENANT_BACKLOG": "5000", "WAKEBUS_OUTAGE_PATIENCE": patience},
		Emulator: func(c *emulator.Config) { c.WarmWake, c.ColdWake, c.Idle = -1, -1, time.Hour },
		App:      func(_ int, a *job.AppConfig) { a.Leases = gate },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inst.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := inst.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	env := inst.Env()
	env["USER"] = "olga"
	o.inst, o.rig = inst, &rig{t: t, bus: b, env: env, dir: t.TempDir(), listening: make(chan struct{})}
	return o
}

func (o *outage) room(i int) string { return fmt.Sprintf("room%d", i%o.rooms) }

// publish asks for jobs from to to, and follows them.
func (o *outage) publish(from, to int) []*bus.Reader {
	o.t.Helper()
	order := o.rand.Perm(to - from)
	readers := make([]*bus.Reader, to-from)
	for _, n := range order {
		i := from + n
		id := fmt.Sprintf("out%d", i)
		reader, err := o.bus.Subscribe(o.t.Context(), "dev", id)
		if err != nil {
			o.t.Fatal(err)
		}
		o.t.Cleanup(reader.Close)
		readers[n] = reader
		body, err := json.Marshal(bus.ExecRequest{V: 1, JobID: id, ConversationID: o.room(i), Shell: `echo "$WAKEBUS_JOB" >>ran; echo "$MINE"; cat`,
			Env: map[string]string{"MINE": "env of " + id}, Stdin: []byte("stdin of " + id)})
		if err != nil {
			o.t.Fatal(err)
		}
		header := bus.Header{}
		header.Set(bus.HeaderGrant, fmt.Sprintf(`{"sub":%q}`, id)) // a user each, so that nobody's limit is met
		if _, err := o.bus.Publish(o.t.Context(), bus.KindExec, "dev", header, body); err != nil {
			o.t.Fatal(err)
		}
	}
	return readers
}

// end reads a run to its result, and what it printed. Output that was said to be missing is said instead: a worker that an
// overloaded machine kept from answering loses its run to a peer.
func (o *outage) end(ctx context.Context, reader *bus.Reader) (r bus.ResultBody, stdout string) {
	o.t.Helper()
	for {
		e, err := reader.Next(ctx)
		if err != nil {
			o.t.Fatal(err)
		}
		switch e.Kind { //nolint:exhaustive // the rest is progress
		case bus.EventStdout:
			stdout += string(e.Data)
		case bus.EventGap:
			stdout += gapSaid
		case bus.EventResult:
			if err := json.Unmarshal(e.Data, &r); err != nil {
				o.t.Fatal(err)
			}
			return r, stdout
		}
	}
}

// settle waits for first runs.
func (o *outage) settle(ctx context.Context, from int, readers []*bus.Reader) {
	o.t.Helper()
	for n, reader := range readers {
		id := fmt.Sprintf("out%d", from+n)
		r, out := o.end(ctx, reader)
		o.results[id] = r
		if r.Outcome == plan.OutcomeExited {
			o.printed(id, out)
		}
	}
}

// tally says how the runs that were read so far ended: what to look at first when the sums do not agree.
func (o *outage) tally(which string) {
	o.t.Helper()
	ends := map[string]int{}
	for _, r := range o.results {
		ends[fmt.Sprintf("%s %s %s", r.Outcome, r.Reason, r.Class)]++
	}
	stats, err := o.bus.LetterStats(o.t.Context(), bus.LetterFilter{})
	o.t.Logf("%s: ends %v; dead letters %v (%v)", which, ends, stats.ByClass, err)
}

// gapSaid stands in output for what a gap event said to be missing.
const gapSaid = "(gap)"

func (o *outage) printed(id, out string) {
	o.t.Helper()
	if strings.Contains(out, gapSaid) {
		o.t.Logf("%s: a take-over lost output and said so", id)
		return
	}
	if want := "env of " + id + "\nstdin of " + id; out != want {
		o.t.Errorf("%s printed %q, want %q", id, out, want)
	}
}

// operate runs one operator's command line to its end, however long that takes.
func (o *outage) operate(ctx context.Context, who string, args ...string) ended {
	env := map[string]string{}
	for k, v := range o.env {
		env[k] = v
	}
	env["USER"] = who
	r := &rig{t: o.t, env: env, dir: o.dir, listening: make(chan struct{})}
	var out, err lockedBuffer
	code := run(ctx, r.cli(strings.NewReader(""), &out, &err), args)
	return ended{code, out.String(), err.String()}
}

// ran counts, over all sandboxes, how often each job's command ran: the sandboxes' own word.
func (o *outage) ran(ctx context.Context) map[string]int {
	o.t.Helper()
	count := map[string]int{}
	for i := range min(o.rooms, o.jobs) {
		got, err := o.bus.FileRead(ctx, "dev", nil, bus.FileReadParams{ConversationID: o.room(i), Path: "ran"})
		if err != nil {
			o.t.Fatal(err)
		}
		for line := range strings.Lines(string(got.Data)) {
			count[strings.TrimSpace(line)]++
		}
	}
	return count
}

// The provider goes away under many jobs. Those that come early end as dead letters, because it stays away for longer than
// they are patient; those that come late succeed once it is back. Canaries that fail keep the rest from being touched while
// it is away; afterwards two operators replay all, each record once, and every command has run exactly once with its own
// environment and stdin.
func TestAnOutageEndsInDeadLettersAndLateSuccessesAndEachCommandRunsOnce(t *testing.T) {
	o := newOutage(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+40*o.least)
	defer cancel()
	if err := o.inst.Emulator().AddFaults(emulator.Fault{Do: emulator.FaultStatus, Status: 503}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	early := o.jobs * 3 / 4
	o.settle(ctx, 0, o.publish(0, early))
	o.tally("early")
	asked := o.inst.Emulator().Count("*", "")
	t.Logf("%d jobs ended after %s; the provider was asked %d times", early, time.Since(began).Round(time.Millisecond), asked)
	// Four tries in each of six attempts would be the calls without a breaker.
	if asked >= early*4 {
		t.Errorf("the provider was asked %d times by %d jobs: no breaker", asked, early)
	}
	o.canaries(ctx, early)

	late := o.publish(early, o.jobs)
	for _, reader := range late {
		o.waits(ctx, reader)
	}
	select { // an outage has a length; nothing waits for its end
	case <-time.After(o.least - time.Since(began)):
	case <-ctx.Done():
	}
	o.inst.Emulator().ClearFaults()
	back := time.Now()
	o.settle(ctx, early, late)
	t.Logf("the provider was away for %s; late jobs ended %s after it was back", back.Sub(began).Round(time.Millisecond), time.Since(back).Round(time.Millisecond))
	o.tally("all")
	dead, succeeded := o.account(ctx)
	t.Logf("%d dead letters, %d succeeded late", dead, succeeded)
	if dead < early || dead+succeeded != o.jobs {
		t.Errorf("%d dead letters and %d successes of %d jobs", dead, succeeded, o.jobs)
	}

	o.replayAll(ctx, dead)
	counts := o.ran(ctx)
	for i := range o.jobs {
		if id := fmt.Sprintf("out%d", i); counts[id] != 1 {
			t.Errorf("%s ran %d times", id, counts[id])
		}
	}
}

// canaries replays a few while the provider is away.
func (o *outage) canaries(ctx context.Context, dead int) {
	o.t.Helper()
	got := o.operate(ctx, "olga", "dlq", "replay", "--class", "provision_unavailable", "--canary", "3", "--yes", "--json")
	if want := fmt.Sprintf("stopped: 3 of 3 canaries did not end well; %d records were not touched", dead-3); got.code != 1 || !strings.Contains(got.err, want) {
		o.t.Fatalf("canaries during the outage: %s", got)
	}
	replayed := 0
	summaries, err := o.bus.LetterSummaries(ctx, bus.LetterFilter{})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, s := range summaries {
		replayed += s.Run
	}
	if len(summaries) != dead || replayed != 3 {
		o.t.Errorf("%d dead letters, %d replays", len(summaries), replayed)
	}
}

// waits reads a run until it is held back, or dead already.
func (o *outage) waits(ctx context.Context, reader *bus.Reader) {
	o.t.Helper()
	for {
		e, err := reader.Next(ctx)
		if err != nil {
			o.t.Fatal(err)
		}
		if e.Kind == bus.EventWaiting {
			return
		}
	}
}

// account compares each job's result with its dead letter.
func (o *outage) account(ctx context.Context) (dead, succeeded int) {
	o.t.Helper()
	summaries, err := o.bus.LetterSummaries(ctx, bus.LetterFilter{})
	if err != nil {
		o.t.Fatal(err)
	}
	letters := map[string]bool{}
	for _, s := range summaries {
		letters[s.ID.Job] = true
	}
	for id, r := range o.results {
		switch {
		case r.Outcome == plan.OutcomeExited && *r.ExitCode == 0 && !letters[id]:
			succeeded++
		case r.Outcome == plan.OutcomeFailed && r.Reason == plan.ReasonProvisionFailed && letters[id]:
			dead++
		default:
			o.t.Errorf("%s ended as %s %s, dead letter: %t", id, r.Outcome, r.Reason, letters[id])
		}
	}
	return dead, succeeded
}

// replayAll lets two operators replay everything at once.
func (o *outage) replayAll(ctx context.Context, dead int) {
	o.t.Helper()
	began := time.Now()
	var mu sync.Mutex // protects started
	started := map[string]int{}
	var group sync.WaitGroup
	for _, who := range []string{"ann", "ben"} {
		group.Go(func() {
			got := o.operate(ctx, who, "dlq", "replay", "--class", "provision_unavailable", "--canary", "2", "--rate", "100/s",
				"--stop-on-failure", "20%", "--wait", "--yes", "--json")
			if got.code != 0 {
				o.t.Errorf("%s: %s", who, got)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, done := range lines[letterDone](o.t, got.out) {
				if done.State == string(bus.LetterReplaying) {
					started[done.ID]++
				}
			}
		})
	}
	group.Wait()
	o.t.Logf("%d replays ended after %s", len(started), time.Since(began).Round(time.Millisecond))
	for id, n := range started {
		if n != 1 {
			o.t.Errorf("%s was replayed %d times", id, n)
		}
	}
	stats, err := o.bus.LetterStats(ctx, bus.LetterFilter{})
	if err != nil || len(started) != dead || stats.ByState[bus.LetterResolved] != dead || stats.ByState[bus.LetterDead]+stats.ByState[bus.LetterReplaying] != 0 {
		o.t.Errorf("%d of %d replayed; states %v (%v)", len(started), dead, stats.ByState, err)
	}
	for id, r := range o.results {
		if r.Outcome != plan.OutcomeFailed {
			continue
		}
		letter, err := o.bus.Letter(ctx, bus.LetterID{Tenant: "dev", Job: id})
		if err != nil {
			o.t.Fatal(err)
		}
		if letter.State != bus.LetterResolved { // counted above; its last run may well be the one that failed in the outage
			continue
		}
		reader, err := o.bus.Subscribe(ctx, "dev", id, bus.ReadRun(letter.Run))
		if err != nil {
			o.t.Fatal(err)
		}
		replayed, out := o.end(ctx, reader)
		reader.Close()
		if replayed.Outcome != plan.OutcomeExited {
			o.t.Errorf("%s: replay ended as %s %s", id, replayed.Outcome, replayed.Reason)
		}
		o.printed(id, cmp.Or(out, "nothing"))
	}
}
