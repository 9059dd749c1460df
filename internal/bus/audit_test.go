package bus_test

import (
	"errors"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
)

// case 60: repeating what follows a result writes a run's audit record once.
func TestCase60ARunsAuditRecordIsWrittenOnceHoweverOftenItIsRepeated(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	sink := r.bus.AuditSink()
	for _, record := range []string{"first", "second", "third"} {
		if err := sink.Write(ctx, "t", "run", "j.0", []byte(record), true); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := r.js.Stream(ctx, bus.StreamAudit)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetLastMsgForSubject(ctx, "sandbox.audit.t.run.j.0")
	if err != nil || string(msg.Data) != "first" || msg.Sequence != 1 {
		t.Fatalf("got %v, %v", msg, err)
	}
	for range 2 {
		if err := sink.Write(ctx, "t", "open", "p", []byte("x"), false); err != nil {
			t.Fatal(err)
		}
	}
	info, err := stream.Info(ctx)
	if err != nil || info.State.Msgs != 3 {
		t.Fatalf("%d records, %v", info.State.Msgs, err)
	}
}

// case 84: no part of an audit subject widens it.
func TestCase84AuditSubjectsAreMadeOfTokensOnly(t *testing.T) {
	t.Parallel()
	r, ctx := setup(t), within(t)
	for _, parts := range [][3]string{{"", "run", "j"}, {"t", "*", "j"}, {"t", "run", ""}, {"t", "run", "a..b"}, {"t", "run", ">"}, {"t", "run", "a b"}} {
		if err := r.bus.AuditSink().Write(ctx, parts[0], parts[1], parts[2], nil, false); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("%q: %v", parts, err)
		}
	}
}
