package job

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// traced opens the run's span under the publisher's context. The returned function ends it.
func (w *Worker) traced(ctx context.Context, r *run, d *bus.Delivery) (context.Context, func()) {
	if w.tracer == nil {
		return ctx, func() {}
	}
	headers := map[string]string{
		bus.HeaderTraceparent: d.Header.Get(bus.HeaderTraceparent), bus.HeaderTracestate: d.Header.Get(bus.HeaderTracestate),
	}
	ctx = telemetry.Extract(ctx, headers)
	ctx, span := w.tracer.Start(ctx, "run "+string(d.Kind), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String(telemetry.KeyTenant, r.key.Tenant), attribute.String(telemetry.KeyJob, r.key.Job), attribute.Int(telemetry.KeyRun, r.key.Run),
	))
	return ctx, func() { span.End() }
}

// stage opens a span for one stage of a run.
func (w *Worker) stage(ctx context.Context, name string) (context.Context, func()) {
	if w.tracer == nil {
		return ctx, func() {}
	}
	ctx, span := w.tracer.Start(ctx, name)
	return ctx, func() { span.End() }
}
