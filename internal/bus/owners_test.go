package bus_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// owners is a model of one run: whoever took it last may speak, everybody before is fenced.
type owners struct {
	t      *testing.T
	bus    *bus.Bus
	key    bus.RunKey
	chains []*bus.Chain
	output bytes.Buffer
	open   bool // somebody owns it
	ended  bool
}

func (o *owners) current() *bus.Chain { return o.chains[len(o.chains)-1] }

// check judges an answer: the current owner is served, the others are silenced.
func (o *owners) check(t *rapid.T, what string, c *bus.Chain, err error) bool {
	if c == o.current() && o.open {
		if err != nil {
			t.Fatalf("%s by the owner: %v", what, err)
		}
		return true
	}
	if !errors.Is(err, bus.ErrFenced) && !errors.Is(err, bus.ErrEnded) && !errors.Is(err, bus.ErrClosed) {
		t.Fatalf("%s by somebody else: got %v, want to be silenced", what, err)
	}
	return false
}

func (o *owners) step(t *rapid.T) {
	ctx := within(o.t)
	c := rapid.SampledFrom(o.chains).Draw(t, "who")
	switch rapid.SampledFrom([]string{"write", "write", "beat", "take", "take", "release", "result"}).Draw(t, "what") {
	case "write":
		data := rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "data")
		if o.check(t, "write", c, errors.Join(c.Write(ctx, bus.EventStdout, data), c.Flush(ctx))) {
			o.output.Write(data)
		}
	case "beat":
		o.check(t, "heartbeat", c, c.Heartbeat(ctx, bus.HeartbeatBody{}))
	case "release":
		if o.check(t, "release", c, c.Release(ctx, bus.WaitingBody{For: bus.WaitWorker})) {
			o.open = false
		}
	case "result":
		if o.check(t, "result", c, c.Result(ctx, bus.ResultBody{Outcome: plan.OutcomeExited})) {
			o.open, o.ended = false, true
		}
	case "take":
		last, _, err := o.bus.LastState(ctx, o.key)
		if err != nil {
			t.Fatal(err)
		}
		next, err := o.bus.TakeOver(ctx, o.key, last, bus.Owner(fmt.Sprintf("w%d.1", len(o.chains))), nil)
		if o.ended {
			if !errors.Is(err, bus.ErrEnded) {
				t.Fatalf("taking over an ended run: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatalf("take over: %v", err)
		}
		o.chains, o.open = append(o.chains, next), true
	}
}

func TestWhateverOwnersDoTheRunStaysOneNumberedWholeWithOneEnd(t *testing.T) {
	t.Parallel()
	r := setup(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		k := key(fmt.Sprintf("model%d", n))
		first, err := r.bus.Claim(within(t), k, "w0.1", claimOf(1))
		if err != nil {
			rt.Fatal(err)
		}
		o := &owners{t: t, bus: r.bus, key: k, chains: []*bus.Chain{first}, open: true}
		defer func() {
			for _, c := range o.chains {
				c.Close()
			}
		}()
		if err := first.Dialing(within(t), bus.DialingBody{}); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			o.step(rt)
		}
		events := history(t, r.bus, k)
		var out []byte
		for i, e := range events {
			if e.Seq != uint64(i+1) || e.StdoutOffset != int64(len(out)) {
				rt.Fatalf("event %d (%s) has number %d and offset %d after %d bytes", i, e.Kind, e.Seq, e.StdoutOffset, len(out))
			}
			if (e.Kind == bus.EventResult) != (o.ended && i == len(events)-1) {
				rt.Fatalf("event %d of %d is %s", i, len(events), e.Kind)
			}
			if e.Kind == bus.EventStdout {
				out = append(out, e.Data...)
			}
		}
		if !bytes.Equal(out, o.output.Bytes()) {
			rt.Fatalf("%d bytes are stored, the owners were told of %d", len(out), o.output.Len())
		}
	})
}
