package emulator

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const defaultFollow = 5 * time.Second

func (x *exchange) duration(key string, d time.Duration) (time.Duration, bool) {
	v := x.r.URL.Query().Get(key)
	if v == "" {
		return d, true
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		x.text(http.StatusBadRequest, "invalid %s %q", key, v)
		return 0, false
	}
	return d, true
}

// followService streams events for the asked duration, or, at an end, at most
// until the service has stopped.
func (x *exchange) followService(v *service, from int, ending bool) {
	d, ok := x.duration("duration", defaultFollow)
	if !ok {
		return
	}
	out := x.ndjson()
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	t := x.srv.cfg.Clock.AfterFunc(d, cancel)
	defer t.Stop()
	v.log.follow(ctx, from, func(e serviceEvent) error { return out.send(e) }, func(e serviceEvent) bool {
		return e.Type == "stopped" || e.Type == "exit" && !ending
	})
	x.completeService(v, out)
}

func (x *exchange) completeService(v *service, out *stream) {
	if x.r.Context().Err() != nil {
		return
	}
	e := v.event("complete", "")
	log := "/.sprite/logs/services/" + v.spec.Name + ".log"
	e.LogFiles = map[string]string{"combined": log, "stdout": log, "stderr": log}
	_ = out.send(e)
}

func (x *exchange) serviceLogs() {
	v := x.defined(x.r.PathValue("service"))
	if v == nil {
		return
	}
	d, ok := x.duration("duration", 0)
	if !ok {
		return
	}
	events, next, _, _ := v.log.from(0)
	events = slices.DeleteFunc(events, func(e serviceEvent) bool { return !strings.HasPrefix(e.Type, "std") })
	if n, err := strconv.Atoi(x.r.URL.Query().Get("lines")); err == nil && n >= 0 && n < len(events) {
		events = events[len(events)-n:]
	}
	out := x.ndjson()
	for _, e := range events {
		if out.send(e) != nil {
			return
		}
	}
	if d > 0 {
		ctx, cancel := context.WithCancel(x.r.Context())
		defer cancel()
		t := x.srv.cfg.Clock.AfterFunc(d, cancel)
		defer t.Stop()
		v.log.follow(ctx, next, func(e serviceEvent) error { return out.send(e) }, func(serviceEvent) bool { return false })
	}
	x.completeService(v, out)
}
