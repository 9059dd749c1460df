package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

func key(job string) bus.RunKey { return bus.RunKey{Tenant: "ten", Job: job} }

func claimOf(seq uint64) bus.Claim {
	return bus.Claim{Request: "ab12", Traceparent: "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01",
		Record: bus.Record{Queued: seq, Kind: bus.KindExec, Actor: &bus.Actor{Tenant: "ten", User: "ann", Tier: plan.TierFree}}}
}

func mustClaim(t *testing.T, b *bus.Bus, k bus.RunKey, owner bus.Owner) *bus.Chain {
	t.Helper()
	c, err := b.Claim(within(t), k, owner, claimOf(7))
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// mustDial is a claim whose command may run, and so print.
func mustDial(t *testing.T, b *bus.Bus, k bus.RunKey, owner bus.Owner) *bus.Chain {
	t.Helper()
	c := mustClaim(t, b, k, owner)
	if err := c.Dialing(within(t), bus.DialingBody{Try: 1}); err != nil {
		t.Fatalf("dialing: %v", err)
	}
	return c
}

// history is everything stored of a run, page after page.
func history(t *testing.T, b *bus.Bus, k bus.RunKey) []bus.Event {
	t.Helper()
	var all []bus.Event
	from := uint64(1)
	for {
		events, last, more, err := b.History(within(t), k, from, 256, 4<<20)
		if err != nil {
			t.Fatalf("history: %v", err)
		}
		all = append(all, events...)
		if !more {
			return all
		}
		from = last + 1
	}
}

func kinds(events []bus.Event) string {
	var out string
	for _, e := range events {
		out += string(e.Kind) + " "
	}
	return out
}

// outputOf joins the output events of one stream, and checks that each offset is what came before.
func outputOf(t *testing.T, events []bus.Event, kind bus.EventKind) []byte {
	t.Helper()
	var out []byte
	for _, e := range events {
		at := e.StdoutOffset
		if kind == bus.EventStderr {
			at = e.StderrOffset
		}
		if at != int64(len(out)) {
			t.Fatalf("event %d (%s) says offset %d, %d bytes came before it", e.Seq, e.Kind, at, len(out))
		}
		if e.Kind == kind {
			out = append(out, e.Data...)
		}
	}
	return out
}

func TestOfManyClaimsExactlyOneWins(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const racers = 8
	chains, errs := make([]*bus.Chain, racers), make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		b := connect(t, r.server)
		wg.Go(func() {
			chains[i], errs[i] = b.Claim(within(t), key("race"), bus.Owner(fmt.Sprintf("w%d.1", i)), claimOf(1))
		})
	}
	wg.Wait()
	winners := 0
	for i := range racers {
		var conflict *bus.ConflictError
		switch {
		case errs[i] == nil:
			winners++
			chains[i].Close()
		case !errors.As(errs[i], &conflict) || conflict.Last == nil || conflict.Record.Queued != 1:
			t.Errorf("loser %d: got %v, want a conflict that shows the winner's event", i, errs[i])
		}
	}
	if winners != 1 {
		t.Fatalf("%d claims won, want 1", winners)
	}
	if got := kinds(history(t, r.bus, key("race"))); got != "accepted " {
		t.Fatalf("the journal holds %q", got)
	}
}

func TestAWholeRunIsNumberedWithoutGapsOverBothStreams(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustClaim(t, r.bus, key("whole"), "w1.1")
	steps := []error{
		c.Planned(ctx, bus.PlannedBody{Plan: plan.ActionCreate, Why: plan.WhyNew}, func(r *bus.Record) { r.Sandbox = "sb" }),
		c.Dialing(ctx, bus.DialingBody{Try: 1, Fresh: true}),
		c.Started(ctx, bus.StartedBody{}, func(r *bus.Record) { r.Session = "42"; r.Created = 99 }),
		c.Write(ctx, bus.EventStdout, []byte("out1 ")),
		c.Write(ctx, bus.EventStderr, []byte("err1 ")),
		c.Heartbeat(ctx, bus.HeartbeatBody{}),
		c.Write(ctx, bus.EventStdout, []byte("out2")),
	}
	code := 0
	steps = append(steps, c.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeExited, ExitCode: &code}))
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	events := history(t, r.bus, key("whole"))
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has number %d: %s", i, e.Seq, kinds(events))
		}
		if e.Owner != "w1.1" || e.Request != "ab12" || e.Traceparent == "" || e.StreamSeq == 0 || e.Time.IsZero() {
			t.Errorf("event %d lacks a header: %+v", i, e)
		}
	}
	if last := events[len(events)-1]; last.Kind != bus.EventResult {
		t.Fatalf("the last event is %s", last.Kind)
	}
	if out, errOut := outputOf(t, events, bus.EventStdout), outputOf(t, events, bus.EventStderr); string(out) != "out1 out2" || string(errOut) != "err1 " {
		t.Fatalf("output is %q and %q", out, errOut)
	}
	record, err := events[len(events)-1].Record()
	if err != nil || record.Phase != plan.PhaseResult || record.Sandbox != "sb" || record.Session != "42" || record.Plan != plan.ActionCreate {
		t.Fatalf("the last record is %+v, %v", record, err)
	}
	for name, err := range map[string]error{"write": c.Write(ctx, bus.EventStdout, []byte("x")), "state": c.Heartbeat(ctx, bus.HeartbeatBody{}),
		"result": c.Result(ctx, bus.ResultBody{})} {
		if !errors.Is(err, bus.ErrEnded) {
			t.Errorf("%s after the result: got %v, want ErrEnded", name, err)
		}
	}
}

func TestPhasesOnlyGoForward(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustClaim(t, r.bus, key("phase"), "w1.1")
	if err := c.Started(ctx, bus.StartedBody{}); err != nil {
		t.Fatal(err)
	}
	early := mustClaim(t, r.bus, key("early"), "w1.1")
	if err := early.Write(ctx, bus.EventStdout, []byte("x")); !errors.Is(err, bus.ErrPhase) {
		t.Errorf("output before dialing: got %v, want ErrPhase", err)
	}
	if err := c.Planned(ctx, bus.PlannedBody{}); !errors.Is(err, bus.ErrPhase) {
		t.Errorf("planned after started: got %v, want ErrPhase", err)
	}
	if err := c.Heartbeat(ctx, bus.HeartbeatBody{}, func(r *bus.Record) { r.Phase = plan.PhaseAccepted }); !errors.Is(err, bus.ErrPhase) {
		t.Errorf("a record set back: got %v, want ErrPhase", err)
	}
	if err := c.Heartbeat(ctx, bus.HeartbeatBody{}); err != nil {
		t.Errorf("the chain is usable after a refused step: %v", err)
	}
	if got := kinds(history(t, r.bus, key("phase"))); got != "accepted started heartbeat " {
		t.Errorf("the journal holds %q", got)
	}
}

func TestAFormerOwnerIsFencedOnBothChainsAndSaysNothingMore(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	old := mustClaim(t, r.bus, key("zombie"), "w1.1")
	if err := errors.Join(old.Started(ctx, bus.StartedBody{}), old.Write(ctx, bus.EventStdout, []byte("before ")), old.Flush(ctx)); err != nil {
		t.Fatal(err)
	}
	taker := connect(t, r.server)
	last, _, err := taker.LastState(ctx, key("zombie"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := taker.TakeOver(ctx, key("zombie"), last, "w2.1", func(r *bus.Record) { r.Crashes++ })
	if err != nil {
		t.Fatalf("take over: %v", err)
	}
	t.Cleanup(next.Close)
	// The new owner has said nothing on the output chain yet, and still the old one's chunk must not get in.
	if err := old.Write(ctx, bus.EventStdout, []byte("ZOMBIE")); err != nil {
		t.Fatalf("write is only a hand-over: %v", err)
	}
	if err := old.Flush(ctx); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("the old owner's output: got %v, want ErrFenced", err)
	}
	<-old.Fenced()
	if err := old.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeExited}); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("the old owner's result: got %v, want ErrFenced", err)
	}
	var conflict *bus.ConflictError
	if !errors.As(old.Fence(), &conflict) || conflict.Last.Owner != "w2.1" {
		t.Errorf("fence: got %v, want the taker named", old.Fence())
	}
	if err := errors.Join(next.Write(ctx, bus.EventStdout, []byte("after")), next.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeExited})); err != nil {
		t.Fatal(err)
	}
	events := history(t, r.bus, key("zombie"))
	if out := outputOf(t, events, bus.EventStdout); string(out) != "before after" {
		t.Errorf("output is %q", out)
	}
	if got := kinds(events); got != "accepted started stdout taken_over gap stdout result " {
		t.Errorf("the run holds %q", got)
	}
	for _, e := range events {
		if e.Kind == bus.EventGap && !e.IsSeam() {
			t.Error("the take-over says a gap though nothing is missing")
		}
	}
	if record := next.Record(); record.Crashes != 1 || record.Phase != plan.PhaseResult {
		t.Errorf("the record is %+v", record)
	}
}

func TestOfTwoTakersOneWinsAndAResultIsNeverTakenOver(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustClaim(t, r.bus, key("two"), "w1.1")
	last, _, err := r.bus.LastState(ctx, key("two"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := r.bus.TakeOver(ctx, key("two"), last, "w2.1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	var conflict *bus.ConflictError
	if _, err := r.bus.TakeOver(ctx, key("two"), last, "w3.1", nil); !errors.As(err, &conflict) || conflict.Last.Owner != "w2.1" {
		t.Errorf("second taker: got %v, want a conflict with w2.1", err)
	}
	if err := c.Heartbeat(ctx, bus.HeartbeatBody{}); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("former owner: got %v, want ErrFenced", err)
	}
	if err := next.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeLost}); err != nil {
		t.Fatal(err)
	}
	last, _, err = r.bus.LastState(ctx, key("two"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.bus.TakeOver(ctx, key("two"), last, "w3.1", nil); !errors.Is(err, bus.ErrEnded) {
		t.Errorf("after the result: got %v, want ErrEnded", err)
	}
}

func TestReleaseFlushesSaysNobodyOwnsAndEndsTheChain(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustClaim(t, r.bus, key("let-go"), "w1.1")
	until := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	err := errors.Join(c.Started(ctx, bus.StartedBody{}), c.Write(ctx, bus.EventStdout, []byte("tail")),
		c.Detach(ctx, bus.WaitWorker, until, "draining", func(r *bus.Record) { r.Detached = true }))
	if err != nil {
		t.Fatal(err)
	}
	last, record, err := r.bus.LastState(ctx, key("let-go"))
	if err != nil || last.Owner != bus.NoOwner || last.Kind != bus.EventWaiting || !record.Detached || record.Phase != plan.PhaseStarted {
		t.Fatalf("last state is %+v %+v %v", last, record, err)
	}
	if last.StdoutOffset != 4 {
		t.Errorf("the output was not stored before the owner let go: offset %d", last.StdoutOffset)
	}
	if err := c.Heartbeat(ctx, bus.HeartbeatBody{}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("after letting go: got %v, want ErrClosed", err)
	}
}

func TestOutputIsWholeWhateverItsSizesAndNeverLargerThanAChunk(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustDial(t, r.bus, key("bulk"), "w1.1")
	var want [2][]byte
	write := func(stream int, data []byte) {
		want[stream] = append(want[stream], data...)
		kind := bus.EventStdout
		if stream == 1 {
			kind = bus.EventStderr
		}
		if err := c.Write(ctx, kind, data); err != nil {
			t.Fatal(err)
		}
		// Write copied the data: what the caller does with its buffer afterwards is no one's business.
		for i := range data {
			data[i] = 0xff
		}
	}
	for i := range 300 {
		write(i%3%2, bytes.Repeat([]byte{byte(i)}, i*7))
	}
	write(0, bytes.Repeat([]byte("0123456789abcdef"), 64<<10)) // 1 MiB in one piece
	if err := c.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeExited}); err != nil {
		t.Fatal(err)
	}
	events := history(t, r.bus, key("bulk"))
	if !bytes.Equal(outputOf(t, events, bus.EventStdout), want[0]) || !bytes.Equal(outputOf(t, events, bus.EventStderr), want[1]) {
		t.Fatal("the stored output is not what was written")
	}
	largest := 0
	for i, e := range events {
		if e.Seq != uint64(i+1) || len(e.Data) > 256<<10 && e.Kind.IsOutput() {
			t.Fatalf("event %d: number %d, %d bytes", i, e.Seq, len(e.Data))
		}
		if e.Kind.IsOutput() {
			largest = max(largest, len(e.Data))
		}
	}
	if largest < 128<<10 {
		t.Errorf("what waited together went out in pieces of %d bytes at most", largest)
	}
	if out, errOut := c.Offsets(); out != int64(len(want[0])) || errOut != int64(len(want[1])) {
		t.Errorf("offsets are %d and %d", out, errOut)
	}
}

func TestStateAndOutputMayBeWrittenAtTheSameTime(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustDial(t, r.bus, key("both"), "w1.1")
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 200 {
			if err := c.Write(ctx, bus.EventStdout, fmt.Appendf(nil, "line %d\n", i)); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range 50 {
			if err := c.Heartbeat(ctx, bus.HeartbeatBody{}); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	if err := c.Result(ctx, bus.ResultBody{}); err != nil {
		t.Fatal(err)
	}
	events := history(t, r.bus, key("both"))
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has number %d", i, e.Seq)
		}
	}
	if out := outputOf(t, events, bus.EventStdout); !bytes.HasSuffix(out, []byte("line 199\n")) {
		t.Errorf("output ends with %q", out[max(0, len(out)-20):])
	}
}

func TestAnEvictedLastChunkIsReanchoredByAStateEvent(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustClaim(t, r.bus, key("quiet"), "w1.1")
	if err := errors.Join(c.Started(ctx, bus.StartedBody{}), c.Write(ctx, bus.EventStdout, []byte("old")), c.Flush(ctx)); err != nil {
		t.Fatal(err)
	}
	stream, err := r.js.Stream(ctx, bus.StreamOutput)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Write(ctx, bus.EventStdout, []byte("new")), c.Result(ctx, bus.ResultBody{})); err != nil {
		t.Fatalf("after the eviction: %v", err)
	}
	events := history(t, r.bus, key("quiet"))
	if got := kinds(events); got != "accepted started heartbeat stdout result " {
		t.Errorf("the run holds %q", got)
	}
	if e := events[3]; e.StdoutOffset != 3 || string(e.Data) != "new" || e.Seq != 5 {
		t.Errorf("the chunk after the eviction is %+v", e)
	}
}

func TestRefusedEventsAreSeenByNobody(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	sub, err := r.raw.SubscribeSync(bus.JobReplySubject("ten", "seen"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.raw.Flush(); err != nil {
		t.Fatal(err)
	}
	c := mustClaim(t, r.bus, key("seen"), "w1.1")
	if _, err := r.bus.Claim(ctx, key("seen"), "w2.1", claimOf(2)); !errors.Is(err, bus.ErrFenced) {
		t.Fatalf("second claim: %v", err)
	}
	if err := c.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeExpired}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 2 {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, msg.Header.Get(bus.HeaderEvent)+" by "+msg.Header.Get(bus.HeaderOwner))
	}
	if fmt.Sprint(got) != "[accepted by w1.1 result by w1.1]" {
		t.Errorf("a plain subscriber saw %v", got)
	}
	if n, _, err := sub.Pending(); err != nil || n != 0 {
		t.Errorf("%d more messages were seen, %v", n, err)
	}
}

func TestAnEventWhoseAnswerWasLostIsRecognisedAsOurs(t *testing.T) {
	t.Parallel()
	r := setup(t)
	c := mustClaim(t, r.bus, key("lost-ack"), "w1.1")
	// The same event as the chain's next, stored by a publish whose answer the owner never saw.
	ctx := within(t)
	body := mustJSON(t, bus.StartedBody{Run: func() bus.Record { r := c.Record(); r.Phase = plan.PhaseStarted; return r }()})
	msg := nats.NewMsg(key("lost-ack").StateEventSubject())
	msg.Data = body
	msg.Header.Set(bus.HeaderEvent, "started")
	msg.Header.Set(bus.HeaderSeq, "2")
	msg.Header.Set(bus.HeaderOwner, "w1.1")
	if _, err := r.js.PublishMsg(ctx, msg); err != nil {
		t.Fatal(err)
	}
	if err := c.Started(ctx, bus.StartedBody{}); err != nil {
		t.Fatalf("the owner's own event was not recognised: %v", err)
	}
	if err := c.Heartbeat(ctx, bus.HeartbeatBody{}); err != nil {
		t.Fatalf("the chain goes on after it: %v", err)
	}
	if got := kinds(history(t, r.bus, key("lost-ack"))); got != "accepted started heartbeat " {
		t.Errorf("the journal holds %q", got)
	}
}

func TestAnOwnEventThatCameLateIsFollowedNotRepeated(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ctx := within(t)
	c := mustClaim(t, r.bus, key("late"), "w1.1")
	record := c.Record()
	record.Phase, record.Stop = plan.PhaseStopping, &bus.Stop{Reason: plan.StopCancel}
	msg := nats.NewMsg(key("late").StateEventSubject())
	msg.Data = mustJSON(t, bus.StoppingBody{Reason: plan.StopCancel, Run: record})
	msg.Header.Set(bus.HeaderEvent, "stopping")
	msg.Header.Set(bus.HeaderSeq, "2")
	msg.Header.Set(bus.HeaderOwner, "w1.1")
	if _, err := r.js.PublishMsg(ctx, msg); err != nil {
		t.Fatal(err)
	}
	if err := c.Started(ctx, bus.StartedBody{}); !errors.Is(err, bus.ErrPhase) {
		t.Errorf("started after our own late stopping: got %v, want ErrPhase", err)
	}
	if err := c.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeCanceled}); err != nil {
		t.Fatal(err)
	}
	events := history(t, r.bus, key("late"))
	if got := kinds(events); got != "accepted stopping result " || events[2].Seq != 3 {
		t.Errorf("the journal holds %q", got)
	}
	if last, err := events[2].Record(); err != nil || last.Stop == nil || last.Stop.Reason != plan.StopCancel {
		t.Errorf("the announced stop was forgotten: %+v %v", last, err)
	}
}

func TestWriteBlocksWhenTheBrokerIsAwayAndEverythingArrivesOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := bus.StartServer(t.Context(), bus.ServerConfig{Dir: dir, User: "u", Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(t, server)
	b := connect(t, server, func(c *bus.Config) { c.PublishTimeout = 300 * time.Millisecond })
	if err := b.Setup(within(t)); err != nil {
		t.Fatal(err)
	}
	c := mustDial(t, b, key("outage"), "w1.1")
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	piece := bytes.Repeat([]byte("x"), 64<<10)
	full, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	wrote := 0
	for err == nil {
		if err = c.Write(full, bus.EventStdout, piece); err == nil {
			wrote += len(piece)
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) || wrote > 1<<20 {
		t.Fatalf("wrote %d bytes into the outage, then %v; want a bounded buffer and then blocking", wrote, err)
	}
	back := startServer(t, bus.ServerConfig{Dir: dir, User: "u", Password: "p", Port: port})
	if err := errors.Join(c.Heartbeat(within(t), bus.HeartbeatBody{}), c.Result(within(t), bus.ResultBody{})); err != nil {
		t.Fatalf("after the outage: %v", err)
	}
	out, _ := c.Offsets()
	events := history(t, connect(t, back), key("outage"))
	if got := outputOf(t, events, bus.EventStdout); int64(len(got)) != out || len(got) < wrote {
		t.Fatalf("%d bytes are stored, the chain says %d, at least %d were taken", len(got), out, wrote)
	}
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has number %d", i, e.Seq)
		}
	}
}
