package bus_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/bus"
)

// leaderReads counts the questions that only a stream's leader answers.
func leaderReads(t *testing.T, url string) func() int64 {
	t.Helper()
	raw, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	n := new(atomic.Int64)
	if _, err := raw.Subscribe("$JS.API.STREAM.MSG.GET.>", func(*nats.Msg) { n.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := raw.Flush(); err != nil {
		t.Fatal(err)
	}
	return n.Load
}

func TestASingleServersMarksAndLinksAreReadDirectlyAndTheSame(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t, func(c *bus.Config) { c.DirectReads = true }), within(t)
	asked := leaderReads(t, r.server.URL())
	read := func(job, conversation string) *bus.CancelMark {
		t.Helper()
		mark, err := r.bus.CancelMark(ctx, "t", job, conversation, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return mark
	}
	if mark := read("j", "c"); mark != nil {
		t.Fatalf("before: %+v", mark)
	}
	for _, target := range []bus.CancelTarget{{Tenant: "t", Conversation: "c"}, {Tenant: "t", Job: "j"}} {
		if err := r.bus.MarkCancel(ctx, target, bus.CancelRequest{By: "ann"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if mark := read("j", "c"); mark == nil || mark.Job != "j" || mark.By != "ann" || mark.At.IsZero() {
		t.Errorf("the job's own mark comes first: %+v", mark)
	}
	if mark := read("other", "c"); mark == nil || mark.Conversation != "c" {
		t.Errorf("the conversation's: %+v", mark)
	}
	if mark := read("other", "d"); mark != nil {
		t.Errorf("nobody's: %+v", mark)
	}
	rev, err := r.bus.Links().Create(ctx, "k", []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	if entry, err := r.bus.Links().Get(ctx, "k"); err != nil || string(entry.Value) != "v" || entry.Revision != rev {
		t.Errorf("the link reads %+v, %v", entry, err)
	}
	if err := r.raw.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := asked(); n != 0 {
		t.Errorf("the leader was asked %d times", n)
	}
}
