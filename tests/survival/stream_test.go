package survival_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/tests/rig"
)

// Case 58: 5 MB in numbered, tagged chunks below the broker's limit, and one end.
func TestCase58OutputComesInNumberedChunksWithOneEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const lines = 100_000 // 50 bytes each
	j := w.run("big", "home", fmt.Sprintf(`seq -f 'line %%44.0f' 1 %d; seq -f 'error %%43.0f' 1 1000 >&2`, lines))
	var want bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&want, "line %44d\n", i+1)
	}
	if !bytes.Equal(j.Stdout, want.Bytes()) {
		t.Errorf("stdout has %d bytes with sum %x, want %d", len(j.Stdout), sha256.Sum256(j.Stdout), want.Len())
	}
	if len(j.Stderr) != 50_000 || !strings.HasSuffix(string(j.Stderr), " 1000\n") {
		t.Errorf("stderr has %d bytes", len(j.Stderr))
	}
	for _, e := range j.Events {
		if len(e.Data) > w.Bus.MaxPayload()-(4<<10) {
			t.Errorf("event %d has %d bytes, the broker takes %d", e.Seq, len(e.Data), w.Bus.MaxPayload())
		}
	}
}

func TestBinaryAndSplitTextArriveIntact(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emulated(func(c *emulator.Config) {
		c.Faults = []emulator.Fault{{Route: "exec.ws", Do: emulator.FaultSplit}}
	}))
	text := strings.Repeat("é€😀—ß", 40)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	j := w.exec(bus.ExecRequest{JobID: "bytes", Shell: "cat; printf '" + text + "' >&2", Stdin: all})
	w.exited(j, 0)
	if !bytes.Equal(j.Stdout, all) || string(j.Stderr) != text {
		t.Errorf("got %q and %q", j.Stdout, j.Stderr)
	}
}

// Case 9: head and tail arrive, and the exact count between them; the result says that it is not all.
func TestOutputOverItsCapIsTrimmedWithExactCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.exec(bus.ExecRequest{JobID: "trim", StreamBytes: 1000, Shell: "seq -f '%09.0f' 1 20000; exit 5"})
	w.exited(j, 5)
	const produced, tail = 200_000, 64 << 10
	if len(j.Gaps) != 1 || j.Gaps[0].Bytes == nil || *j.Gaps[0].Bytes != produced-1000-tail || j.Gaps[0].Why != bus.GapWhyCap || j.Gaps[0].Stream != bus.GapStdout {
		t.Errorf("gaps %+v", j.Gaps)
	}
	var want bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&want, "%09d\n", i+1)
	}
	all := want.Bytes()
	if !bytes.Equal(j.Stdout, append(append([]byte(nil), all[:1000]...), all[produced-tail:]...)) {
		t.Errorf("got %d bytes that are not head and tail", len(j.Stdout))
	}
	r := j.Result
	if r.ProducedBytes != produced || !r.Truncated || r.StdoutBytes != 1000+tail {
		t.Errorf("result says %d produced, %d delivered, truncated %v", r.ProducedBytes, r.StdoutBytes, r.Truncated)
	}
	if !bytes.Equal(r.Output.Stdout.Head, all[:32<<10]) || !bytes.Equal(r.Output.Stdout.Tail, all[produced-(32<<10):]) {
		t.Errorf("previews have %d and %d bytes", len(r.Output.Stdout.Head), len(r.Output.Stdout.Tail))
	}
}

// Case 9: with kill, and always at the hard cap, the command is stopped, and the result says why.
func TestACommandIsStoppedAtItsOutputCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setting("WAKEBUS_STREAM_BYTES", "64KiB"), setting("WAKEBUS_STREAM_HARD_CAP", "1MiB"))
	for name, req := range map[string]bus.ExecRequest{
		"kill":     {StreamBytes: 1000, OnOutputLimit: "kill"},
		"hard-cap": {},
	} {
		req.JobID, req.Shell = name, "echo $$ > /workspace/pid-"+name+"; exec yes"
		j := w.exec(req)
		r := w.wait(j)
		if r.Outcome != plan.OutcomeOutputLimit || r.Stopped != "confirmed" || r.ExitCode != nil || !r.Truncated {
			t.Errorf("%s: %s, stopped %s, truncated %v", name, rig.Says(r), r.Stopped, r.Truncated)
		}
		if len(j.Gaps) == 0 {
			t.Errorf("%s: nothing says that output is missing", name)
		}
		if gone := w.run("look-"+name, "home", "kill -0 $(cat /workspace/pid-"+name+") 2>/dev/null && echo alive || echo gone"); string(gone.Stdout) != "gone\n" {
			t.Errorf("%s: its process is %s", name, gone.Stdout)
		}
	}
}

// Case 47: nobody reads while it runs; whoever comes later, anywhere, gets exactly the rest.
func TestCase47AReaderWhoComesBackGetsExactlyTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.Publish(w.ctx, bus.ExecRequest{JobID: "unread", ConversationID: "home", Shell: "seq 1 300000; exit 4"}, "ann", "pro"); err != nil {
		t.Fatal(err)
	}
	first, err := w.Follow(w.ctx, "unread")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	w.exited(first, 4)
	for _, from := range []int{1, 2, len(first.Events) / 2, len(first.Events)} {
		later, err := w.Follow(w.ctx, "unread", bus.ReadFrom(uint64(from)))
		if err != nil {
			t.Fatal(err)
		}
		w.exited(later, 4)
		later.Close()
		if len(later.Events) != len(first.Events)-from+1 || !bytes.HasSuffix(first.Stdout, later.Stdout) {
			t.Errorf("from %d: %d events, %d bytes", from, len(later.Events), len(later.Stdout))
		}
		if e := later.Events[0]; e.Seq != uint64(from) || int(e.StdoutOffset)+len(later.Stdout) != len(first.Stdout) {
			t.Errorf("from %d: begins at %d with offset %d", from, e.Seq, e.StdoutOffset)
		}
	}
	if held := w.leases(); len(held) > 0 {
		t.Errorf("leases %v", held)
	}
}
