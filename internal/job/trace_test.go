package job_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/job"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// recorded gives a house whose worker's spans are kept, and the function that ends tracing and returns them.
func recorded(t *testing.T) (*house, func() tracetest.SpanStubs) {
	t.Helper()
	exporter := &keeping{InMemoryExporter: tracetest.NewInMemoryExporter()}
	none := func(string) (string, bool) { return "", false }
	tracing, err := telemetry.NewTracing(t.Context(), none, telemetry.TraceConfig{Exporter: exporter})
	if err != nil {
		t.Fatal(err)
	}
	h := build(t, eachApp(func(_ int, a *job.AppConfig) { a.Tracing = tracing }))
	return h, func() tracetest.SpanStubs {
		if err := tracing.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		return exporter.GetSpans()
	}
}

// traced is all that spans say to whoever reads them.
func traced(spans tracetest.SpanStubs) string {
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%s %v %v %s", s.Name, s.Attributes, s.Resource, s.Status.Description)
		for _, e := range s.Events {
			fmt.Fprintf(&b, " %s %v", e.Name, e.Attributes)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// keeping does not forget its spans at the shutdown, which is what flushes them.
type keeping struct{ *tracetest.InMemoryExporter }

func (k *keeping) Shutdown(context.Context) error { return nil }

var _ sdktrace.SpanExporter = (*keeping)(nil)

func TestOneTraceLeadsFromThePublisherToTheResultAndBack(t *testing.T) {
	t.Parallel()
	h, spans := recorded(t)
	const traceID, publisher = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	header := bus.Header{}
	header.Set(bus.HeaderTraceparent, "00-"+traceID+"-"+publisher+"-01")
	id := h.id("job")
	a := h.publish(t, bus.KindExec, tenant, id, bus.ExecRequest{V: 1, JobID: id, ConversationID: "c", Shell: "echo x"}, header)
	if r := a.result(); r.Outcome != plan.OutcomeExited {
		t.Fatalf("%+v", r)
	}
	for _, e := range a.events {
		if !strings.Contains(e.Traceparent, traceID) {
			t.Errorf("%s travels back with %q", e.Kind, e.Traceparent)
		}
	}
	// The run's own span ends after the result was read: its ack follows.
	if err := h.inst.StopWorker(0); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{} // span id -> name
	var got []string
	all := spans()
	for _, s := range all {
		names[s.SpanContext.SpanID().String()] = s.Name
	}
	for _, s := range all {
		if s.SpanContext.TraceID().String() != traceID {
			continue // the background roles' own
		}
		parent := names[s.Parent.SpanID().String()]
		if s.Parent.SpanID().String() == publisher {
			parent = "publisher"
		}
		got = append(got, parent+" > "+s.Name)
		if s.EndTime.Before(s.StartTime) {
			t.Errorf("%s ends before it begins", s.Name)
		}
	}
	for _, want := range []string{"publisher > run exec", "run exec > queue", "run exec > authorise", "run exec > lease", "run exec > provision",
		"provision > plan", "provision > create", "run exec > exec", "run exec > result"} {
		if !slices.Contains(got, want) {
			t.Errorf("there is no span %q in %q", want, got)
		}
	}
}
