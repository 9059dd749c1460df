package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

func subscribe(t *testing.T, b *bus.Bus, job string, options ...bus.ReadOption) *bus.Reader {
	t.Helper()
	r, err := b.Subscribe(within(t), "ten", job, options...)
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	t.Cleanup(r.Close)
	return r
}

// readAll reads until the end of the run.
func readAll(t *testing.T, r *bus.Reader) []bus.Event {
	t.Helper()
	var out []bus.Event
	for ctx := within(t); ; {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("next after %q: %v", kinds(out), err)
		}
		out = append(out, e)
	}
}

func gapOf(t *testing.T, e bus.Event) bus.GapBody {
	t.Helper()
	var body bus.GapBody
	if err := json.Unmarshal(e.Data, &body); err != nil {
		t.Fatal(err)
	}
	return body
}

func TestCase58FiveMegabytesArriveInOrderNumberedAndWithOneEndThatIsLast(t *testing.T) {
	t.Parallel()
	r := setup(t)
	reader := subscribe(t, connect(t, r.server), "big")
	c := mustDial(t, r.bus, key("big"), "w1.1")
	var want bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() {
		ctx := within(t)
		for i := range 5 << 20 / 20000 {
			piece := bytes.Repeat([]byte{byte(i)}, 20000)
			want.Write(piece)
			if err := c.Write(ctx, bus.EventStdout, piece); err != nil {
				t.Error(err)
			}
		}
		if err := c.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeExited}); err != nil {
			t.Error(err)
		}
	})
	events := readAll(t, reader)
	wg.Wait()
	results := 0
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has number %d", i, e.Seq)
		}
		if len(e.Data) > r.bus.MaxPayload()-4096 {
			t.Errorf("event %d has %d bytes", i, len(e.Data))
		}
		if e.Kind == bus.EventResult {
			results++
		}
	}
	if results != 1 || events[len(events)-1].Kind != bus.EventResult {
		t.Errorf("%d results, the last event is %s", results, events[len(events)-1].Kind)
	}
	if !bytes.Equal(outputOf(t, events, bus.EventStdout), want.Bytes()) {
		t.Error("the output differs")
	}
}

func TestASlowReaderLosesNothingOfMoreThanItsConnectionHolds(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *bus.Config) { c.Limits.Output = 128 << 20 })
	reader := subscribe(t, connect(t, r.server), "slow")
	c := mustDial(t, r.bus, key("slow"), "w1.1")
	const total = 40 << 20 // the reader's connection keeps 32 MiB
	ctx, piece := within(t), make([]byte, 64<<10)
	for i := range total / len(piece) {
		piece[0], piece[len(piece)-1] = byte(i), byte(i>>8)
		if err := c.Write(ctx, bus.EventStdout, piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Result(ctx, bus.ResultBody{}); err != nil {
		t.Fatal(err)
	}
	var seq uint64
	var at int64
	for {
		e, err := reader.Next(within(t))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if seq++; e.Seq != seq || e.StdoutOffset != at || e.Kind == bus.EventGap {
			t.Fatalf("event %d is %s %d at offset %d, %d bytes came before it", seq, e.Kind, e.Seq, e.StdoutOffset, at)
		}
		at, _ = e.End()
	}
	if at != total {
		t.Errorf("%d bytes came, want %d", at, total)
	}
}

func TestALateReaderGetsTheWholeRunFromHistory(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustDial(t, r.bus, key("past"), "w1.1")
	for i := range 600 {
		if err := errors.Join(c.Write(ctx, bus.EventStdout, fmt.Appendf(nil, "%d\n", i)), c.Flush(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Result(ctx, bus.ResultBody{}); err != nil {
		t.Fatal(err)
	}
	events := readAll(t, subscribe(t, r.bus, "past"))
	if len(events) != 603 {
		t.Fatalf("%d events, want 603", len(events))
	}
	for _, from := range []uint64{2, 257, 600, 603} {
		part := readAll(t, subscribe(t, r.bus, "past", bus.ReadFrom(from)))
		if len(part) == 0 || part[0].Seq != from || len(part) != 604-int(from) {
			t.Errorf("from %d: %d events, the first is %+v", from, len(part), part[:min(1, len(part))])
		}
	}
}

func TestHistoryPagesTogetherAreTheRun(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustDial(t, r.bus, key("pages"), "w1.1")
	// Neighbours in the same streams, so that the halving has something to step over.
	other := mustDial(t, r.bus, key("neighbour"), "w1.1")
	for i := range 20 {
		if i%7 == 0 {
			if err := c.Heartbeat(ctx, bus.HeartbeatBody{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(c.Write(ctx, bus.EventStdout, bytes.Repeat([]byte("p"), 100)), c.Flush(ctx),
			other.Write(ctx, bus.EventStdout, []byte("n")), other.Flush(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Result(ctx, bus.ResultBody{}); err != nil {
		t.Fatal(err)
	}
	whole := history(t, r.bus, key("pages"))
	for _, size := range []struct{ events, bytes int }{{1, 0}, {2, 0}, {7, 0}, {0, 1}, {0, 350}, {13, 1000}} {
		var got []bus.Event
		from, pages := uint64(1), 0
		for more := true; more; pages++ {
			events, last, next, err := r.bus.History(ctx, key("pages"), from, size.events, size.bytes)
			if err != nil {
				t.Fatal(err)
			}
			if size.events > 0 && len(events) > size.events || len(events) == 0 && next {
				t.Fatalf("%+v: a page of %d events", size, len(events))
			}
			got, more, from = append(got, events...), next, last+1
		}
		if !slices.EqualFunc(got, whole, func(a, b bus.Event) bool { return a.Seq == b.Seq && bytes.Equal(a.Data, b.Data) }) {
			t.Errorf("%+v: %d events in %d pages, want %d", size, len(got), pages, len(whole))
		}
	}
	if events, last, more, err := r.bus.History(ctx, key("nobody"), 5, 0, 0); err != nil || more || last != 4 || len(events) != 0 {
		t.Errorf("a run nobody claimed: %v %d %v %v", events, last, more, err)
	}
}

func TestAReaderSaysAGapForOutputThatRetentionRemoved(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustDial(t, r.bus, key("gone"), "w1.1")
	if err := errors.Join(c.Started(ctx, bus.StartedBody{}), c.Write(ctx, bus.EventStdout, []byte("12345")), c.Flush(ctx),
		c.Write(ctx, bus.EventStderr, []byte("678")), c.Flush(ctx)); err != nil {
		t.Fatal(err)
	}
	stream, err := r.js.Stream(ctx, bus.StreamOutput)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.Purge(ctx), c.Write(ctx, bus.EventStdout, []byte("rest")), c.Result(ctx, bus.ResultBody{})); err != nil {
		t.Fatal(err)
	}
	events := readAll(t, subscribe(t, r.bus, "gone"))
	if got := kinds(events); got != "accepted dialing started gap heartbeat stdout result " {
		t.Fatalf("read %q", got)
	}
	if gap := gapOf(t, events[3]); gap.Why != bus.GapWhyRetention || gap.Bytes == nil || *gap.Bytes != 8 || gap.Stream != bus.GapBoth {
		t.Errorf("the gap says %+v", gap)
	}
}

func TestAHoleInTheNumbersAloneIsNoGap(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	publish := func(seq, kind, owner string, data []byte) {
		t.Helper()
		msg := nats.NewMsg(key("numbers").StateEventSubject())
		msg.Data = data
		msg.Header.Set(bus.HeaderEvent, kind)
		msg.Header.Set(bus.HeaderSeq, seq)
		msg.Header.Set(bus.HeaderOwner, owner)
		if _, err := r.js.PublishMsg(ctx, msg); err != nil {
			t.Fatal(err)
		}
	}
	publish("1", "accepted", "w1.1", mustJSON(t, bus.AcceptedBody{}))
	publish("3", "result", "w1.1", mustJSON(t, bus.ResultBody{}))
	if got := kinds(readAll(t, subscribe(t, r.bus, "numbers"))); got != "accepted result " {
		t.Errorf("read %q", got)
	}
}

func TestAReaderThatFollowsSeesTheReplayToo(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	reader := subscribe(t, r.bus, "again", bus.ReadFollow())
	for run := range 2 {
		k := bus.RunKey{Tenant: "ten", Job: "again", Run: run}
		c := mustClaim(t, r.bus, k, "w1.1")
		if err := c.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeFailed}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"accepted.0", "result.0", "accepted.1", "result.1"} {
		e, err := reader.Next(ctx)
		if got := fmt.Sprintf("%s.%d", e.Kind, e.Key.Run); err != nil || got != want {
			t.Fatalf("got %s, %v, want %s", got, err, want)
		}
	}
	one := readAll(t, subscribe(t, r.bus, "again", bus.ReadRun(1)))
	if kinds(one) != "accepted result " || one[0].Key.Run != 1 {
		t.Errorf("run 1 reads %q", kinds(one))
	}
}

func TestAReaderMissesNothingWhenItsConnectionIsLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := bus.StartServer(t.Context(), bus.ServerConfig{Dir: dir, User: "u", Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(t, server)
	b := connect(t, server, func(c *bus.Config) { c.PublishTimeout = 500 * time.Millisecond })
	if err := b.Setup(within(t)); err != nil {
		t.Fatal(err)
	}
	reader := subscribe(t, connect(t, server), "broken")
	c := mustDial(t, b, key("broken"), "w1.1")
	if e, err := reader.Next(within(t)); err != nil || e.Kind != bus.EventAccepted {
		t.Fatalf("first: %+v %v", e, err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	startServer(t, bus.ServerConfig{Dir: dir, User: "u", Password: "p", Port: port})
	// The owner may be back before the reader is; what it says meanwhile is republished to nobody.
	if err := errors.Join(c.Write(within(t), bus.EventStdout, []byte("meanwhile")), c.Result(within(t), bus.ResultBody{})); err != nil {
		t.Fatal(err)
	}
	if got := kinds(readAll(t, reader)); got != "dialing stdout result " {
		t.Errorf("read %q", got)
	}
}

// lagging answers from the real history, but knows nothing for the first calls.
type lagging struct {
	bus.HistorySource
	blind atomic.Int32
}

func (l *lagging) History(ctx context.Context, k bus.RunKey, from uint64, n, size int) ([]bus.Event, uint64, bool, error) {
	if l.blind.Add(-1) >= 0 {
		return nil, from - 1, false, nil
	}
	return l.HistorySource.History(ctx, k, from, n, size)
}

func TestAHoleIsFilledEvenWhenHistoryLagsAtFirst(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustDial(t, r.bus, key("lag"), "w1.1")
	if err := errors.Join(c.Write(ctx, bus.EventStdout, []byte("early")), c.Flush(ctx)); err != nil {
		t.Fatal(err)
	}
	source := &lagging{HistorySource: r.bus}
	source.blind.Store(2)
	reader := subscribe(t, r.bus, "lag", bus.ReadHistory(source)) // its first look finds nothing
	if err := c.Result(ctx, bus.ResultBody{}); err != nil {
		t.Fatal(err)
	}
	if got := kinds(readAll(t, reader)); got != "accepted dialing stdout result " {
		t.Errorf("read %q", got)
	}
}

func TestNextEndsWithItsContextAndAfterClose(t *testing.T) {
	t.Parallel()
	r := setup(t)
	reader := subscribe(t, r.bus, "silent")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := reader.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	reader.Close()
	if _, err := reader.Next(within(t)); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("closed: got %v", err)
	}
	for _, job := range []string{"", "a.b", "*", ">", "a b", "a\tb"} {
		if _, err := r.bus.Subscribe(within(t), "ten", job); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("job %q: got %v, want ErrInvalid (case 84)", job, err)
		}
	}
}

func TestOutputTailIsTheEndOfWhatIsStoredAndNeverReachesOverAGap(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	if tail, out, errOut, err := r.bus.OutputTail(ctx, key("tail"), 10); err != nil || tail != nil || out+errOut != 0 {
		t.Errorf("no output: %q %d %d %v", tail, out, errOut, err)
	}
	c := mustDial(t, r.bus, key("tail"), "w1.1")
	other := mustDial(t, r.bus, key("noise"), "w1.1")
	n := int64(100)
	steps := []error{c.Write(ctx, bus.EventStdout, []byte("hidden")), c.Gap(ctx, bus.GapBody{Stream: bus.GapBoth, Bytes: &n, Why: bus.GapWhyTakeover})}
	for i := range 40 { // the run's events lie far apart
		kind := bus.EventStdout
		if i%2 == 1 {
			kind = bus.EventStderr
		}
		steps = append(steps, c.Write(ctx, kind, fmt.Appendf(nil, "%02d", i)), c.Flush(ctx))
		for range 3 {
			steps = append(steps, other.Write(ctx, bus.EventStdout, []byte("x")), other.Flush(ctx))
		}
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	tail, out, errOut, err := r.bus.OutputTail(ctx, key("tail"), 7)
	if err != nil || string(tail) != "6373839" || out != 6+40 || errOut != 40 {
		t.Errorf("tail %q at %d and %d, %v", tail, out, errOut, err)
	}
	whole, _, _, err := r.bus.OutputTail(ctx, key("tail"), 4096)
	if err != nil || len(whole) != 80 || !bytes.HasPrefix(whole, []byte("0001")) {
		t.Errorf("the tail over the gap is %q, %v", whole, err)
	}
}

// run makes a plausible run: numbers without holes, output offsets that fit, a result at the end.
func run(t *rapid.T) []bus.Event {
	var out []bus.Event
	var offsets [2]int64
	n := rapid.IntRange(1, 30).Draw(t, "events")
	for i := range n {
		e := bus.Event{Kind: bus.EventHeartbeat, Key: key("s"), Seq: uint64(i + 1), StdoutOffset: offsets[0], StderrOffset: offsets[1]}
		switch {
		case i == n-1:
			e.Kind = bus.EventResult
		case rapid.Bool().Draw(t, "output"):
			stream := rapid.IntRange(0, 1).Draw(t, "stream")
			e.Kind = []bus.EventKind{bus.EventStdout, bus.EventStderr}[stream]
			e.Data = rapid.SliceOfN(rapid.Byte(), 1, 8).Draw(t, "data")
			offsets[stream] += int64(len(e.Data))
		}
		out = append(out, e)
	}
	return out
}

func TestTheSorterGivesEachEventOnceInOrderWhateverOrderTheyComeIn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := run(t)
		input := rapid.Permutation(append(slices.Clone(want), rapid.SliceOf(rapid.SampledFrom(want)).Draw(t, "repeats")...)).Draw(t, "order")
		s := bus.NewSorter(1)
		var got []bus.Event
		seen := map[uint64]bool{}
		for _, e := range input {
			seen[e.Seq] = true
			got = append(got, s.Push(e)...)
			for _, hole := range s.Missing() {
				if hole.From > hole.To || hole.From < s.Next() {
					t.Fatalf("hole %+v at next %d", hole, s.Next())
				}
				for seq := hole.From; seq <= hole.To; seq++ {
					if seen[seq] {
						t.Fatalf("%d is in, and said to be missing", seq)
					}
				}
			}
		}
		if len(s.Missing()) != 0 {
			t.Fatalf("missing at the end: %v", s.Missing())
		}
		if len(got) != len(want) {
			t.Fatalf("%d events came out, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i].Seq != want[i].Seq || got[i].Kind != want[i].Kind {
				t.Fatalf("event %d is %d", i, got[i].Seq)
			}
		}
	})
}

func TestTheSorterAccountsForEveryByteWhenEventsAreLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole := run(t)
		s := bus.NewSorter(1)
		var got []bus.Event
		for i, e := range whole {
			if i == len(whole)-1 || rapid.Bool().Draw(t, "kept") {
				got = append(got, s.Push(e)...)
			}
		}
		for len(s.Missing()) > 0 {
			got = append(got, s.Skip()...)
		}
		if len(got) == 0 || got[len(got)-1].Kind != bus.EventResult {
			t.Fatal("the result did not come, or was not last")
		}
		var bytes int64
		for _, e := range got {
			if e.Kind != bus.EventGap {
				bytes += int64(len(e.Data))
				continue
			}
			var gap bus.GapBody
			if err := json.Unmarshal(e.Data, &gap); err != nil || gap.Bytes == nil || *gap.Bytes <= 0 {
				t.Fatalf("gap %s", e.Data)
			}
			bytes += *gap.Bytes
		}
		end := whole[len(whole)-1]
		if bytes != end.StdoutOffset+end.StderrOffset {
			t.Fatalf("%d bytes are delivered or said to be missing, the run had %d", bytes, end.StdoutOffset+end.StderrOffset)
		}
	})
}

func TestTheSorterIsBoundedAndSaysWhatItLetGo(t *testing.T) {
	t.Parallel()
	s := bus.NewSorter(1)
	for seq := uint64(2); seq < 10_000; seq++ {
		if out := s.Push(bus.Event{Kind: bus.EventStdout, Seq: seq, Data: []byte("x")}); len(out) != 0 {
			t.Fatal("something came before its turn")
		}
	}
	missing := s.Missing()
	if len(missing) != 2 || missing[0] != (bus.SeqRange{From: 1, To: 1}) || missing[1].To != 9999 {
		t.Fatalf("missing %v", missing)
	}
	if out := s.Push(bus.Event{Kind: bus.EventAccepted, Seq: 1}); uint64(len(out)) != missing[1].From-1 {
		t.Errorf("%d events came, the next missing is %d", len(out), missing[1].From)
	}
}

func TestALateChunkUnderATakersNumberIsDeliveredWhenItsBytesFit(t *testing.T) {
	t.Parallel()
	s := bus.NewSorter(1)
	s.Push(bus.Event{Kind: bus.EventAccepted, Seq: 1})
	if out := s.Push(bus.Event{Kind: bus.EventTakenOver, Seq: 2, Owner: "w2.1"}); len(out) != 1 {
		t.Fatal("taken_over is due")
	}
	chunk := bus.Event{Kind: bus.EventStdout, Seq: 2, Owner: "w1.1", Data: []byte("late")}
	if out := s.Push(chunk); len(out) != 1 {
		t.Error("the former owner's last chunk was lost")
	}
	if out := s.Push(chunk); len(out) != 0 {
		t.Error("the chunk was delivered twice")
	}
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add("sandbox.reply.t.j.0.out", "stdout", "3", "12", "0", []byte("data"))
	f.Add("sandbox.reply.t.j.0.state", "result", "18446744073709551615", "-1", "x", []byte("{"))
	f.Fuzz(func(t *testing.T, subject, kind, seq, out, errOut string, data []byte) {
		e, err := bus.DecodeEvent(subject, bus.Header{bus.HeaderEvent: {kind}, bus.HeaderSeq: {seq}, bus.HeaderStdoutOffset: {out},
			bus.HeaderStderrOffset: {errOut}}, data)
		if err != nil {
			return
		}
		if !e.Key.Valid() || e.Seq == 0 || e.StdoutOffset < 0 || e.StderrOffset < 0 || !e.Kind.Valid() {
			t.Fatalf("accepted %+v", e)
		}
		bus.NewSorter(1).Push(*e)
		e.IsSeam()
		if _, err := e.Record(); err == nil && e.Kind.IsOutput() {
			t.Fatal("an output event has no record")
		}
	})
}
