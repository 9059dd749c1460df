package bus

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/telemetry"
)

// EndpointConfig says what a worker serves by core request and reply.
type EndpointConfig struct {
	// Name is the service's name in `nats micro ls`. Defaults to wakebus-worker.
	Name string
	// Version is the service's semantic version. Defaults to 0.0.0.
	Version string
	// Metadata is shown by `nats micro info`. Defaults to none.
	Metadata map[string]string
	// Stats gives what `nats micro stats` shows of the worker; it must be safe for concurrent use. Defaults to nothing.
	Stats func() any
	// Files answers sandbox.file.read and .write. Defaults to not serving them.
	Files FileHandler
	// MaxRequests is how many short requests are answered at a time, 1 and up; more are refused as worker_unavailable.
	// Defaults to 64.
	MaxRequests int
	// MaxCalls is how many sandbox.call.exec are relayed at a time, 1 and up; more are refused likewise. Defaults to 64.
	MaxCalls int
	// RequestTimeout bounds one short request. Defaults to 2 minutes: a file may have to wake its sandbox first.
	RequestTimeout time.Duration
	// CallTimeout bounds one relay. Defaults to 25 hours: the latest start and the longest run.
	CallTimeout time.Duration
	// InboxPrefixes are where answers may go, beside _INBOX_<tenant>. Defaults to _INBOX and those of the roles web,
	// gateway, worker and ops.
	InboxPrefixes []string
	// Ready is called once when everything is subscribed. Defaults to nothing.
	Ready func()
}

func (c EndpointConfig) withDefaults() EndpointConfig {
	def := func(p *int, n int) {
		if *p == 0 {
			*p = n
		}
	}
	wait := func(p *time.Duration, d time.Duration) {
		if *p == 0 {
			*p = d
		}
	}
	if c.Name == "" {
		c.Name = workerService
	}
	if c.Version == "" {
		c.Version = "0.0.0"
	}
	def(&c.MaxRequests, 64)
	def(&c.MaxCalls, 64)
	wait(&c.RequestTimeout, 2*time.Minute)
	wait(&c.CallTimeout, 25*time.Hour)
	if len(c.InboxPrefixes) == 0 {
		c.InboxPrefixes = []string{"_INBOX", "_INBOX_web", "_INBOX_gateway", "_INBOX_worker", "_INBOX_ops"}
	}
	if c.Ready == nil {
		c.Ready = func() {}
	}
	return c
}

func (c EndpointConfig) validate() error {
	var errs []error
	if c.MaxRequests < 1 || c.MaxCalls < 1 {
		errs = append(errs, fmt.Errorf("%w: MaxRequests and MaxCalls must be 1 or more", ErrInvalid))
	}
	if c.RequestTimeout < 0 || c.CallTimeout < 0 {
		errs = append(errs, fmt.Errorf("%w: timeouts must not be negative", ErrInvalid))
	}
	for _, p := range c.InboxPrefixes {
		if !strings.HasPrefix(p, "_INBOX") || strings.ContainsAny(p, "*> \t\r\n") {
			errs = append(errs, fmt.Errorf("%w: inbox prefix %q must begin with _INBOX and have no wildcard", ErrInvalid, clip(p)))
		}
	}
	return errors.Join(errs...)
}

// endpoints is one worker's service. Each request has a goroutine of its own, counted by wg and bounded by the slots.
type endpoints struct {
	bus *Bus
	cfg EndpointConfig
	ctx context.Context // ends the handlers; cancelled when Serve returns
	wg  sync.WaitGroup

	mu      sync.Mutex // protects closing, so that no handler begins once Serve waits for them
	closing bool

	strangers zerolog.Logger // for what anybody with a publish right can cause, so it is sampled

	requests chan struct{} // a slot per short request
	calls    chan struct{} // a slot per relay
}

// Serve registers this worker as a NATS service and answers sandbox.history, sandbox.jobs, sandbox.call.exec and, with
// a FileHandler, sandbox.file.read and .write of every tenant. It blocks until ctx ends, and then until every handler
// has answered. It returns ErrClosed when the connection is closed first, ErrInvalid for the configuration.
func (b *Bus) Serve(ctx context.Context, cfg EndpointConfig) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("serve endpoints: %w", err)
	}
	hctx, cancel := context.WithCancelCause(ctx)
	e := &endpoints{bus: b, cfg: cfg, ctx: hctx, strangers: telemetry.Flood(b.log, 10, time.Minute), requests: make(chan struct{}, cfg.MaxRequests), calls: make(chan struct{}, cfg.MaxCalls)}
	defer e.close(cancel)
	service, err := e.register()
	if err != nil {
		return fmt.Errorf("serve endpoints: %w", err)
	}
	defer func() {
		if err := service.Stop(); err != nil && b.Ready() == nil {
			b.log.Warn().Err(err).Msg("the service did not stop cleanly")
		}
	}()
	tctx, cancelTry := b.try(ctx)
	defer cancelTry()
	if err := b.nc.FlushWithContext(tctx); err != nil {
		return fmt.Errorf("serve endpoints: %w", classify(err))
	}
	cfg.Ready()
	select {
	case <-ctx.Done():
		return nil
	case <-b.closed:
		return fmt.Errorf("serve endpoints: %w", ErrClosed)
	}
}

// close ends the handlers and waits for them. The subscriptions drain by themselves; what still comes is refused.
func (e *endpoints) close(cancel context.CancelCauseFunc) {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	cancel(ErrClosed)
	e.wg.Wait()
}

// begin runs a handler in a goroutine of its own, unless the service is closing.
func (e *endpoints) begin(handle func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closing {
		e.wg.Go(handle)
	}
	return !e.closing
}

func (e *endpoints) register() (micro.Service, error) {
	cfg := micro.Config{Name: e.cfg.Name, Version: e.cfg.Version, Metadata: e.cfg.Metadata,
		Description: "runs commands and terminals in sandboxes that sleep"}
	if e.cfg.Stats != nil {
		cfg.StatsHandler = func(*micro.Endpoint) any { return e.cfg.Stats() }
	}
	service, err := micro.AddService(e.bus.nc, cfg)
	if err != nil {
		return nil, fmt.Errorf("register service: %w", classify(err))
	}
	type route struct {
		name, subject string
		handler       micro.Handler
	}
	routes := []route{
		{"history", SubjectHistory, e.short(e.history)}, {"jobs", SubjectJobs, e.short(e.jobs)},
		{"call-exec", SubjectCallExec, e.accept(e.calls, e.cfg.CallTimeout, e.callExec)},
	}
	if e.cfg.Files != nil {
		routes = append(routes, route{"file-read", SubjectFileRead, e.short(e.fileRead)}, route{"file-write", SubjectFileWrite, e.short(e.fileWrite)})
	}
	for _, r := range routes {
		err := service.AddEndpoint(r.name, r.handler, micro.WithEndpointSubject(r.subject+".*"), micro.WithEndpointPendingLimits(1024, 64<<20))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("register endpoint %s: %w", r.name, classify(err)), service.Stop())
		}
	}
	return service, nil
}

// ask is one request to an endpoint.
type ask struct {
	endpoints *endpoints
	tenant    string
	reply     string
	header    Header
	data      []byte
	received  time.Time
}

func (e *endpoints) short(handle func(context.Context, *ask) error) micro.Handler {
	return e.accept(e.requests, e.cfg.RequestTimeout, handle)
}

// accept checks where the answer may go, takes a slot or refuses, and answers in a goroutine of the request's own:
// the subscription's must not wait for a sandbox to wake.
func (e *endpoints) accept(slots chan struct{}, timeout time.Duration, handle func(context.Context, *ask) error) micro.Handler {
	return micro.HandlerFunc(func(req micro.Request) {
		subject := req.Subject()
		a := &ask{endpoints: e, tenant: subject[strings.LastIndexByte(subject, '.')+1:], reply: req.Reply(), header: Header(req.Headers()),
			data: req.Data(), received: e.bus.now()}
		if !plan.ValidToken(a.tenant) || !e.mayReply(a.tenant, a.reply) {
			// Nothing is published there, not even the refusal: the subject could be a queue or the system's (case 85).
			e.strangers.Warn().Str("subject", clip(subject)).Str("reply", clip(a.reply)).Msg("request with a reply subject that is no inbox")
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			busy := NewEndpointError(plan.ReasonWorkerUnavailable, "this worker answers as many requests as it may")
			busy.RetryAfter = time.Second
			a.fail(busy)
			return
		}
		begun := e.begin(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(e.ctx, timeout)
			defer cancel()
			a.run(ctx, handle)
		})
		if !begun {
			<-slots
			a.fail(NewEndpointError(plan.ReasonWorkerUnavailable, "this worker is stopping"))
		}
	})
}

// run answers exactly once more when the handler failed or panicked.
func (a *ask) run(ctx context.Context, handle func(context.Context, *ask) error) {
	defer func() {
		if p := recover(); p != nil {
			a.endpoints.bus.log.Error().Interface("panic", p).Bytes("stack", debug.Stack()).Msg("an endpoint's handler panicked")
			a.fail(NewEndpointError(plan.ReasonError, ""))
		}
	}()
	if err := handle(ctx, a); err != nil {
		out, known := asEndpointError(err)
		if !known {
			a.endpoints.bus.log.Error().Err(err).Str("tenant", a.tenant).Msg("an endpoint failed")
		}
		a.fail(out)
	}
}

func (a *ask) fail(err *EndpointError) { a.respond(nil, err.headers()) }

func (a *ask) respond(data []byte, h nats.Header) {
	msg := &nats.Msg{Subject: a.reply, Data: data, Header: h}
	if err := a.endpoints.bus.nc.PublishMsg(msg); err != nil {
		a.endpoints.bus.log.Warn().Err(err).Str("tenant", a.tenant).Msg("an answer could not be sent")
	}
}

// mayReply reports whether answers may go to this subject: one of the roles' inboxes or the tenant's own, and no
// wildcard. Anything else would let a caller make a worker publish where the caller itself may not.
func (e *endpoints) mayReply(tenant, reply string) bool {
	const longest = 256
	if len(reply) > longest {
		return false
	}
	for token := range strings.SplitSeq(reply, ".") {
		if token == "" || strings.ContainsAny(token, "*> \t\r\n") {
			return false
		}
	}
	prefixes := append(slices.Clone(e.cfg.InboxPrefixes), "_INBOX_"+tenant)
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(reply, p+".") })
}
