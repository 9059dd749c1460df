package main

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// trace begins the trace of a request that is about to be published and puts its context into the headers, as an
// application would. It is off, and costs nothing, unless the OTEL_ variables ask for it. The returned function ends the
// span and sends it.
func (c *cli) trace(ctx context.Context, hdr bus.Header) (func(), error) {
	tracing, err := telemetry.NewTracing(ctx, c.lookup, telemetry.TraceConfig{Service: "wakebus-cli", Version: telemetry.ReadBuild().Version})
	if err != nil {
		return nil, usage("%w", err)
	}
	if !tracing.On() {
		return func() {}, nil
	}
	sctx, span := tracing.Start(ctx, "publish "+string(bus.KindExec), trace.WithSpanKind(trace.SpanKindProducer))
	headers := map[string]string{}
	telemetry.Inject(sctx, headers)
	for name, value := range headers {
		hdr.Set(name, value)
	}
	return func() {
		span.End()
		if err := tracing.Close(context.WithoutCancel(ctx)); err != nil {
			c.say("warning: %v", err)
		}
	}, nil
}
