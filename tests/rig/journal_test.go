package rig_test

import (
	"encoding/json"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/tests/rig"
)

// A check that everything passes proves nothing.
func TestAJournalHoldsOnlyWithOneOwnerAtATime(t *testing.T) {
	t.Parallel()
	state, err := json.Marshal(map[string]any{"run": bus.Record{Phase: plan.PhaseStarted}})
	if err != nil {
		t.Fatal(err)
	}
	none := int64(0)
	seam, err := json.Marshal(bus.GapBody{Stream: bus.GapBoth, Bytes: &none, Why: bus.GapWhyTakeover})
	if err != nil {
		t.Fatal(err)
	}
	say := func(kind bus.EventKind, seq uint64, owner string) bus.Event {
		e := bus.Event{Kind: kind, Seq: seq, Owner: owner, Data: state}
		switch kind {
		case bus.EventGap:
			e.Data = seam
		case bus.EventStdout:
			e.Data = nil
		case bus.EventAccepted, bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStarted, bus.EventTakenOver,
			bus.EventStopping, bus.EventHeartbeat, bus.EventResult, bus.EventStderr:
		}
		return e
	}
	begun := []bus.Event{say(bus.EventAccepted, 1, "a"), say(bus.EventStdout, 2, "a"), say(bus.EventTakenOver, 3, "b")}
	for name, c := range map[string]struct {
		rest []bus.Event
		want bool
	}{
		"a quiet take-over":              {[]bus.Event{say(bus.EventGap, 4, "b"), say(bus.EventStdout, 5, "b"), say(bus.EventResult, 6, "b")}, true},
		"output before the seam":         {[]bus.Event{say(bus.EventStdout, 3, "a"), say(bus.EventStdout, 4, "a"), say(bus.EventGap, 5, "b"), say(bus.EventResult, 6, "b")}, true},
		"a taker that died before it":    {[]bus.Event{say(bus.EventStdout, 3, "a"), say(bus.EventTakenOver, 4, "c"), say(bus.EventStdout, 4, "a"), say(bus.EventGap, 5, "c"), say(bus.EventResult, 6, "c")}, true},
		"output behind the seam":         {[]bus.Event{say(bus.EventGap, 4, "b"), say(bus.EventStdout, 5, "a"), say(bus.EventResult, 6, "b")}, false},
		"a number used twice":            {[]bus.Event{say(bus.EventGap, 4, "b"), say(bus.EventStdout, 4, "b"), say(bus.EventResult, 5, "b")}, false},
		"a state of the former owner":    {[]bus.Event{say(bus.EventHeartbeat, 4, "a"), say(bus.EventGap, 5, "b"), say(bus.EventResult, 6, "b")}, false},
		"output of somebody never owner": {[]bus.Event{say(bus.EventStdout, 4, "x"), say(bus.EventGap, 5, "b"), say(bus.EventResult, 6, "b")}, false},
		"a hole":                         {[]bus.Event{say(bus.EventGap, 5, "b"), say(bus.EventResult, 6, "b")}, false},
		"two results":                    {[]bus.Event{say(bus.EventResult, 4, "b"), say(bus.EventResult, 5, "b")}, false},
		"none":                           {[]bus.Event{say(bus.EventGap, 4, "b")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := rig.CheckJournal(append(begun[:3:3], c.rest...)); (err == nil) != c.want {
				t.Errorf("holds: %t, want %t: %v", err == nil, c.want, err)
			}
		})
	}
}
