package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
)

// Not parallel: the exporter reads the process's own environment.
func TestExecBeginsATraceOnlyWhenItIsAskedTo(t *testing.T) {
	var exports atomic.Int32
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { exports.Add(1) }))
	t.Cleanup(collector.Close)
	r := newRig(t)
	contexts := make(chan string, 2)
	pool, err := bus.NewPool(r.bus, bus.PoolConfig{PullWait: 50 * time.Millisecond}, func(ctx context.Context, d *bus.Delivery) {
		contexts <- d.Header.Get(bus.HeaderTraceparent)
		_ = d.Ack(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := runPool(t, pool)
	defer stop()
	r.run("exec", "--detach", "--", "true").want(t, "without", 0, "*")
	if got := <-contexts; got != "" || exports.Load() != 0 {
		t.Errorf("a trace that nobody asked for: %q, %d exports", got, exports.Load())
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	r.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.URL
	r.run("exec", "--detach", "--", "true").want(t, "with", 0, "*")
	if got := <-contexts; !regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`).MatchString(got) || exports.Load() == 0 {
		t.Errorf("the request travels with %q, and %d exports", got, exports.Load())
	}
	r.env["OTEL_TRACES_EXPORTER"] = "zipkin"
	r.run("exec", "--", "true").want(t, "an exporter that there is not", 125, "")
}
