package telemetry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// ScopeName is the instrumentation scope of every span.
const ScopeName = "github.com/wakebus/wakebus"

// flushTimeout bounds how long a process waits at its end for spans that were not sent yet.
const flushTimeout = 5 * time.Second

// ErrTraceSetting: an OTEL_ variable asks for something that this exporter does not do. The error's text names it.
var ErrTraceSetting = errors.New("tracing cannot be set up as asked")

// TraceConfig says who traces.
type TraceConfig struct {
	// Service is the service's name unless OTEL_SERVICE_NAME gives another. Defaults to wakebus.
	Service string
	// Version is the service's version. Defaults to none.
	Version string
	// Exporter takes the place of the OTLP exporter and switches tracing on; for tests. Defaults to none.
	Exporter sdktrace.SpanExporter
}

// Tracing makes spans and carries their context over the bus. When tracing is off its spans cost nothing and record
// nothing, while a caller's context still travels on. Safe for concurrent use.
type Tracing struct {
	trace.Tracer
	provider *sdktrace.TracerProvider // nil when off
}

// The propagator is fixed: the contract's headers are W3C trace context. Baggage is not carried on, because it would
// let a tenant write into the headers of our events.
var propagator = propagation.TraceContext{}

// NewTracing sets tracing up by the standard variables, which it finds through lookup (os.LookupEnv has its shape;
// the exporter reads the rest of them from the environment itself). It is off unless one of
// OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and OTEL_TRACES_EXPORTER=otlp is there, and off with
// OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none. What it cannot honour is an ErrTraceSetting. It does not
// connect; an unreachable collector loses spans and nothing else.
func NewTracing(ctx context.Context, lookup func(string) (string, bool), cfg TraceConfig) (*Tracing, error) {
	on, err := tracingAsked(lookup)
	if err != nil {
		return nil, err
	}
	exporter := cfg.Exporter
	if exporter == nil {
		if !on {
			return &Tracing{Tracer: noop.NewTracerProvider().Tracer(ScopeName)}, nil
		}
		if exporter, err = otlptracehttp.New(ctx); err != nil {
			return nil, fmt.Errorf("set up trace exporter: %w", err)
		}
	}
	if cfg.Service == "" {
		cfg.Service = "wakebus"
	}
	// WithFromEnv comes last so that OTEL_SERVICE_NAME wins.
	res, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version),
	), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("describe traced service: %w", err)
	}
	// The batcher's own bounds hold: 2,048 spans wait, more are dropped (OpenTelemetry specification, batch processor).
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return &Tracing{Tracer: provider.Tracer(ScopeName), provider: provider}, nil
}

// On reports whether spans are recorded.
func (t *Tracing) On() bool { return t.provider != nil }

// Close sends what is left, for at most 5 s, and stops tracing. ctx may shorten that.
func (t *Tracing) Close(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("flush traces: %w", err)
	}
	return nil
}

// Inject writes the span context of ctx into headers as traceparent and tracestate; without one it writes nothing.
func Inject(ctx context.Context, headers map[string]string) {
	propagator.Inject(ctx, propagation.MapCarrier(headers))
}

// Extract returns ctx with the span context that the headers hold; a malformed one is as good as none.
func Extract(ctx context.Context, headers map[string]string) context.Context {
	return propagator.Extract(ctx, propagation.MapCarrier(headers))
}

func tracingAsked(lookup func(string) (string, bool)) (bool, error) {
	get := func(name string) string { v, _ := lookup(name); return v }
	exporter := get("OTEL_TRACES_EXPORTER")
	switch {
	case get("OTEL_SDK_DISABLED") == "true" || exporter == "none":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("%w: OTEL_TRACES_EXPORTER must be otlp or none", ErrTraceSetting)
	}
	on := exporter == "otlp" || get("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := get(name); on && p != "" && p != "http/protobuf" {
			return false, fmt.Errorf("%w: %s must be http/protobuf", ErrTraceSetting, name)
		}
	}
	return on, nil
}
