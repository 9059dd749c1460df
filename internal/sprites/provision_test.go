package sprites_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wakebus/wakebus/internal/sprites"
)

// cloud is a fake's control plane with one Sprite in it, box.
type cloud struct {
	*fake
	mu      sync.Mutex
	exists  bool
	id      string
	status  string
	rules   json.RawMessage
	created int
}

func newCloud(t *testing.T, exists bool) *cloud {
	t.Helper()
	cl := &cloud{fake: newFake(t), exists: exists, id: "sprite-1", status: "cold", rules: json.RawMessage(`[]`)}
	cl.on("GET /box", func(w http.ResponseWriter, _ *http.Request) {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		if !cl.exists {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, cl.record())
	})
	cl.on("DELETE /box", func(w http.ResponseWriter, _ *http.Request) {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		cl.exists = false
		w.WriteHeader(http.StatusNoContent)
	})
	return cl
}

func (cl *cloud) record() string {
	return strings.Replace(record("box", cl.status), "sprite-1", cl.id, 1)
}

// withCreate adds the create route.
func (cl *cloud) withCreate() *cloud {
	cl.on("POST ", func(w http.ResponseWriter, _ *http.Request) { cl.create(w) })
	return cl
}

func (cl *cloud) create(w http.ResponseWriter) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.exists {
		w.WriteHeader(http.StatusConflict)
		return
	}
	cl.exists = true
	cl.created++
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, cl.record())
}

// withPolicy adds the policy routes.
func (cl *cloud) withPolicy() *cloud {
	cl.on("POST /box/policy/network", func(w http.ResponseWriter, r *http.Request) {
		var p struct {
			Rules json.RawMessage `json:"rules"`
		}
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			cl.t.Error(err)
		}
		cl.mu.Lock()
		cl.rules = p.Rules
		cl.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})
	cl.on("GET /box/policy/network", func(w http.ResponseWriter, _ *http.Request) {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"rules": cl.rules})
	})
	return cl
}

// withWarmUp lets warm-ups succeed.
func (cl *cloud) withWarmUp() *cloud {
	cl.on("GET /box/exec", cl.accept(func(p *peer) { p.probe() }))
	return cl
}

func (cl *cloud) stillThere() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.exists
}

func request() sprites.ProvisionRequest {
	return sprites.ProvisionRequest{Name: "box", Tenant: "dev", Create: true, Labels: []string{"wb-dev"}}
}

const (
	postPolicy = "POST /v1/sprites/box/policy/network"
	getExec    = "GET /v1/sprites/box/exec"
)

func TestANewSpriteIsLockedDownAndWarmedUp(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withCreate().withPolicy().withWarmUp()
	got, err := cl.client().Provision(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	if !got.Fresh || got.Adopted || got.Instance != "sprite-1" || !got.HasBash || got.Woke != sprites.WokeCold || got.ClockSkew != 0 {
		t.Errorf("got %+v", got)
	}
	if got.Proof.Instance != "sprite-1" || got.Proof.PolicyHash == "" || !got.Proof.SetupDone || !got.Proof.HasBash {
		t.Errorf("proof %+v", got.Proof)
	}
}

func TestAProvenRunningSpriteCostsOneCall(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withCreate().withPolicy().withWarmUp()
	c := cl.client()
	first, err := c.Provision(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	cl.status = "running"
	before := len(cl.calls)
	req := request()
	req.Proof = first.Proof
	again, err := c.Provision(t.Context(), req)
	if err != nil || again.Fresh || !again.HasBash || again.Woke != sprites.WokeNone || again.Proof != first.Proof {
		t.Errorf("got %+v, %v", again, err)
	}
	if n := len(cl.calls) - before; n != 1 {
		t.Errorf("%d calls, want the get alone", n)
	}
}

func TestARestoreVoidsTheProof(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withCreate().withPolicy().withWarmUp()
	c := cl.client()
	first, err := c.Provision(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	req := request()
	req.Proof, req.Generation = first.Proof, 1
	if again, err := c.Provision(t.Context(), req); err != nil || again.Proof.Generation != 1 || cl.count(postPolicy) != 2 {
		t.Errorf("policy set %d times, %+v, %v", cl.count(postPolicy), again.Proof, err)
	}
}

func TestCase21AFreshSpriteThatNeverBootsIsDeletedAfterThreeTries(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withCreate().withPolicy()
	cl.on("GET /box/exec", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	began := time.Now()
	warmUps := 0
	_, err := cl.client(func(c *sprites.Config) {
		c.FirstBoot = []time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 60 * time.Millisecond}
		c.Nonce = func() string { warmUps++; return "n" } // one per warm-up; the dial may be too short for the server to see it
	}).Provision(t.Context(), request())
	if sprites.ClassOf(err) != sprites.ClassTimeout || cl.stillThere() {
		t.Errorf("got %v, still there: %v", err, cl.stillThere())
	}
	if warmUps != 3 {
		t.Errorf("%d warm-ups, want 3", warmUps)
	}
	if n := cl.count(postPolicy); n != 1 {
		t.Errorf("the lockdown was repeated: %d", n)
	}
	if took := time.Since(began); took < 140*time.Millisecond {
		t.Errorf("gave up after %s: the tries were cut short", took)
	}
}

func TestCase21ASlowBootThatSucceedsInTheSecondTryIsKept(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withCreate().withPolicy()
	booted := cl.accept(func(p *peer) { p.probe() })
	cl.on("GET /box/exec", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query()["cmd"][4] == "n1" {
			<-r.Context().Done()
			return
		}
		booted(w, r)
	})
	n := 0
	got, err := cl.client(func(c *sprites.Config) {
		c.FirstBoot = []time.Duration{20 * time.Millisecond, 30 * time.Second}
		c.Nonce = func() string { n++; return fmt.Sprint("n", n) }
	}).Provision(t.Context(), request())
	if err != nil || !got.Fresh || !cl.stillThere() {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCase21AResumedSpriteIsNeverDeleted(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, true).withPolicy()
	cl.on("GET /box/exec", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	warmUps := 0
	_, err := cl.client(func(c *sprites.Config) {
		c.DialTimeout = 20 * time.Millisecond
		c.Nonce = func() string { warmUps++; return "n" }
	}).Provision(t.Context(), request())
	if warmUps != 1 {
		t.Errorf("%d warm-ups, want one", warmUps)
	}
	if sprites.ClassOf(err) != sprites.ClassTimeout || !cl.stillThere() || cl.count("DELETE /v1/sprites/box") != 0 {
		t.Errorf("got %v, still there: %v", err, cl.stillThere())
	}
}

func TestCase22TheThreeRefusalsOfACreateAreThreeClasses(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]sprites.Error{
		`{"error":"sprite_creation_rate_limited","limit":10,"window_seconds":60,"retry_after_seconds":30}`: {Class: sprites.ClassRateLimited, RetryAfter: 30 * time.Second},
		`{"error":"concurrent_sprite_limit_exceeded","limit":3,"current_count":3,"retry_after_seconds":3}`: {Class: sprites.ClassConcurrentLimit, RetryAfter: 3 * time.Second},
	} {
		cl := newCloud(t, false)
		cl.on("POST ", respond(http.StatusTooManyRequests, body, "Retry-After", "1"))
		_, err := cl.client().Provision(t.Context(), request())
		var e *sprites.Error
		if !errors.As(err, &e) || e.Class != want.Class || e.RetryAfter != want.RetryAfter {
			t.Errorf("got %v", err)
		}
		if n := cl.count("POST /v1/sprites"); n != 1 {
			t.Errorf("hammered: %d creates", n)
		}
	}
	// A 409 for a name that cannot be read back is the third.
	cl := newCloud(t, false)
	cl.on("POST ", respond(http.StatusConflict, `{"error":"A sprite named 'box' already exists."}`))
	if _, err := cl.client().Provision(t.Context(), request()); sprites.ClassOf(err) != sprites.ClassConflict {
		t.Errorf("got %v", err)
	}
}

func TestCase22ANonsenseHintParksNobodyForLongerThanTheCap(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"body":    respond(429, `{"error":"sprite_creation_rate_limited","retry_after_seconds":86400}`),
		"seconds": respond(429, "", "Retry-After", "86400"),
		"date":    respond(429, "", "Retry-After", time.Now().Add(24*time.Hour).UTC().Format(http.TimeFormat)),
	} {
		cl := newCloud(t, false)
		cl.on("POST ", answer)
		_, err := cl.client().Provision(t.Context(), request())
		var e *sprites.Error
		if !errors.As(err, &e) || e.RetryAfter != 15*time.Minute {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCase23ACreateWhoseAnswerWasLostIsAdoptedOnce(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withPolicy().withWarmUp()
	cl.on("POST ", func(w http.ResponseWriter, r *http.Request) {
		cl.create(discard{header: http.Header{}})
		drop(w, r)
	})
	got, err := cl.client().Provision(t.Context(), request())
	if err != nil || got.Fresh || !got.Adopted || cl.created != 1 {
		t.Errorf("got %+v, %v, %d created", got, err, cl.created)
	}
	if cl.count(postPolicy) != 1 || cl.count(getExec) != 1 {
		t.Error("an adopted Sprite must be set up unless that is proven")
	}
}

// discard is a ResponseWriter that nobody reads.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func TestCase23A409IsReadBackAndAdopted(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withPolicy().withWarmUp()
	cl.on("POST ", func(w http.ResponseWriter, _ *http.Request) {
		cl.mu.Lock()
		cl.exists, cl.id = true, "sprite-theirs"
		cl.mu.Unlock()
		w.WriteHeader(http.StatusConflict)
	})
	got, err := cl.client().Provision(t.Context(), request())
	if err != nil || got.Fresh || !got.Adopted || got.Instance != "sprite-theirs" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCase23ACreateThatDidNotHappenIsTriedAgain(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withPolicy().withWarmUp()
	cl.on("POST ", inTurn(respond(502, ""), func(w http.ResponseWriter, _ *http.Request) { cl.create(w) }))
	got, err := cl.client().Provision(t.Context(), request())
	if err != nil || !got.Fresh || cl.created != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCase24AnEmptyAllowListDeniesAll(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withCreate().withPolicy().withWarmUp()
	if _, err := cl.client().Provision(t.Context(), request()); err != nil {
		t.Fatal(err)
	}
	var rules []sprites.Rule
	if err := json.Unmarshal(cl.rules, &rules); err != nil || len(rules) == 0 {
		t.Fatalf("%s: %v", cl.rules, err)
	}
	if last := rules[len(rules)-1]; last.Domain != "*" || last.Action != "deny" {
		t.Errorf("the last rule is %+v", last)
	}
	for _, r := range rules {
		if r.Action != "deny" {
			t.Errorf("rule %+v", r)
		}
	}
	if !slices.Contains(rules, sprites.Rule{Domain: "*.internal", Action: "deny"}) {
		t.Errorf("the platform's names are not denied: %v", rules)
	}
}

func TestCase24AProofForAnotherInstanceProvesNothing(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withCreate().withPolicy().withWarmUp()
	c := cl.client()
	first, err := c.Provision(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	cl.id, cl.status = "sprite-2", "running"
	req := request()
	req.Proof = first.Proof
	again, err := c.Provision(t.Context(), req)
	if err != nil || cl.count(postPolicy) != 2 || cl.count(getExec) != 2 || again.Proof.Instance != "sprite-2" {
		t.Errorf("policy set %d times, %+v, %v", cl.count(postPolicy), again.Proof, err)
	}
}

func TestCase24AnUnknownInstanceIsRefused(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, true)
	cl.id = ""
	_, err := cl.client().Provision(t.Context(), request())
	if !errors.Is(err, sprites.ErrNoInstance) || cl.count("POST /v1/sprites") != 0 || !cl.stillThere() {
		t.Errorf("got %v", err)
	}
}

func TestCase24AFreshSpriteThatCannotBeLockedDownIsDeleted(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]http.HandlerFunc{
		"refused": respond(400, "bad policy"),
		"ignored": respond(204, ""),
	} {
		cl := newCloud(t, false).withCreate()
		cl.on("POST /box/policy/network", policy)
		cl.on("GET /box/policy/network", respond(200, `{"rules":[]}`))
		_, err := cl.client().Provision(t.Context(), request())
		if err == nil || cl.stillThere() {
			t.Errorf("%s: got %v, still there: %v", name, err, cl.stillThere())
		}
		if name == "ignored" && !errors.Is(err, sprites.ErrPolicyMismatch) {
			t.Errorf("got %v", err)
		}
		if cl.count(getExec) != 0 {
			t.Errorf("%s: a command ran in an open sandbox", name)
		}
	}
}

func TestCase24AResumedSpriteThatCannotBeLockedDownIsRefusedAndKept(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, true)
	cl.on("POST /box/policy/network", respond(400, "bad policy"))
	if _, err := cl.client().Provision(t.Context(), request()); err == nil || !cl.stillThere() {
		t.Errorf("got %v, still there: %v", err, cl.stillThere())
	}
}

func TestARefusedEgressEntryRefusesTheProvision(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	req := request()
	req.Egress = []string{"example.com", "10.0.0.1"}
	if _, err := f.client().Provision(t.Context(), req); sprites.ClassOf(err) != sprites.ClassInvalid || len(f.calls) != 0 {
		t.Errorf("got %v, calls %v", err, f.calls)
	}
}

func TestCase26OnlyA404Or410IsGone(t *testing.T) {
	t.Parallel()
	for class, fault := range faults {
		if class == sprites.ClassNotFound {
			continue // creates: the other tests
		}
		f := newFake(t)
		f.on("GET /box", fault)
		_, err := f.client().Provision(t.Context(), request())
		if sprites.ClassOf(err) != class || f.count("POST /v1/sprites") != 0 || f.count("DELETE /v1/sprites/box") != 0 {
			t.Errorf("%s: got %v, calls %v", class, err, f.calls)
		}
	}
	for _, base := range []string{"http://no-such-host.invalid", "http://127.0.0.1:1"} {
		f := newFake(t)
		_, err := f.client(func(c *sprites.Config) { c.BaseURL = base }).Provision(t.Context(), request())
		if class := sprites.ClassOf(err); class != sprites.ClassTransport && class != sprites.ClassTimeout {
			t.Errorf("%s: got %v", base, err)
		}
	}
}

func TestCase26AServerErrorSaysNothingOfTheSprite(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 500, 502, 503, 504} {
		f := newFake(t)
		f.on("GET /box", respond(status, `{"error":"failed to retrieve sprite"}`))
		_, err := f.client().Provision(t.Context(), request())
		if class := sprites.ClassOf(err); class == sprites.ClassNotFound || class == "" || f.count("POST /v1/sprites") != 0 {
			t.Errorf("%d: got %v, calls %v", status, err, f.calls)
		}
	}
}

func TestCase26AMissingSpriteIsNotCreatedOnResume(t *testing.T) {
	t.Parallel()
	for _, status := range []int{404, 410} {
		f := newFake(t)
		f.on("GET /box", respond(status, ""))
		req := request()
		req.Create = false
		if _, err := f.client().Provision(t.Context(), req); sprites.ClassOf(err) != sprites.ClassNotFound || f.count("POST /v1/sprites") != 0 {
			t.Errorf("%d: got %v", status, err)
		}
	}
}

func TestCase26DeleteIsIdempotentOnExactly404And410(t *testing.T) {
	t.Parallel()
	for status, gone := range map[int]bool{204: true, 200: true, 404: true, 410: true, 401: false, 409: false, 503: false, 302: false} {
		f := newFake(t)
		f.on("DELETE /box", respond(status, ""))
		if err := f.client().Delete(t.Context(), "box"); (err == nil) != gone {
			t.Errorf("%d: got %v", status, err)
		}
	}
}

func TestCase19ANameThatIsNoDNSLabelReachesNoURL(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.client()
	for _, name := range []string{"", "A", "a/b", "a.b", "-a", "a-", "a b", "../x", "a\x00", strings.Repeat("a", 64), "é"} {
		if _, err := c.Get(t.Context(), name); sprites.ClassOf(err) != sprites.ClassInvalid {
			t.Errorf("%q: got %v", name, err)
		}
	}
	if !sprites.ValidName("wb-" + strings.Repeat("a", 45)) {
		t.Error("a derived name of 48 characters is refused")
	}
}

func TestAPartialListingSaysSo(t *testing.T) {
	t.Parallel()
	page := func(more, next string) http.HandlerFunc {
		return respond(200, `{"sprites":[`+record("box", "warm")+`],"has_more":`+more+`,"next_continuation_token":`+next+`}`)
	}
	for name, tt := range map[string]struct {
		pages    []http.HandlerFunc
		n        int
		complete bool
		fails    bool
	}{
		"whole":          {[]http.HandlerFunc{page("true", `"t1"`), page("false", "null")}, 2, true, false},
		"no token":       {[]http.HandlerFunc{page("true", "null")}, 1, false, false},
		"a token's loop": {[]http.HandlerFunc{page("true", `"t1"`)}, 2, false, false},
		"second fails":   {[]http.HandlerFunc{page("true", `"t1"`), respond(401, "")}, 1, false, true},
		"no list":        {[]http.HandlerFunc{respond(200, `{}`)}, 0, false, true},
	} {
		f := newFake(t)
		f.on("GET ", inTurn(tt.pages...))
		got, complete, err := f.client().List(t.Context(), "b")
		if len(got) != tt.n || complete != tt.complete || (err != nil) != tt.fails {
			t.Errorf("%s: %d sprites, complete %v, %v", name, len(got), complete, err)
		}
	}
}

func TestTheClockSkewIsWhatIsCertain(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	ended := began.Add(2 * time.Second)
	for unix, want := range map[int64]time.Duration{
		999: 0, 1000: 0, 1002: 0, 1005: 3 * time.Second, 940: -59 * time.Second,
	} {
		if got := sprites.Skew(unix, began, ended); got != want {
			t.Errorf("%d: got %s, want %s", unix, got, want)
		}
	}
}

func TestTwoClientsOfOneProcessCountTogether(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.on("GET /box", respond(404, ""))
	reg := prometheus.NewRegistry()
	for range 2 {
		c := f.client(func(c *sprites.Config) { c.Registerer = reg })
		_, _ = c.Get(t.Context(), "box")
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "wakebus_sprites_tries_total" {
			m := family.GetMetric()
			if len(m) != 1 || m[0].GetCounter().GetValue() != 2 {
				t.Errorf("got %v", m)
			}
			return
		}
	}
	t.Error("the tries are not counted")
}

func TestACreateThatWaitsForCapacitySaysSo(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, false).withPolicy().withWarmUp()
	var asked map[string]any
	cl.on("POST ", func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		cl.create(w)
	})
	req := request()
	req.Wait = true
	if _, err := cl.client().Provision(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"name": "box", "labels": []any{"wb-dev"}, "wait_for_capacity": true,
		"config": map[string]any{"ram_mb": 2048.0, "cpus": 2.0, "storage_gb": 5.0},
	}
	if !reflect.DeepEqual(asked, want) {
		t.Errorf("asked %v", asked)
	}
}
