package survival_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/tests/rig"
)

// floodMiB is how much a flooding command prints: 16, or what WAKEBUS_FLOOD_MIB says for a long run by hand.
func floodMiB(t *testing.T) int {
	text := os.Getenv("WAKEBUS_FLOOD_MIB")
	if text == "" {
		return 16
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("WAKEBUS_FLOOD_MIB=%s is no size", text)
	}
	return n
}

// flow checks a flood as it comes: 64 numbered bytes a line, from any place on.
type flow struct {
	at     int64 // the next byte's place
	next   uint64
	result *bus.Event
}

func (f *flow) take(e bus.Event) error {
	f.next = e.Seq + 1
	switch e.Kind {
	case bus.EventResult:
		f.result = &e
	case bus.EventGap:
		if !e.IsSeam() {
			return fmt.Errorf("a gap at %d: %s", f.at, e.Data)
		}
	case bus.EventStdout:
		if e.StdoutOffset != f.at {
			return fmt.Errorf("offset %d, want %d", e.StdoutOffset, f.at)
		}
		first := f.at / 64
		var want bytes.Buffer
		for n := first; n*64 < f.at+int64(len(e.Data)); n++ {
			fmt.Fprintf(&want, "%063d\n", n+1)
		}
		if !bytes.HasPrefix(want.Bytes()[f.at-first*64:], e.Data) {
			return fmt.Errorf("other bytes at %d", f.at)
		}
		f.at += int64(len(e.Data))
	case bus.EventStderr, bus.EventAccepted, bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStarted,
		bus.EventStopping, bus.EventTakenOver, bus.EventHeartbeat:
	}
	return nil
}

// flow reads events until the end, or until enough says so.
func (w *world) flow(ctx context.Context, r *bus.Reader, f *flow, enough func(*flow) bool) {
	w.t.Helper()
	for !enough(f) {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = f.take(e)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// A flood arrives whole at who reads along, at who reads nothing before the end, and at who leaves and comes back; the
// command waits for none of them.
func TestAFloodArrivesWholeWhoeverReads(t *testing.T) {
	t.Parallel()
	size := int64(floodMiB(t)) << 20
	w := newWorld(t, setting("WAKEBUS_STREAM_HARD_CAP", "1GiB"))
	open := func(options ...bus.ReadOption) *bus.Reader {
		r, err := w.Bus.Subscribe(w.ctx, rig.Tenant, "flood", options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return r
	}
	never := func(*flow) bool { return false }
	along, asleep, leaving := open(), open(), open()
	err := w.Publish(w.ctx, bus.ExecRequest{JobID: "flood", ConversationID: "home", StreamBytes: size,
		Shell: fmt.Sprintf("seq -f '%%063.0f' 1 %d; exit 6", size/64)}, "ann", "pro")
	if err != nil {
		t.Fatal(err)
	}
	var left flow
	w.flow(w.ctx, leaving, &left, func(f *flow) bool { return f.at > size/8 })
	leaving.Close()
	var live, late flow
	w.flow(w.ctx, along, &live, never)
	w.flooded("along", &live, size)
	w.flow(w.ctx, asleep, &late, never)
	w.flooded("asleep", &late, size)
	w.flow(w.ctx, open(bus.ReadFrom(left.next)), &left, never)
	w.flooded("back", &left, size)
	w.nothingLeft()
}

func (w *world) flooded(name string, f *flow, size int64) {
	w.t.Helper()
	if f.result == nil || f.at != size {
		w.t.Fatalf("%s: %d of %d bytes, result %v", name, f.at, size, f.result != nil)
	}
	var body bus.ResultBody
	if err := json.Unmarshal(f.result.Data, &body); err != nil {
		w.t.Fatal(err)
	}
	if body.Outcome != plan.OutcomeExited || *body.ExitCode != 6 || body.Truncated || body.StdoutBytes != size {
		w.t.Errorf("%s: %s, %d bytes, truncated %v", name, rig.Says(&body), body.StdoutBytes, body.Truncated)
	}
}
