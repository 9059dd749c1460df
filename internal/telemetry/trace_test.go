package telemetry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"

	"github.com/wakebus/wakebus/internal/telemetry"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func vars(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestTracingIsOffByDefaultAndACallersContextStillTravels(t *testing.T) {
	t.Parallel()
	tracing, err := telemetry.NewTracing(t.Context(), vars(), telemetry.TraceConfig{})
	if err != nil || tracing.On() {
		t.Fatalf("on=%v %v", tracing.On(), err)
	}
	ctx, span := tracing.Start(telemetry.Extract(t.Context(), map[string]string{"traceparent": parent}), "step")
	defer span.End()
	headers := map[string]string{}
	telemetry.Inject(ctx, headers)
	if headers["traceparent"] != parent || span.IsRecording() {
		t.Errorf("passed on %v, recording %v", headers, span.IsRecording())
	}
	if err := tracing.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTracingThatIsOffAllocatesNothingForASpan(t *testing.T) {
	tracing, err := telemetry.NewTracing(t.Context(), vars(), telemetry.TraceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() { _, span := tracing.Start(ctx, "step"); span.End() }); n > 1 {
		t.Errorf("%v allocations", n) // one: the context that carries the empty span
	}
}

func TestASpanContinuesTheCallersTraceAndIsPassedOn(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tracing, err := telemetry.NewTracing(t.Context(), vars(), telemetry.TraceConfig{Service: "worker", Exporter: exporter})
	if err != nil || !tracing.On() {
		t.Fatalf("%v", err)
	}
	ctx, span := tracing.Start(telemetry.Extract(t.Context(), map[string]string{"traceparent": parent, "tracestate": "a=b"}), "exec")
	headers := map[string]string{}
	telemetry.Inject(ctx, headers)
	span.End()
	own := span.SpanContext()
	if want := "00-0af7651916cd43dd8448eb211c80319c-" + own.SpanID().String() + "-01"; headers["traceparent"] != want || headers["tracestate"] != "a=b" {
		t.Errorf("passed on %v", headers)
	}
	if err := tracing.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAMalformedContextIsAsGoodAsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "00", "00-0-0-0", "ff-" + parent[3:], "00-00000000000000000000000000000000-b7ad6b7169203331-01", parent + "\r\nx: y"} {
		ctx := telemetry.Extract(t.Context(), map[string]string{"traceparent": text})
		if trace.SpanContextFromContext(ctx).IsValid() {
			t.Errorf("%q is taken", text)
		}
		headers := map[string]string{}
		if telemetry.Inject(ctx, headers); len(headers) != 0 {
			t.Errorf("%q is passed on as %v", text, headers)
		}
	}
}

func TestCase82AnOptionThatCannotBeHonouredIsRefused(t *testing.T) {
	t.Parallel()
	for _, pairs := range [][]string{
		{"OTEL_TRACES_EXPORTER", "zipkin"}, {"OTEL_TRACES_EXPORTER", "console"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
	} {
		if _, err := telemetry.NewTracing(t.Context(), vars(pairs...), telemetry.TraceConfig{}); !errors.Is(err, telemetry.ErrTraceSetting) {
			t.Errorf("%v: %v", pairs, err)
		}
	}
	for _, pairs := range [][]string{
		{"OTEL_SDK_DISABLED", "true", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"},
		{"OTEL_TRACES_EXPORTER", "none", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"},
	} {
		tracing, err := telemetry.NewTracing(t.Context(), vars(pairs...), telemetry.TraceConfig{})
		if err != nil || tracing.On() {
			t.Errorf("%v: %v", pairs, err)
		}
	}
}

func TestSpansReachACollectorBeforeTheProcessEnds(t *testing.T) {
	got := make(chan int, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- len(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tracing, err := telemetry.NewTracing(t.Context(), vars("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL), telemetry.TraceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracing.Start(t.Context(), "exec")
	span.End()
	if err := tracing.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := <-got; n == 0 {
		t.Error("an empty export")
	}
}

func TestABuildSaysItsVersionInOneLine(t *testing.T) {
	t.Parallel()
	if got := (telemetry.Build{Version: "v1", Commit: "abc", Go: "go1"}).String(); got != "v1 (abc) go1" {
		t.Errorf("says %q", got)
	}
	if b := telemetry.ReadBuild(); b.Version != "v"+telemetry.Release+"-dev" || b.Go == "" {
		t.Errorf("%+v", b)
	}
}

func TestTheReleaseIsTheChangelogsNewest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## \[?(\d+\.\d+\.\d+)`).FindSubmatch(text)
	if newest == nil || string(newest[1]) != telemetry.Release {
		t.Errorf("CHANGELOG.md is at %s, the code at %s", newest, telemetry.Release)
	}
}
