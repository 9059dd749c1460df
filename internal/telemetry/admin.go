package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/wakebus/wakebus/internal/config"
)

// Check is one thing that must answer before a process is ready. It returns nil when it does; its error's text is
// shown on the admin port, so it must hold no secret.
type Check func(ctx context.Context) error

// AdminConfig says what the admin port shows.
type AdminConfig struct {
	// Addr is where it listens. Defaults to 127.0.0.1:0, a free port on loopback.
	Addr string
	// Gatherer is what /metrics shows. Defaults to an empty registry.
	Gatherer prometheus.Gatherer
	// Checks are what /readyz asks, by name. Defaults to none: ready at once.
	Checks map[string]Check
	// CheckTimeout bounds all checks of one /readyz together. Defaults to 2 s.
	CheckTimeout time.Duration
	// Build is what /version shows. Defaults to the running binary's.
	Build *Build
}

// Admin is the HTTP server for probes, metrics and profiles: GET /livez, /readyz, /metrics, /version, GET and PUT
// /loglevel, /debug/pprof/. Profiles and changes are answered to loopback only, wherever it listens, so that an
// address which a scraper can reach gives nobody the process's memory.
type Admin struct {
	cfg      AdminConfig
	log      *Log
	listener net.Listener
	server   *http.Server
}

// maxProbe is how many /readyz questions are answered at once; more are told 503.
const maxProbe = 16

// NewAdmin listens, so that the port is known and an address in use is an error at the start. The caller must call
// Run, which ends with the listener closed.
func NewAdmin(log *Log, cfg AdminConfig) (*Admin, error) {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.Gatherer == nil {
		cfg.Gatherer = prometheus.NewRegistry()
	}
	if cfg.CheckTimeout <= 0 {
		cfg.CheckTimeout = 2 * time.Second
	}
	if cfg.Build == nil {
		b := ReadBuild()
		cfg.Build = &b
	}
	listener, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen on admin address %s: %w", cfg.Addr, err)
	}
	a := &Admin{cfg: cfg, log: log, listener: listener}
	a.server = &http.Server{
		Handler: a.routes(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	return a, nil
}

// Addr is the address it listens on, with the port that was free.
func (a *Admin) Addr() string { return a.listener.Addr().String() }

// URL is the address as an http URL.
func (a *Admin) URL() string { return "http://" + a.Addr() }

// Run serves until ctx ends, then closes every connection; it returns nil then. Call it once.
func (a *Admin) Run(ctx context.Context) error {
	// A probe that waits for a check must not outlive the server.
	a.server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { _ = a.server.Close() })
	defer stop()
	err := a.server.Serve(a.listener)
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve admin address %s: %w", a.Addr(), err)
}

func (a *Admin) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.Handle("GET /readyz", bounded(maxProbe, http.HandlerFunc(a.ready)))
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.cfg.Gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a.cfg.Build)
	})
	mux.HandleFunc("GET /loglevel", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, string(a.log.Level())) })
	mux.Handle("PUT /loglevel", loopbackOnly(http.HandlerFunc(a.setLevel)))
	mux.Handle("/debug/pprof/", loopbackOnly(http.HandlerFunc(pprof.Index)))
	mux.Handle("/debug/pprof/cmdline", http.NotFoundHandler()) // arguments may hold a grant
	mux.Handle("/debug/pprof/profile", loopbackOnly(http.HandlerFunc(pprof.Profile)))
	mux.Handle("/debug/pprof/symbol", loopbackOnly(http.HandlerFunc(pprof.Symbol)))
	mux.Handle("/debug/pprof/trace", loopbackOnly(http.HandlerFunc(pprof.Trace)))
	return mux
}

// ready asks every check at once and says which ones fail.
func (a *Admin) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.CheckTimeout)
	defer cancel()
	var mu sync.Mutex // protects failed
	var failed []string
	var wg sync.WaitGroup
	for name, check := range a.cfg.Checks {
		wg.Go(func() {
			if err := check(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, name+": "+err.Error())
			}
		})
	}
	wg.Wait()
	if len(failed) > 0 {
		slices.Sort(failed)
		say(w, http.StatusServiceUnavailable, strings.Join(failed, "\n"))
		return
	}
	say(w, http.StatusOK, "ok")
}

func (a *Admin) setLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64))
	level := config.Level(strings.TrimSpace(string(body)))
	if err != nil || !slices.Contains(config.Levels(), level) {
		say(w, http.StatusBadRequest, "the body must be trace, debug, info, warn, error or off")
		return
	}
	old := a.log.Level()
	a.log.SetLevel(level)
	a.log.Info().Str("from", string(old)).Str("to", string(level)).Msg("log level changed")
	say(w, http.StatusOK, string(level))
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}

func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			say(w, http.StatusForbidden, "only on loopback")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bounded answers n requests at a time and refuses the rest at once.
func bounded(n int, next http.Handler) http.Handler {
	slots := make(chan struct{}, n) // never closed
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			say(w, http.StatusServiceUnavailable, "too many probes at once")
		}
	})
}
