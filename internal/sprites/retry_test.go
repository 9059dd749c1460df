package sprites_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
)

// asked is one call of each operation, and the request by which its tries are counted. Routes that come before it answer
// well.
var asked = map[sprites.Operation]struct {
	request string
	before  map[string]http.HandlerFunc
	call    func(ctx context.Context, c *sprites.Client) error
}{
	sprites.OpGet: {"GET /box", nil, func(ctx context.Context, c *sprites.Client) error {
		_, err := c.Get(ctx, "box")
		return err
	}},
	sprites.OpList: {"GET ", nil, func(ctx context.Context, c *sprites.Client) error {
		_, _, err := c.List(ctx, "")
		return err
	}},
	sprites.OpCreate: {"POST ", map[string]http.HandlerFunc{"GET /box": respond(404, "")}, func(ctx context.Context, c *sprites.Client) error {
		_, err := c.Provision(ctx, sprites.ProvisionRequest{Name: "box", Create: true})
		return err
	}},
	sprites.OpDelete: {"DELETE /box", nil, func(ctx context.Context, c *sprites.Client) error { return c.Delete(ctx, "box") }},
	sprites.OpExec: {"GET /box/exec", nil, func(ctx context.Context, c *sprites.Client) error {
		_, err := c.Start(ctx, command())
		return err
	}},
	sprites.OpProbe: {"GET /box/exec", nil, func(ctx context.Context, c *sprites.Client) error {
		_, err := c.Guard(ctx, "box", "dev.job.0")
		return err
	}},
	sprites.OpAttach: {"GET /box/exec/41", nil, func(ctx context.Context, c *sprites.Client) error {
		_, _, err := c.Attach(ctx, sprites.AttachRequest{Sprite: "box", Session: sprites.Session{ID: "41"}})
		return err
	}},
	sprites.OpKill: {"POST /box/exec/41/kill", map[string]http.HandlerFunc{"GET /box/exec": respond(200, `{"sessions":[{"id":"41"}]}`)}, func(ctx context.Context, c *sprites.Client) error {
		killed, err := c.Kill(ctx, "box", sprites.Session{ID: "41"}, sprites.SignalKill, time.Second)
		if err == nil && killed != sprites.KillGone {
			return errors.New("an answered refusal was taken for a kill")
		}
		return err
	}},
	sprites.OpSessions: {"GET /box/exec", nil, func(ctx context.Context, c *sprites.Client) error {
		_, err := c.Sessions(ctx, "box")
		return err
	}},
	sprites.OpFiles: {"GET /box/fs/list", nil, func(ctx context.Context, c *sprites.Client) error {
		_, _, err := c.ReadFile(ctx, "box", "f", 0, 1)
		return err
	}},
	sprites.OpPolicy: {"GET /box/policy/network", nil, func(ctx context.Context, c *sprites.Client) error {
		_, err := c.GetPolicy(ctx, "box")
		return err
	}},
	sprites.OpCheckpoints: {"GET /box/checkpoints", nil, func(ctx context.Context, c *sprites.Client) error {
		_, err := c.Checkpoints(ctx, "box")
		return err
	}},
	sprites.OpCheckpoint: {"POST /box/checkpoints/v1/restore", nil, func(ctx context.Context, c *sprites.Client) error {
		return c.Restore(ctx, "box", "v1")
	}},
}

// faults provoke each class that an answer, or none, can have.
var faults = map[sprites.Class]http.HandlerFunc{
	sprites.ClassRateLimited:     respond(429, `{"error":"slow_down"}`, "Retry-After", "1"),
	sprites.ClassConcurrentLimit: respond(429, `{"error":"concurrent_sprite_limit_exceeded"}`),
	sprites.ClassConflict:        respond(409, `{"error":"a sprite named box exists"}`),
	sprites.ClassNotFound:        respond(404, `sprite not found`),
	sprites.ClassUnauthorized:    respond(401, `{"error":"authentication failed"}`),
	sprites.ClassInvalid:         respond(400, `{"errors":["no"]}`),
	sprites.ClassUnavailable:     respond(503, `<html>wait</html>`),
	sprites.ClassTimeout:         respond(408, ``),
	sprites.ClassTransport:       drop,
}

// wantTries is the table of case 27, written down a second time on purpose.
func wantTries(op sprites.Operation, class sprites.Class) int {
	weather := class == sprites.ClassRateLimited || class == sprites.ClassUnavailable || class == sprites.ClassTimeout || class == sprites.ClassTransport
	switch {
	case !weather:
		return 1
	case op == sprites.OpCheckpoint:
		return 1
	case op == sprites.OpCreate && class == sprites.ClassRateLimited:
		return 1
	case op == sprites.OpFiles:
		return 2
	case op == sprites.OpCreate || op == sprites.OpExec || op == sprites.OpProbe || op == sprites.OpAttach:
		return 3
	}
	return 4
}

func TestCase27EveryPairOfOperationAndClassFollowsTheTable(t *testing.T) {
	t.Parallel()
	for _, op := range sprites.Operations() {
		for _, class := range sprites.Classes() {
			if got, want := sprites.Tries(op, class), wantTries(op, class); got != want {
				t.Errorf("%s on %s: %d tries by the table, want %d", op, class, got, want)
			}
			t.Run(fmt.Sprintf("%s on %s", op, class), func(t *testing.T) {
				t.Parallel()
				tryPair(t, op, class)
			})
		}
	}
}

// tryPair provokes one class of failure on one operation and counts the tries.
func tryPair(t *testing.T, op sprites.Operation, class sprites.Class) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := newFake(t)
	one, fault := asked[op], faults[class]
	if class == sprites.ClassCanceled {
		fault = func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // net/http sees the client leave only after that
			cancel()
			<-r.Context().Done()
		}
	}
	f.on(one.request, fault)
	for pattern, answer := range one.before {
		f.on(pattern, answer)
	}
	if op == sprites.OpFiles { // between its tries it wakes the Sprite
		f.on("GET /box/exec", f.exec(nil))
	}
	err := one.call(ctx, f.client())
	gone := class == sprites.ClassNotFound && (op == sprites.OpDelete || op == sprites.OpKill)
	switch {
	case gone && err != nil:
		t.Errorf("ending what is gone: %v", err)
	case !gone && sprites.ClassOf(err) != class:
		t.Errorf("got %v", err)
	case errors.Is(err, io.EOF):
		t.Errorf("a failure passes for the end of a process: %v", err)
	}
	method, path, _ := strings.Cut(one.request, " ")
	if got, want := f.count(method+" /v1/sprites"+path), wantTries(op, class); got != want {
		t.Errorf("%d tries, want %d", got, want)
	}
}

func TestCase27WaitsGrowHonourTheHintAndStopAtTheCap(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box", respond(503, ""))
	_, err := f.client().Get(t.Context(), "box")
	want := "[200ms 400ms 800ms]"
	if got := fmt.Sprint(f.waits()); got != want || sprites.ClassOf(err) != sprites.ClassUnavailable {
		t.Errorf("waits %s, want %s (%v)", got, want, err)
	}

	f = newFake(t)
	f.on("GET /box", inTurn(respond(429, `{"retry_after_seconds":2}`, "Retry-After", "1"), respond(200, record("box", "cold"))))
	if _, err := f.client().Get(t.Context(), "box"); err != nil || fmt.Sprint(f.waits()) != "[2s]" {
		t.Errorf("waits %v, want the body's hint of 2 s (%v)", f.waits(), err)
	}

	f = newFake(t)
	f.on("GET /box", respond(429, `{"retry_after_seconds":60}`))
	_, err = f.client().Get(t.Context(), "box")
	var e *sprites.Error
	if !errors.As(err, &e) || e.RetryAfter != time.Minute || f.count("GET /v1/sprites/box") != 1 {
		t.Errorf("a long hint is not to be waited for here: %v, %d calls", err, f.count("GET /v1/sprites/box"))
	}
}

func TestCase27ARefusedTokenIsCountedAndLoggedForTheOperator(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box", respond(403, ""))
	var log lines
	c := f.client(log.into)
	if _, err := c.Get(t.Context(), "box"); sprites.ClassOf(err) != sprites.ClassUnauthorized {
		t.Fatal(err)
	}
	if got := log.String(); !strings.Contains(got, `"level":"error"`) || !strings.Contains(got, "refuses our token") {
		t.Errorf("log %q", got)
	}
}

func TestRefusalsAreReadFromAllKnownShapes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		status      int
		body, after string
		class       sprites.Class
		code        string
		hint        time.Duration
	}{
		{429, `{"error":"sprite_creation_rate_limited","limit":10,"window_seconds":60,"retry_after_seconds":42}`, "7", sprites.ClassRateLimited, "sprite_creation_rate_limited", 42 * time.Second},
		{429, `{"error":"concurrent_sprite_limit_exceeded","current_count":3}`, "", sprites.ClassConcurrentLimit, "concurrent_sprite_limit_exceeded", 0},
		{429, `too many`, "", sprites.ClassRateLimited, "", 10 * time.Second},
		{429, `{}`, "Sat, 01 Aug 2026 12:01:00 GMT", sprites.ClassRateLimited, "", time.Minute},
		{429, `{"retry_after_seconds":1e300}`, "", sprites.ClassRateLimited, "", 15 * time.Minute},
		{429, `{"retry_after_seconds":-5}`, "-3", sprites.ClassRateLimited, "", 10 * time.Second},
		{429, `{"retry_after_seconds":"soon"}`, "NaN", sprites.ClassRateLimited, "", 10 * time.Second},
		{409, `{"error":"A sprite named 'x' already exists."}`, "", sprites.ClassConflict, "", 0},
		{404, `{"error":"no such file","code":"ENOENT","path":"/x"}`, "", sprites.ClassNotFound, "ENOENT", 0},
		{410, ``, "", sprites.ClassNotFound, "", 0},
		{500, `{"error":"failed to retrieve sprite"}`, "", sprites.ClassUnavailable, "", 0},
		{502, `<html>`, "3", sprites.ClassUnavailable, "", 3 * time.Second},
		{302, ``, "", sprites.ClassInvalid, "", 0},
		{200, `<html>`, "", sprites.ClassUnavailable, "", 0},
		{400, `{"errors":["invalid sprite name format"]}`, "", sprites.ClassInvalid, "", 0},
	} {
		header := http.Header{}
		if tt.after != "" {
			header.Set("Retry-After", tt.after)
		}
		e := sprites.Refusal(tt.status, header, []byte(tt.body), now)
		if e.Class != tt.class || e.Code != tt.code || e.RetryAfter != tt.hint {
			t.Errorf("%d %s: got %s %q %s", tt.status, tt.body, e.Class, e.Code, e.RetryAfter)
		}
	}
}

// gate is a Gate whose answers a test sets.
type gate struct {
	mu      sync.Mutex
	refuse  map[sprites.Operation]error
	entered []sprites.Operation
	told    []sprites.Outcome
	passes  []sprites.Pass
	most    int // closes after so many; 0 = never
}

var _ sprites.Gate = (*gate)(nil)

func (g *gate) Enter(_ context.Context, op sprites.Operation, _ string) (sprites.Pass, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refuse[op]; err != nil {
		return "", err
	}
	g.entered = append(g.entered, op)
	if g.most > 0 && len(g.entered) >= g.most {
		g.refuse = map[sprites.Operation]error{op: &sprites.GateClosed{Op: op, Class: sprites.ClassUnavailable, RetryAfter: time.Second}}
	}
	return sprites.Pass(fmt.Sprintf("pass %d", len(g.entered))), nil
}

func (g *gate) Report(_ context.Context, _ sprites.Operation, pass sprites.Pass, o sprites.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passes = append(g.passes, pass)
	g.told = append(g.told, o)
}

func TestTheGateIsAskedBeforeEachTryAndToldAfter(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box", inTurn(respond(503, "", "Retry-After", "3"), respond(200, record("box", "cold"))))
	g := &gate{}
	if _, err := f.gated(g).Get(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if len(g.entered) != 2 || len(g.told) != 2 || g.told[0] != (sprites.Outcome{Class: sprites.ClassUnavailable, RetryAfter: 3 * time.Second}) || g.told[1] != (sprites.Outcome{}) {
		t.Errorf("entered %v, told %v", g.entered, g.told)
	}
	if want := []sprites.Pass{"pass 1", "pass 2"}; !slices.Equal(g.passes, want) {
		t.Errorf("told with %q", g.passes)
	}
}

// A retry that the gate holds back ends with what the service said: that it was asked is what the caller must know.
func TestAGateThatClosesBetweenTriesKeepsTheServicesAnswer(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box", respond(503, "", "X-Request-Id", "req-7"))
	_, err := f.gated(&gate{most: 1}).Get(t.Context(), "box")
	var e *sprites.Error
	var closed *sprites.GateClosed
	if !errors.As(err, &e) || e.Status != 503 || errors.As(err, &closed) || f.count("GET /v1/sprites/box") != 1 {
		t.Errorf("%v after %d calls", err, f.count("GET /v1/sprites/box"))
	}
}

func TestAClosedGateHoldsUpItsOperationAndNeverAnEnd(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("DELETE /box", respond(204, ""))
	f.on("GET /box", respond(200, record("box", "cold")))
	closed := map[sprites.Operation]error{}
	for _, op := range sprites.Operations() {
		if op != sprites.OpGet {
			closed[op] = &sprites.GateClosed{Op: op, Class: sprites.ClassRateLimited, RetryAfter: 9 * time.Second}
		}
	}
	c := f.gated(&gate{refuse: closed})
	_, err := c.Start(t.Context(), command())
	var e *sprites.Error
	if !errors.As(err, &e) || e.Class != sprites.ClassRateLimited || e.RetryAfter != 9*time.Second || f.count("GET /v1/sprites/box/exec") != 0 {
		t.Errorf("exec: %v", err)
	}
	if _, err := c.Get(t.Context(), "box"); err != nil {
		t.Errorf("another operation is held up: %v", err)
	}
	if err := c.Delete(t.Context(), "box"); err != nil {
		t.Errorf("an end is held up: %v", err)
	}
	f.on("GET /box/exec", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			respond(200, listed)(w, r)
			return
		}
		f.exec(nil)(w, r)
	})
	f.on("POST /box/exec/41/kill", ndjson(lineSignal, lineExited, lineComplete))
	if killed, err := c.Kill(t.Context(), "box", sprites.Session{ID: "41", Created: since}, sprites.SignalKill, 0); err != nil || killed != sprites.KillConfirmed {
		t.Errorf("a kill is held up: %s, %v", killed, err)
	}
	if _, err := c.StopGuard(t.Context(), "box", "dev.job.0", sprites.SignalKill, 0); err != nil {
		t.Errorf("a stop from inside is held up: %v", err)
	}
	if _, err := c.Guard(t.Context(), "box", "dev.job.0"); sprites.ClassOf(err) != sprites.ClassRateLimited {
		t.Errorf("a look at a guard is no end, yet it passed: %v", err)
	}
}

// A call within a call is asked by the rule of one of them: rules that multiply are an attack on a service that is down.
func TestCase27NoRetriedCallIsNestedInAnother(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		request string
		want    int
		before  map[string]http.HandlerFunc
		call    func(context.Context, *sprites.Client)
	}{
		"a kill's listing": {"GET /box/exec", 4, nil, func(ctx context.Context, c *sprites.Client) {
			_, _ = c.Kill(ctx, "box", sprites.Session{ID: "41", Created: since}, sprites.SignalKill, 0)
		}},
		"a stop from inside": {"GET /box/exec", 4, nil, func(ctx context.Context, c *sprites.Client) {
			_, _ = c.StopGuard(ctx, "box", "dev.job.0", sprites.SignalKill, 0)
		}},
		"what is read back after a lost create": {"GET /box", 1 + 3, map[string]http.HandlerFunc{"POST ": drop}, func(ctx context.Context, c *sprites.Client) {
			_, _ = c.Provision(ctx, sprites.ProvisionRequest{Name: "box", Create: true})
		}},
		"what is read back after a conflict": {"GET /box", 1 + 4, map[string]http.HandlerFunc{"POST ": respond(409, "")}, func(ctx context.Context, c *sprites.Client) {
			_, _ = c.Provision(ctx, sprites.ProvisionRequest{Name: "box", Create: true})
		}},
		"a file's wake": {"GET /box/exec", 3, map[string]http.HandlerFunc{"GET /box/fs/list": respond(503, "")}, func(ctx context.Context, c *sprites.Client) {
			_, _, _ = c.ReadFile(ctx, "box", "f", 0, 1)
		}},
		"a wake": {"GET /box/exec", 3, map[string]http.HandlerFunc{"GET /box": respond(200, record("box", "warm"))}, func(ctx context.Context, c *sprites.Client) {
			_, _ = c.EnsureAwake(ctx, "box")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			answers := []http.HandlerFunc{respond(503, "")}
			if tt.request == "GET /box" {
				answers = append([]http.HandlerFunc{respond(404, "")}, answers...)
			}
			f.on(tt.request, inTurn(answers...))
			for pattern, answer := range tt.before {
				f.on(pattern, answer)
			}
			tt.call(t.Context(), f.client())
			method, path, _ := strings.Cut(tt.request, " ")
			if n := f.count(method + " /v1/sprites" + path); n != tt.want {
				t.Errorf("asked %d times, want %d", n, tt.want)
			}
		})
	}
}

func TestABrokenGateStopsCreationsOnly(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box", inTurn(respond(404, ""), respond(200, record("box", "cold"))))
	broken := errors.New("redis is away")
	g := &gate{refuse: map[sprites.Operation]error{sprites.OpCreate: broken, sprites.OpGet: broken}}
	c := f.gated(g)
	_, err := c.Provision(t.Context(), sprites.ProvisionRequest{Name: "box", Create: true})
	if sprites.ClassOf(err) != sprites.ClassUnavailable || !errors.Is(err, broken) || f.count("POST /v1/sprites") != 0 {
		t.Errorf("create: %v", err)
	}
	if _, err := c.Get(t.Context(), "box"); err != nil {
		t.Errorf("get: %v", err)
	}
}
