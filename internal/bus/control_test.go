package bus_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/bus"
)

func TestACancelMarkIsFoundWithWhoAskedAndWhy(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t).bus, within(t)
	if mark, err := b.CancelMark(ctx, "t", "j", "c", time.Now()); err != nil || mark != nil {
		t.Fatalf("before: %v, %v", mark, err)
	}
	hdr := bus.Header{}
	hdr.Set(bus.HeaderGrant, "grant")
	hdr.Set("Nats-Expected-Last-Sequence", "99999") // must not travel on
	err := b.MarkCancel(ctx, bus.CancelTarget{Tenant: "t", Job: "j"}, bus.CancelRequest{By: "ann", Why: "typo"}, hdr)
	if err != nil {
		t.Fatal(err)
	}
	mark, err := b.CancelMark(ctx, "t", "j", "", time.Now())
	if err != nil || mark == nil || mark.By != "ann" || mark.Why != "typo" || mark.Grant != "grant" || mark.Job != "j" || mark.At.IsZero() {
		t.Fatalf("got %+v, %v", mark, err)
	}
	if mark, err := b.CancelMark(ctx, "other", "j", "", time.Now()); err != nil || mark != nil {
		t.Fatalf("another tenant's job is marked too: %v, %v", mark, err)
	}
}

func TestAConversationsMarkCountsOnlyForRequestsStoredBeforeIt(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t).bus, within(t)
	if err := b.MarkCancel(ctx, bus.CancelTarget{Tenant: "t", Conversation: "c"}, bus.CancelRequest{}, nil); err != nil {
		t.Fatal(err)
	}
	mark, err := b.CancelMark(ctx, "t", "j", "c", time.Time{}.Add(time.Hour))
	if err != nil || mark == nil || mark.Conversation != "c" {
		t.Fatalf("a request from before: %v, %v", mark, err)
	}
	if later, err := b.CancelMark(ctx, "t", "j", "c", mark.At); err != nil || later != nil {
		t.Fatalf("a request stored with it: %v, %v", later, err)
	}
	if later, err := b.CancelMark(ctx, "t", "j", "c", mark.At.Add(time.Second)); err != nil || later != nil {
		t.Fatalf("a later request: %v, %v", later, err)
	}
}

// case 84: ids with wildcards, dots or line breaks reach no subject.
func TestCase84CancelTargetsThatWouldWidenASubjectAreRefused(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t).bus, within(t)
	for _, target := range []bus.CancelTarget{{}, {Tenant: "t"}, {Tenant: "*", Job: "j"}, {Tenant: "t", Job: ">"}, {Tenant: "t", Job: "a.b"},
		{Tenant: "t", Job: "a\r\n"}, {Tenant: "t", Job: "j", Conversation: "c"}, {Tenant: "t", Conversation: "a b"}} {
		if err := b.MarkCancel(ctx, target, bus.CancelRequest{}, nil); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("%+v: %v", target, err)
		}
	}
	if err := b.MarkCancel(ctx, bus.CancelTarget{Tenant: "t", Job: "j"}, bus.CancelRequest{By: strings.Repeat("x", 200)}, nil); !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("a long by: %v", err)
	}
}

func TestAWatcherHearsEveryCancelOfEveryTenantAtOnce(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	heard := make(chan bus.CancelMark, 100)
	w, err := r.bus.WatchCancels(ctx, func(m bus.CancelMark) { heard <- m })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := r.raw.Publish("sandbox.cancel.t1.job.j1", []byte(`{"by":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if err := r.raw.Publish("sandbox.cancel.t2.conversation.c2", []byte("not json")); err != nil {
		t.Fatal(err)
	}
	want := map[bus.CancelTarget]string{{Tenant: "t1", Job: "j1"}: "x", {Tenant: "t2", Conversation: "c2"}: ""}
	for len(want) > 0 {
		select {
		case m := <-heard:
			if by, ok := want[m.CancelTarget]; ok && by == m.By {
				delete(want, m.CancelTarget)
			}
		case <-ctx.Done():
			t.Fatalf("not heard: %v", want)
		}
	}
	w.Close() // twice is harmless
}

func TestAWatcherHearsAfterAnInterruptionWhatWasMarkedMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	dir := t.TempDir()
	server := startServer(t, bus.ServerConfig{Dir: dir, User: "u", Password: "p"})
	b := connect(t, server)
	if err := b.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	heard := make(chan bus.CancelMark, 10)
	w, err := b.WatchCancels(ctx, func(m bus.CancelMark) { heard <- m })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	port := portOf(t, server)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	// The mark is stored by another client while the watcher's connection is away: the store is opened on another port.
	other := startServer(t, bus.ServerConfig{Dir: dir, User: "u", Password: "p"})
	nc, err := nats.Connect(other.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.RequestWithContext(ctx, "sandbox.cancel.t.job.away", nil); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	startServer(t, bus.ServerConfig{Dir: dir, Port: port, User: "u", Password: "p"})
	select {
	case m := <-heard:
		if m.Job != "away" || m.At.IsZero() {
			t.Fatalf("heard %+v", m)
		}
	case <-ctx.Done():
		t.Fatal("the mark was not heard")
	}
}

func TestTheExecutionSwitchIsOnUntilSomebodySwitchesItOff(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	b := r.bus
	if s, err := b.Execution(ctx); err != nil || !s.On {
		t.Fatalf("before: %+v, %v", s, err)
	}
	told := make(chan bus.ExecutionSwitch, 10)
	w, err := b.WatchExecution(ctx, func(s bus.ExecutionSwitch) { told <- s })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if s := <-told; !s.On {
		t.Fatalf("first told %+v", s)
	}
	if err := b.SetExecution(ctx, false, "ops", "incident 7"); err != nil {
		t.Fatal(err)
	}
	select {
	case s := <-told:
		if s.On || s.By != "ops" || s.Why != "incident 7" {
			t.Fatalf("told %+v", s)
		}
	case <-ctx.Done():
		t.Fatal("not told of the off")
	}
	if s, err := b.Execution(ctx); err != nil || s.On || s.Why != "incident 7" {
		t.Fatalf("after: %+v, %v", s, err)
	}
	if err := b.SetExecution(ctx, true, "ops", ""); err != nil {
		t.Fatal(err)
	}
	if s, err := b.Execution(ctx); err != nil || !s.On {
		t.Fatalf("on again: %+v, %v", s, err)
	}
	if err := b.SetExecution(ctx, false, "", ""); !errors.Is(err, bus.ErrInvalid) {
		t.Fatalf("without a name: %v", err)
	}
}

func TestTheExecutionSwitchOutlivesTheStreamsAge(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	if err := r.bus.SetExecution(ctx, false, "ops", "w"); err != nil {
		t.Fatal(err)
	}
	stream, err := r.js.Stream(ctx, bus.StreamControl)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetLastMsgForSubject(ctx, bus.SubjectExecution)
	if err != nil || msg.Header.Get("Nats-TTL") != "never" {
		t.Fatalf("got %v, %v", msg, err)
	}
	// The same with a stream whose age is over at once: everything else in it goes, the switch stays.
	cfg := stream.CachedInfo().Config
	cfg.MaxAge = time.Second
	if _, err := r.js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if err := r.bus.MarkCancel(ctx, bus.CancelTarget{Tenant: "t", Job: "j"}, bus.CancelRequest{}, nil); err != nil {
		t.Fatal(err)
	}
	for {
		mark, err := r.bus.CancelMark(ctx, "t", "j", "", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if mark == nil {
			break
		}
	}
	if s, err := r.bus.Execution(ctx); err != nil || s.On {
		t.Fatalf("the age lifted the off: %+v, %v", s, err)
	}
}

func TestASwitchThatCannotBeReadIsOff(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	for _, junk := range []string{"on", "", "{}", `{"on":true}`, `[]`, `{"on":"true","by":"x"}`} {
		if _, err := r.js.Publish(ctx, bus.SubjectExecution, []byte(junk)); err != nil {
			t.Fatal(err)
		}
		if s, err := r.bus.Execution(ctx); err != nil || s.On || !s.Unreadable || s.Why == "" {
			t.Fatalf("%q: got %+v, %v", junk, s, err)
		}
	}
	if err := r.bus.SetExecution(ctx, true, "olga", "mended"); err != nil {
		t.Fatal(err)
	}
	if s, err := r.bus.Execution(ctx); err != nil || !s.On || s.Unreadable {
		t.Fatalf("set anew: %+v, %v", s, err)
	}
}
