package bus_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

var letterID = bus.LetterID{Tenant: "t", Job: "j"}

// died is run n's dead letter as a worker writes it.
func died(n int) bus.Letter {
	return bus.Letter{Tenant: "t", Job: "j", Run: n, Kind: bus.KindExec, Class: bus.ClassProvisionUnavailable,
		Reason: plan.ReasonProvisionFailed, Status: 503, Step: "create", Actor: actor, Request: hash,
		Sealed: &bus.Sealed{KeyID: "k", Nonce: []byte("n"), Data: []byte("d")}}
}

func bury(t *testing.T, b *bus.Bus, l bus.Letter) bool {
	t.Helper()
	created, err := b.DeadLetter(within(t), l)
	if err != nil {
		t.Fatalf("dead letter: %v", err)
	}
	return created
}

func stateIs(t *testing.T, b *bus.Bus, want bus.LetterState, run int) *bus.Letter {
	t.Helper()
	l, err := b.Letter(within(t), letterID)
	if err != nil || l.State != want || l.Run != run {
		t.Fatalf("got %+v, %v, want %s %d", l, err, want, run)
	}
	return l
}

func refusal(t *testing.T, err error) bus.ReplayRefusal {
	t.Helper()
	var refused *bus.ReplayRefused
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	return refused.Why
}

// ticker is a clock that tests move on.
type ticker struct{ ns atomic.Int64 }

func newTicker() *ticker {
	c := &ticker{}
	c.ns.Store(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *ticker) now() time.Time         { return time.Unix(0, c.ns.Add(1)).UTC() }
func (c *ticker) pass(d time.Duration)   { c.ns.Add(int64(d)) }
func (c *ticker) config(cfg *bus.Config) { cfg.Now = c.now }
func by(who string) bus.ReplayOptions    { return bus.ReplayOptions{By: who} }

// case 74 and 77: one record per request, however often the worker repeats it, readable without taking it away.
func TestCase74And77RepeatingADeadLetterLeavesOneRecord(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	r := setup(t, func(c *bus.Config) { c.Registerer = reg })
	var wg sync.WaitGroup
	var created atomic.Int32
	for range 8 {
		wg.Go(func() {
			if bury(t, r.bus, died(0)) {
				created.Add(1)
			}
		})
	}
	wg.Wait()
	if created.Load() != 1 {
		t.Fatalf("created %d times", created.Load())
	}
	for range 2 {
		l := stateIs(t, r.bus, bus.LetterDead, 0)
		if l.Fingerprint == "" || l.DeadAt.IsZero() || l.Class != bus.ClassProvisionUnavailable || l.Actor.User != "ann" {
			t.Fatalf("got %+v", l)
		}
	}
	stream, err := r.js.Stream(within(t), bus.StreamDLQ)
	if err != nil || stream.CachedInfo().State.Msgs != 1 {
		t.Fatalf("%v, %v", stream, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "wakebus_dead_letters_total" {
			if m := f.GetMetric(); len(m) != 1 || m[0].GetCounter().GetValue() != 1 {
				t.Fatalf("counted %v", m)
			}
			return
		}
	}
	t.Fatal("dead letters are not counted")
}

// case 74: without a confirmed store there is an error, so that the request is kept; after recovery one record exists.
func TestCase74AFailingDeadLetterIsAnErrorAndAfterRecoveryThereIsOneRecord(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t, func(c *bus.Config) { c.PublishTimeout = 100 * time.Millisecond }), within(t)
	stream, err := r.js.Stream(ctx, bus.StreamDLQ)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	if err := r.js.DeleteStream(ctx, bus.StreamDLQ); err != nil {
		t.Fatal(err)
	}
	if created, err := r.bus.DeadLetter(ctx, died(0)); err == nil || created {
		t.Fatalf("got %v, %v without a stream", created, err)
	}
	cfg.MaxMsgSize = 64 // too small for any letter
	if _, err := r.js.CreateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if created, err := r.bus.DeadLetter(ctx, died(0)); !errors.Is(err, bus.ErrTooLarge) || created {
		t.Fatalf("got %v, %v", created, err)
	}
	cfg.MaxMsgSize = -1
	if _, err := r.js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if !bury(t, r.bus, died(0)) || bury(t, r.bus, died(0)) {
		t.Fatal("after recovery there is not exactly one record")
	}
}

// case 75 and 76: a replay is a run of its own, and of two operators one gets it.
func TestCase75And76OfManyOperatorsOneReplaysALetter(t *testing.T) {
	t.Parallel()
	r := setup(t)
	bury(t, r.bus, died(0))
	var wg sync.WaitGroup
	won := make(chan *bus.Letter, 8)
	for i := range 8 {
		wg.Go(func() {
			l, err := r.bus.MarkReplaying(within(t), letterID, by(fmt.Sprint("op", i)))
			if err == nil {
				won <- l
				return
			}
			if why := refusal(t, err); why != bus.RefusedReplaying {
				t.Errorf("operator %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	close(won)
	if len(won) != 1 {
		t.Fatalf("%d operators won", len(won))
	}
	l := <-won
	if l.Run != 1 || l.Replays != 1 || l.By == "" || l.Sealed == nil || l.Actor.User != "ann" {
		t.Fatalf("got %+v", l)
	}
	if s := stateIs(t, r.bus, bus.LetterReplaying, 1); s.By != l.By || len(s.History) != 1 || s.History[0].State != bus.LetterDead {
		t.Fatalf("stored %+v", s)
	}
}

// case 76: diagnostics survive a replay that dies again, and the next replay has the next number.
func TestCase76AReplayThatDiesAgainKeepsTheChainsStory(t *testing.T) {
	t.Parallel()
	clock := newTicker()
	r := setup(t, clock.config)
	bury(t, r.bus, died(0))
	first := stateIs(t, r.bus, bus.LetterDead, 0)
	for n := 1; n <= 3; n++ {
		clock.pass(time.Hour)
		if l, err := r.bus.MarkReplaying(within(t), letterID, by("ops")); err != nil || l.Run != n {
			t.Fatalf("replay %d: %+v, %v", n, l, err)
		}
		again := died(n)
		again.Class, again.Sealed, again.Actor, again.Request = bus.ClassProvisionConflict, nil, nil, ""
		if !bury(t, r.bus, again) || bury(t, r.bus, again) || bury(t, r.bus, died(n-1)) {
			t.Fatalf("run %d is not recorded once", n)
		}
	}
	l := stateIs(t, r.bus, bus.LetterDead, 3)
	if l.Class != bus.ClassProvisionConflict || l.Sealed == nil || l.Actor == nil || l.Request != hash || l.Replays != 3 {
		t.Fatalf("got %+v", l)
	}
	if !l.DeadAt.Equal(first.DeadAt) || len(l.History) != 6 || l.History[1].By != "ops" {
		t.Fatalf("the story is lost: %+v", l)
	}
}

func TestAResolvedLetterIsNotReplayedAgain(t *testing.T) {
	t.Parallel()
	r := setup(t)
	b, ctx := r.bus, within(t)
	bury(t, b, died(0))
	if changed, err := b.Resolve(ctx, letterID, 1); err != nil || changed {
		t.Fatalf("resolved before a replay: %v, %v", changed, err)
	}
	if _, err := b.MarkReplaying(ctx, letterID, by("ops")); err != nil {
		t.Fatal(err)
	}
	if changed, err := b.EndReplay(ctx, letterID, 2, bus.ResultBody{Outcome: plan.OutcomeExited}); err != nil || changed {
		t.Fatalf("resolved by another run: %v, %v", changed, err)
	}
	for i := range 2 {
		if changed, err := b.EndReplay(ctx, letterID, 1, bus.ResultBody{Outcome: plan.OutcomeExited}); err != nil || changed != (i == 0) {
			t.Fatalf("time %d: %v, %v", i, changed, err)
		}
	}
	stateIs(t, b, bus.LetterResolved, 1)
	if err := b.Discard(ctx, letterID, "ops", "w"); refusal(t, err) != bus.RefusedResolved {
		t.Fatal(err)
	}
	if _, err := b.MarkReplaying(ctx, letterID, by("ops")); refusal(t, err) != bus.RefusedResolved {
		t.Fatal(err)
	}
	if bury(t, b, died(1)) {
		t.Fatal("a resolved run died afterwards")
	}
}

func TestADeniedReplayIsDeadAgainWithItsReason(t *testing.T) {
	t.Parallel()
	r := setup(t)
	bury(t, r.bus, died(0))
	if _, err := r.bus.MarkReplaying(within(t), letterID, by("ops")); err != nil {
		t.Fatal(err)
	}
	result := bus.ResultBody{Outcome: plan.OutcomeDenied, Reason: plan.ReasonConcurrencyLimit, Message: "full"}
	if changed, err := r.bus.EndReplay(within(t), letterID, 1, result); err != nil || !changed {
		t.Fatalf("%v, %v", changed, err)
	}
	l := stateIs(t, r.bus, bus.LetterDead, 1)
	if l.Class != bus.ClassReplayDenied || l.Reason != plan.ReasonConcurrencyLimit || l.Sealed == nil {
		t.Fatalf("got %+v", l)
	}
	if l, err := r.bus.MarkReplaying(within(t), letterID, by("ops")); err != nil || l.Run != 2 {
		t.Fatalf("got %+v, %v", l, err)
	}
}

// case 76: what may have run needs force; what runs, succeeded, or is no request is refused even then.
func TestCase76ReplaysThatCouldRunSomethingTwiceAreRefused(t *testing.T) {
	t.Parallel()
	result := func(o plan.Outcome) func(*testing.T, *bus.Chain) {
		return func(t *testing.T, c *bus.Chain) {
			if err := c.Result(within(t), bus.ResultBody{Outcome: o}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change        func(*bus.Letter)
		journal       func(*testing.T, *bus.Chain)
		plain, forced bus.ReplayRefusal // "" is allowed
	}{
		"failed before it ran": {nil, result(plan.OutcomeFailed), "", ""},
		"journal is gone":      {nil, nil, "", ""},
		"unknown outcome":      {func(l *bus.Letter) { l.Class = bus.ClassOutcomeUnknown }, result(plan.OutcomeLost), bus.RefusedUnknown, ""},
		"may have run":         {func(l *bus.Letter) { l.MayHaveRun = true }, nil, bus.RefusedUnknown, ""},
		"malformed":            {func(l *bus.Letter) { l.Class = bus.ClassMalformed }, nil, bus.RefusedMalformed, bus.RefusedMalformed},
		"without a body":       {func(l *bus.Letter) { l.Sealed = nil }, nil, bus.RefusedUnsealed, bus.RefusedUnsealed},
		"succeeded by journal": {nil, result(plan.OutcomeExited), bus.RefusedSucceeded, bus.RefusedSucceeded},
		"runs by journal":      {nil, func(*testing.T, *bus.Chain) {}, bus.RefusedRunning, bus.RefusedRunning},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t).bus
			letter := died(0)
			if c.change != nil {
				c.change(&letter)
			}
			if c.journal != nil {
				chain := mustClaim(t, b, bus.RunKey{Tenant: "t", Job: "j"}, "w.1")
				c.journal(t, chain)
			}
			bury(t, b, letter)
			for _, try := range []struct {
				force bool
				want  bus.ReplayRefusal
			}{{false, c.plain}, {true, c.forced}} {
				if err := b.CheckReplay(within(t), letterID, try.force); (err == nil) != (try.want == "") {
					t.Fatalf("check, force %v: %v, want %q", try.force, err, try.want)
				}
				if try.want == "" && try.force != (c.plain != "") {
					continue // allowed without force is tried without it
				}
				_, err := b.MarkReplaying(within(t), letterID, bus.ReplayOptions{By: "ops", Force: try.force})
				if try.want == "" {
					if err != nil {
						t.Fatalf("force %v: %v", try.force, err)
					}
					return
				}
				if why := refusal(t, err); why != try.want {
					t.Fatalf("force %v: refused as %s, want %s", try.force, why, try.want)
				}
			}
		})
	}
}

// case 76: a second run of an interrupted replay continues with the same number, once nobody else can be at it.
func TestCase76AReplayThatNeverBeganIsCarriedOnLater(t *testing.T) {
	t.Parallel()
	clock := newTicker()
	r := setup(t, clock.config)
	bury(t, r.bus, died(0))
	if _, err := r.bus.MarkReplaying(within(t), letterID, by("first")); err != nil {
		t.Fatal(err)
	}
	_, err := r.bus.MarkReplaying(within(t), letterID, by("second"))
	if refusal(t, err) != bus.RefusedReplaying {
		t.Fatal(err)
	}
	clock.pass(time.Minute)
	if l, err := r.bus.MarkReplaying(within(t), letterID, by("second")); err != nil || l.Run != 1 || l.By != "first" {
		t.Fatalf("not carried on: %+v, %v", l, err)
	}
	mustClaim(t, r.bus, bus.RunKey{Tenant: "t", Job: "j", Run: 1}, "w.1")
	if _, err := r.bus.MarkReplaying(within(t), letterID, by("second")); refusal(t, err) != bus.RefusedReplaying {
		t.Fatal("a run that was claimed was carried on")
	}
}

func TestDiscardingClosesALetterForGood(t *testing.T) {
	t.Parallel()
	b := setup(t).bus
	ctx := within(t)
	if err := b.Discard(ctx, letterID, "ops", "w"); !errors.Is(err, bus.ErrNoLetter) {
		t.Fatalf("none: %v", err)
	}
	bury(t, b, died(0))
	if err := b.Discard(ctx, letterID, "ops", ""); !errors.Is(err, bus.ErrInvalid) {
		t.Fatalf("without a why: %v", err)
	}
	if _, err := b.MarkReplaying(ctx, letterID, by("ann")); err != nil {
		t.Fatal(err)
	}
	if err := b.Discard(ctx, letterID, "ops", "w"); refusal(t, err) != bus.RefusedReplaying {
		t.Fatal(err)
	}
	bury(t, b, died(1))
	for range 2 {
		if err := b.Discard(ctx, letterID, "ops", "user left"); err != nil {
			t.Fatal(err)
		}
	}
	if l := stateIs(t, b, bus.LetterDiscarded, 1); l.By != "ops" || l.Why != "user left" {
		t.Fatalf("got %+v", l)
	}
	if _, err := b.MarkReplaying(ctx, letterID, by("ops")); refusal(t, err) != bus.RefusedDiscarded {
		t.Fatal(err)
	}
}

// case 77: lists and counts are read from headers, filtered, and take nothing away.
func TestCase77LettersAreListedFilteredAndCounted(t *testing.T) {
	t.Parallel()
	clock := newTicker()
	r := setup(t, clock.config)
	b, ctx := r.bus, within(t)
	if all, err := b.LetterSummaries(ctx, bus.LetterFilter{}); err != nil || len(all) != 0 {
		t.Fatalf("empty: %v, %v", all, err)
	}
	for i := range 30 {
		l := died(0)
		l.Job, l.Tenant = fmt.Sprintf("j%02d", i), fmt.Sprintf("t%d", i%2)
		if i%3 == 0 {
			l.Class = bus.ClassCrashLoop
			l.Reason = plan.ReasonCrashLoop
		}
		bury(t, b, l)
		clock.pass(time.Minute)
	}
	if err := b.Discard(ctx, bus.LetterID{Tenant: "t0", Job: "j00"}, "ops", "w"); err != nil {
		t.Fatal(err)
	}
	half := time.Date(2026, 5, 1, 0, 15, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		f    bus.LetterFilter
		want int
	}{
		"dead":        {bus.LetterFilter{}, 29},
		"tenant":      {bus.LetterFilter{Tenant: "t1"}, 15},
		"class":       {bus.LetterFilter{Class: bus.ClassCrashLoop}, 9},
		"reason":      {bus.LetterFilter{Reason: plan.ReasonCrashLoop}, 9},
		"fingerprint": {bus.LetterFilter{Fingerprint: bus.Fingerprint(bus.ClassCrashLoop, 503, "", "create")}, 9},
		"since":       {bus.LetterFilter{Since: half}, 15},
		"until":       {bus.LetterFilter{Until: half}, 14},
		"discarded":   {bus.LetterFilter{States: []bus.LetterState{bus.LetterDiscarded}}, 1},
		"limit":       {bus.LetterFilter{Limit: 3}, 3},
	} {
		got, err := b.LetterSummaries(ctx, c.f)
		if err != nil || len(got) != c.want {
			t.Errorf("%s: %d letters, %v, want %d", name, len(got), err, c.want)
		}
	}
	newest, err := b.LetterSummaries(ctx, bus.LetterFilter{Limit: 1})
	if err != nil || newest[0].ID.Job != "j29" {
		t.Fatalf("the newest is %+v, %v", newest, err)
	}
	n := 0
	for l, err := range b.Letters(ctx, bus.LetterFilter{Class: bus.ClassCrashLoop, Limit: 4}) {
		if err != nil || l.Class != bus.ClassCrashLoop || l.Sealed == nil {
			t.Fatalf("got %+v, %v", l, err)
		}
		if n++; n == 2 {
			break
		}
	}
	stats, err := b.LetterStats(ctx, bus.LetterFilter{})
	if err != nil || stats.ByState[bus.LetterDead] != 29 || stats.ByState[bus.LetterDiscarded] != 1 || stats.ByClass[bus.ClassCrashLoop] != 9 ||
		len(stats.ByFingerprint) != 2 || stats.ByFingerprint[0].Count != 20 || stats.Oldest.Minute() != 1 {
		t.Fatalf("got %+v, %v", stats, err)
	}
	if _, err := b.LetterSummaries(ctx, bus.LetterFilter{Tenant: "*"}); !errors.Is(err, bus.ErrInvalid) {
		t.Fatalf("a wildcard tenant: %v", err)
	}
}

func TestAWalkLeavesNoConsumerBehind(t *testing.T) {
	t.Parallel()
	r := setup(t)
	bury(t, r.bus, died(0))
	if _, err := r.bus.LetterSummaries(within(t), bus.LetterFilter{}); err != nil {
		t.Fatal(err)
	}
	stream, err := r.js.Stream(within(t), bus.StreamDLQ)
	if err != nil {
		t.Fatal(err)
	}
	names := stream.ConsumerNames(within(t))
	for name := range names.Name() {
		t.Errorf("consumer %s is left", name)
	}
	if err := names.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		t.Fatal(err)
	}
}

func TestALetterThatIsNoLetterIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t).bus
	for _, l := range []bus.Letter{{}, {Tenant: "t", Job: "a.b", Class: bus.ClassCrashLoop, Reason: plan.ReasonError},
		{Tenant: "t", Job: "j", Reason: plan.ReasonError}, {Tenant: "t", Job: "j", Class: bus.ClassCrashLoop, Reason: "what"}} {
		if _, err := b.DeadLetter(within(t), l); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if _, err := b.MarkReplaying(within(t), letterID, bus.ReplayOptions{}); !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("a replay by nobody: %v", err)
	}
	if _, err := b.MarkReplaying(within(t), letterID, by("ops")); !errors.Is(err, bus.ErrNoLetter) {
		t.Errorf("a replay of nothing: %v", err)
	}
}

// A record larger than the broker takes is kept without its body: a request whose letter could never be stored would
// come back for ever.
func TestALetterThatIsTooLargeIsKeptWithoutItsBody(t *testing.T) {
	t.Parallel()
	b := setup(t).bus
	l := died(0)
	l.Sealed.Data = make([]byte, 2<<20)
	bury(t, b, l)
	if got := stateIs(t, b, bus.LetterDead, 0); got.Sealed != nil || got.Request != hash {
		t.Fatalf("got %+v", got)
	}
	if err := b.CheckReplay(within(t), letterID, true); refusal(t, err) != bus.RefusedUnsealed {
		t.Fatal(err)
	}
}

// A chain that goes on while a list is read is listed once, as it stands last.
func TestALetterThatChangesMeanwhileIsListedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t).bus
	const n = 40
	ids := make([]bus.LetterID, n)
	for i := range ids {
		l := died(0)
		l.Job = fmt.Sprintf("j%d", i)
		ids[i] = bus.LetterID{Tenant: l.Tenant, Job: l.Job}
		bury(t, b, l)
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		for _, id := range ids {
			if _, err := b.MarkReplaying(within(t), id, by("ops")); err != nil {
				t.Error(err)
			}
		}
	})
	for replaying := 0; replaying < n; {
		all, err := b.LetterSummaries(within(t), bus.LetterFilter{States: []bus.LetterState{bus.LetterDead, bus.LetterReplaying}})
		if err != nil {
			t.Fatal(err)
		}
		replaying = 0
		seen := map[bus.LetterID]bool{}
		for _, s := range all {
			seen[s.ID] = true
			if s.State == bus.LetterReplaying {
				replaying++
			}
		}
		if len(all) != n || len(seen) != n {
			t.Fatalf("%d entries of %d letters, of %d", len(all), len(seen), n)
		}
	}
}
