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
// the bytes, a phase that goes back, an event of somebody who did not own the run, more or less than one result. Between
// a taker's first event and the seam with which it takes the output chain, former owners may still get output in; the
// first of it has the number that the taker used.
func CheckJournal(events []bus.Event) error {
	c := journal{former: map[string]bool{}, next: 1}
	for i := range events {
		c.event(&events[i])
	}
	if c.results != 1 {
		c.errs = append(c.errs, fmt.Errorf("%d results", c.results))
	}
	return errors.Join(c.errs...)
}

// journal is what the events up to one say about the next.
type journal struct {
	errs    []error
	next    uint64
	taken   uint64          // the number of the last taken_over while its output chain is not seamed; 0 afterwards
	former  map[string]bool // who owned the run before
	owner   string
	out     [2]int64
	phase   plan.Phase
	results int
}

func (c *journal) bad(e *bus.Event, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s %d: %s", e.Kind, e.Seq, fmt.Sprintf(format, args...)))
}

func (c *journal) event(e *bus.Event) {
	shared := c.taken != 0 && e.Seq == c.taken && c.next == e.Seq+1 && e.Kind.IsOutput()
	if e.Seq != c.next && !shared {
		c.bad(e, "stands at place %d", c.next)
	}
	c.next = e.Seq + 1
	if c.results > 0 {
		c.bad(e, "follows the result")
	}
	if e.StdoutOffset != c.out[0] || e.StderrOffset != c.out[1] {
		c.bad(e, "says offsets %d %d, delivered were %d %d", e.StdoutOffset, e.StderrOffset, c.out[0], c.out[1])
	}
	c.out[0], c.out[1] = e.End()
	switch e.Kind {
	case bus.EventAccepted:
		c.owner = e.Owner
	case bus.EventTakenOver:
		c.former[c.owner] = true
		c.owner, c.taken = e.Owner, e.Seq
	case bus.EventResult:
		c.results++
	case bus.EventWaiting, bus.EventPlanned, bus.EventDialing, bus.EventStarted, bus.EventStopping, bus.EventHeartbeat,
		bus.EventStdout, bus.EventStderr, bus.EventGap:
	}
	late := c.taken != 0 && e.Kind.IsOutput() && c.former[e.Owner]
	if e.Owner != c.owner && !late && (e.Owner != bus.NoOwner || e.Kind != bus.EventWaiting) {
		c.bad(e, "is of %s, the owner is %s", e.Owner, c.owner)
	}
	if e.Kind.IsOutput() {
		if e.Owner == c.owner {
			c.taken = 0
		}
		return
	}
	rec, err := e.Record()
	if err != nil {
		c.bad(e, "has no record: %v", err)
		return
	}
	if rec.Phase.Before(c.phase) {
		c.bad(e, "goes back from %s to %s", c.phase, rec.Phase)
	}
	c.phase = rec.Phase
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
