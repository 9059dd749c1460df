package survival_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/tests/rig"
)

// age takes what a stream holds of a job away, as its age limit does.
func (w *world) age(stream, subject string) {
	w.t.Helper()
	s, err := w.stream().Stream(w.ctx, stream)
	if err == nil {
		err = s.Purge(w.ctx, jetstream.WithPurgeSubject(subject))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// limit sets a stream's size in bytes.
func (w *world) limit(stream string, size func(jetstream.StreamState) int64) {
	w.t.Helper()
	js := w.stream()
	s, err := js.Stream(w.ctx, stream)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxBytes = size(s.CachedInfo().State)
	if _, err := js.UpdateStream(w.ctx, cfg); err != nil {
		w.t.Fatal(err)
	}
}

// read follows a job from its first event to its end.
func (w *world) read(id string) *rig.Job {
	w.t.Helper()
	j, err := w.Follow(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	defer j.Close()
	if err := j.Wait(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	return j
}

// What the same id gets again: within 24 h everything, after that the state events with a gap for the output, and after
// 48 h it is a new job.
func TestARepeatGetsWhatRetentionHasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	req := bus.ExecRequest{JobID: "again", Shell: "echo ran | tee -a /workspace/runs; exit 3"}
	key := bus.RunKey{Tenant: rig.Tenant, Job: "again"}
	w.exited(w.exec(req), 3)
	for _, step := range []struct {
		name   string
		before func()
		out    string
		gaps   int
		runs   int
	}{
		{"at once", func() {}, "ran\n", 0, 1},
		{"after 24 h", func() { w.age(bus.StreamOutput, key.OutputReplySubject()) }, "", 1, 1},
		{"after 48 h", func() {
			w.age(bus.StreamJobs, key.StateReplySubject())
			w.run("age", "home", `touch -d '3 days ago' "$HOME"/.wakebus/*again*`) // what the sandbox remembers ages as well
		}, "ran\n", 0, 2},
	} {
		step.before()
		j := w.execAs(req, "user-again", "business")
		if err := j.Wait(w.ctx); err != nil {
			t.Fatal(err)
		}
		if j.Result.Outcome != plan.OutcomeExited || *j.Result.ExitCode != 3 || string(j.Stdout) != step.out || len(j.Gaps) != step.gaps {
			t.Errorf("%s: %s, %q, gaps %+v: %v", step.name, rig.Says(j.Result), j.Stdout, j.Gaps, j.Kinds())
		}
		for _, gap := range j.Gaps {
			if gap.Why != bus.GapWhyRetention {
				t.Errorf("%s: the gap says %s", step.name, gap.Why)
			}
		}
		id := "count-" + strings.ReplaceAll(step.name, " ", "-")
		if ran := strings.Fields(string(w.run(id, "home", "cat /workspace/runs").Stdout)); len(ran) != step.runs {
			t.Errorf("%s: ran %d times", step.name, len(ran))
		}
	}
	w.nothingLeft()
}

// The output stream makes room by dropping its oldest: the command never notices, who reads along misses nothing, and who
// comes later is told.
func TestAFullOutputStreamStopsNoCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("make", "home", "true")
	w.limit(bus.StreamOutput, func(jetstream.StreamState) int64 { return 1 << 20 })
	j := w.exec(bus.ExecRequest{JobID: "big", Shell: "seq -f '%099.0f' 1 40000; exit 4", StreamBytes: 8 << 20})
	if err := j.Wait(w.ctx); err != nil {
		t.Fatal(err)
	}
	if *j.Result.ExitCode != 4 || j.Result.StdoutBytes != 4_000_000 || j.Result.Truncated {
		t.Errorf("%s after %d bytes", rig.Says(j.Result), j.Result.StdoutBytes)
	}
	late := w.read("big")
	if *late.Result.ExitCode != 4 || len(late.Gaps) == 0 || late.Gaps[0].Why != bus.GapWhyRetention {
		t.Errorf("who came later got %s with gaps %+v", rig.Says(late.Result), late.Gaps)
	}
	if !strings.HasSuffix(string(late.Stdout), "040000\n") || len(late.Stdout) >= 4_000_000 {
		t.Errorf("who came later got %d bytes", len(late.Stdout))
	}
	w.nothingLeft()
}

// The last chunk of a command that is quiet was dropped for its age; what it says next goes on from there.
func TestAQuietCommandOutlivesItsLastChunk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.exec(bus.ExecRequest{JobID: "quiet", Shell: "echo before; while [ ! -e /workspace/go ]; do sleep 0.1; done; echo after; exit 7"})
	w.until(j, bus.EventStdout)
	w.age(bus.StreamOutput, j.Events[0].Key.OutputReplySubject())
	w.run("go-on", "home", "touch /workspace/go")
	if err := j.Wait(w.ctx); err != nil {
		t.Fatal(err)
	}
	if *j.Result.ExitCode != 7 || string(j.Stdout) != "before\nafter\n" || len(j.Gaps) > 0 || slices.Contains(j.Kinds(), bus.EventTakenOver) {
		t.Errorf("%s, %q, gaps %+v: %v", rig.Says(j.Result), j.Stdout, j.Gaps, j.Kinds())
	}
	late := w.read("quiet")
	if string(late.Stdout) != "after\n" || len(late.Gaps) != 1 || late.Gaps[0].Why != bus.GapWhyRetention {
		t.Errorf("who came later got %q, gaps %+v", late.Stdout, late.Gaps)
	}
}

// Near the journal's limit nothing new is begun, what runs ends as it should, and pulling goes on once there is room.
func TestANearlyFullJournalBeginsNothingAndEndsEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.exec(bus.ExecRequest{JobID: "running", Shell: ticking})
	w.until(j, bus.EventStdout)
	// Something must stand in it, so that the fifth that is kept free holds results.
	for i := range 3 {
		w.run(fmt.Sprintf("fill-%d", i), "home", "head -c 60000 /dev/zero; exit 0")
	}
	w.limit(bus.StreamJobs, func(s jetstream.StreamState) int64 { return int64(s.Bytes) * 10 / 9 })
	<-time.After(6 * time.Second) // workers look every 5 s
	later := w.exec(bus.ExecRequest{JobID: "later", Shell: "exit 5"})
	<-time.After(2 * time.Second) // nothing happens, which has no signal
	if _, _, err := w.Bus.LastState(w.ctx, bus.RunKey{Tenant: rig.Tenant, Job: "later"}); !errors.Is(err, bus.ErrNoJournal) {
		t.Errorf("a job was begun: %v", err)
	}
	w.cancel(j.ID)
	w.canceled(j)
	w.ticked(j)
	w.limit(bus.StreamJobs, func(jetstream.StreamState) int64 { return 64 << 20 })
	w.exited(later, 5)
	w.nothingLeft()
}
