package job

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
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
	ctx, span := w.tracer.Start(ctx, "run "+string(d.Kind), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(d.QueuedAt),
		trace.WithAttributes(attribute.String(telemetry.KeyTenant, r.key.Tenant), attribute.String(telemetry.KeyJob, r.key.Job), attribute.Int(telemetry.KeyRun, r.key.Run)))
	_, queue := w.tracer.Start(ctx, "queue", trace.WithTimestamp(d.QueuedAt))
	queue.End()
	return ctx, func() { span.End() }
}

// stage opens a span for one stage of a run; the returned function ends it with the stage's ending.
func (r *run) stage(ctx context.Context, name string) (context.Context, func(*ending)) {
	if r.w.tracer == nil {
		return ctx, func(*ending) {}
	}
	ctx, span := r.w.tracer.Start(ctx, name)
	return ctx, func(e *ending) {
		if e != nil && e.cause != nil {
			// The class is enough; the text may repeat what a provider said.
			span.SetStatus(codes.Error, string(e.result.Reason))
		}
		span.End()
	}
}

// within runs one stage of the run in a span of its own.
func (r *run) within(ctx context.Context, name string, f func(context.Context) *ending) *ending {
	ctx, done := r.stage(ctx, name)
	e := f(ctx)
	done(e)
	return e
}
