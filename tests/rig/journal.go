package rig

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// Journal reads everything that is stored of a run, in order.
func (c *Caller) Journal(ctx context.Context, job string) ([]bus.Event, error) {
	var all []bus.Event
	key, from := bus.RunKey{Tenant: Tenant, Job: job}, uint64(1)
	for {
		events, _, more, err := c.Bus.History(ctx, key, from, 0, 0)
		if err != nil {
			return nil, fmt.Errorf("read journal of %s: %w", job, err)
		}
		all = append(all, events...)
		if !more || len(events) == 0 {
			return all, nil
		}
		from = events[len(events)-1].Seq + 1
	}
}

// CheckJournal lists everything that the stored events of an ended run may never show: a hole or a repeat in Wb-Seq or in
// the bytes, a phase that goes back, an event of somebody who did not own the run, more or less than one result.
func CheckJournal(events []bus.Event) error {
	var errs []error
	bad := func(e *bus.Event, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %d: %s", e.Kind, e.Seq, fmt.Sprintf(format, args...)))
	}
	var out [2]int64
	owner, phase, results := "", plan.PhaseNone, 0
	for i := range events {
		e := &events[i]
		if e.Seq != uint64(i+1) {
			bad(e, "stands at place %d", i+1)
		}
		if results > 0 {
			bad(e, "follows the result")
		}
		if e.StdoutOffset != out[0] || e.StderrOffset != out[1] {
			bad(e, "says offsets %d %d, delivered were %d %d", e.StdoutOffset, e.StderrOffset, out[0], out[1])
		}
		out[0], out[1] = e.End()
		switch e.Kind {
		case bus.EventAccepted, bus.EventTakenOver:
			owner = e.Owner
		case bus.EventResult:
			results++
		case bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStarted, bus.EventStopping, bus.EventHeartbeat,
			bus.EventStdout, bus.EventStderr, bus.EventGap:
		}
		if e.Owner != owner && (e.Owner != bus.NoOwner || e.Kind != bus.EventWaiting) {
			bad(e, "is of %s, the owner is %s", e.Owner, owner)
		}
		if e.Kind.IsOutput() {
			continue
		}
		rec, err := e.Record()
		if err != nil {
			bad(e, "has no record: %v", err)
			continue
		}
		if rec.Phase.Before(phase) {
			bad(e, "goes back from %s to %s", phase, rec.Phase)
		}
		phase = rec.Phase
	}
	if results != 1 {
		errs = append(errs, fmt.Errorf("%d results", results))
	}
	return errors.Join(errs...)
}

// Text is the journal in one line for people.
func Text(events []bus.Event) string {
	words := make([]string, 0, len(events))
	for i := range events {
		e := &events[i]
		word := string(e.Kind)
		if e.IsSeam() {
			word = "seam"
		}
		if e.Kind == bus.EventWaiting {
			word += "(" + string(e.Data[:min(len(e.Data), 60)]) + ")"
		}
		if n := len(words); n > 0 && words[n-1] == word {
			continue
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
