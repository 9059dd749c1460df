package main

import (
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
)

func TestMissingOutputIsSaidAndSeamsAreNot(t *testing.T) {
	t.Parallel()
	gap := func(body string) bus.Event { return bus.Event{Kind: bus.EventGap, Data: []byte(body)} }
	for name, c := range map[string]struct {
		events []bus.Event
		want   string
	}{
		"nothing missing": {nil, ""},
		"a seam":          {[]bus.Event{gap(`{"stream":"both","bytes":0,"why":"takeover"}`)}, ""},
		"counted":         {[]bus.Event{gap(`{"stream":"stdout","bytes":7,"why":"cap"}`), gap(`{"stream":"stderr","bytes":5,"why":"cap"}`)}, "output is missing in 2 places: 12 bytes"},
		"not counted":     {[]bus.Event{gap(`{"stream":"both","bytes":null,"why":"takeover"}`)}, "output may be missing in 1 places; nobody knows how much"},
		"both":            {[]bus.Event{gap(`{"stream":"both","bytes":null,"why":"takeover"}`), gap(`{"stream":"stdout","bytes":3,"why":"cap"}`)}, "output is missing in 2 places: 3 bytes, and more of which nobody knows the number"},
	} {
		var s show
		for _, ev := range c.events {
			s.gap(ev)
		}
		if got := s.missing(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
