package bus_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

const schemaDir = "../../docs/schema"

func schemaPath(name string) string { return filepath.Join(schemaDir, name+".schema.json") }

// example pairs a schema with a Go value whose every field is set, so that every property meets its schema.
type example struct {
	schema string
	full   any
}

var (
	at      = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	hash    = strings.Repeat("ab", 32)
	actor   = &bus.Actor{Tenant: "t", User: "ann", Tier: plan.TierPro, Drive: "d", AgentPage: "a", Conversation: "c", Page: "p", Operator: "ops"}
	timing  = bus.Timing{Queued: 1, Authorize: 2, Lease: 3, Plan: 4, Provision: 5, Wake: 6, Run: 7, Total: 8, Attempts: 1, Detached: true}
	running = bus.Record{Phase: plan.PhaseStopping, Attempt: 1, Crashes: 2, Queued: 3, QueuedAt: at, Kind: bus.KindExec, Actor: actor,
		Sandbox: "wb-x", Plan: plan.ActionCreate, Why: plan.WhyNew, Fresh: true, Woke: "cold", Lease: "t.j.0.1", Fence: 9, Instance: "i",
		Session: "7", Created: 8, LimitAt: at, Stop: &bus.Stop{Reason: plan.StopTimeout, By: "us", Why: "limit", At: at, Lost: bus.ClassOutcomeUnknown},
		Detached: true, Timing: timing, StartedAt: at, TryingSince: at, Failures: []bus.Failure{{At: at, Attempt: 1, Step: "create",
			Class: "unavailable", Status: 503, Code: "c", Held: true, RequestID: "r"}}}
)

func examples() []example {
	n, code, pending := int64(5), 137, true
	return []example{
		{"terminal", bus.TerminalRequest{V: 1, OpenID: "o", PageID: "p", DriveID: "d", Cols: 80, Rows: 24, Deadline: &at}},
		{"cancel", bus.CancelRequest{By: "ann", Why: "typo"}},
		{"actor", *actor},
		{"timing", timing},
		{"record", running},
		{"accepted", bus.AcceptedBody{Actor: actor, Run: running}},
		{"waiting", bus.WaitingBody{For: bus.WaitLimit, Scope: "user", Until: at, Why: "full", Run: running}},
		{"planned", bus.PlannedBody{Plan: plan.ActionResume, Why: plan.WhyWarm, Run: running}},
		{"dialing", bus.DialingBody{Try: 1, Fresh: true, Run: running}},
		{"started", bus.StartedBody{Run: running}},
		{"stopping", bus.StoppingBody{Reason: plan.StopCancel, By: "ann", Run: running}},
		{"taken_over", bus.TakenOverBody{From: "w1.1", Run: running}},
		{"heartbeat", bus.HeartbeatBody{RunningMs: 1, StdoutBytes: 2, StderrBytes: 3, Run: running}},
		{"gap", bus.GapBody{Stream: bus.GapBoth, Bytes: &n, Why: bus.GapWhyCap}},
		{"result", bus.ResultBody{Outcome: plan.OutcomeExited, Reason: plan.ReasonError, Message: "m", Class: "transport", ExitCode: &code,
			Signal: "KILL", Hint: "out of memory", ExitSource: "frame", Retryable: true, RetryAfterMs: 1, DeadLetter: "t/j", LimitMs: 2,
			Stopped: "confirmed", By: "ann", Sandbox: "s", Plan: plan.ActionCreate, Why: plan.WhyNew, Fresh: true, Woke: "cold",
			StdoutBytes: 1, StderrBytes: 2, ProducedBytes: 3, Truncated: true,
			Output: &bus.OutputPreviews{Stdout: bus.Preview{Head: []byte("h"), Tail: []byte("t")}, Stderr: bus.Preview{Head: []byte("h"), Tail: []byte("t")}},
			Timing: timing, LeaseTicket: &bus.LeaseTicket{ID: "l", Fence: 1, Expires: at}, Pending: &pending, Canceled: []string{"j2"}, Run: running}},
		{"dead_letter", fullLetter()},
		{"file_read", bus.FileReadParams{V: 1, ConversationID: "c", DriveID: "d", Path: "/workspace/a", Offset: 1, MaxBytes: 2}},
		{"file_write", bus.FileWriteParams{V: 1, ConversationID: "c", DriveID: "d", Path: "a", Mode: "0644"}},
		{"file_written", bus.FileWritten{Path: "a", Size: 1, SHA256: hash}},
		{"history", bus.HistoryRequest{V: 1, JobID: "j", Run: 1, FromSeq: 2}},
		{"jobs", bus.JobsRequest{V: 1, ConversationID: "c", State: bus.JobEnded, Limit: 5}},
		{"jobs_answer", bus.JobsAnswer{Partial: true, Jobs: []bus.JobSummary{{JobID: "j", Run: 1, Kind: bus.KindExec, ConversationID: "c",
			PageID: "p", State: bus.JobEnded, LastEvent: bus.EventResult, LastAt: at, WaitsFor: bus.WaitRedis, Outcome: plan.OutcomeExited,
			QueuedAt: at, StartedAt: at}}}},
		{"authz_request", bus.AuthzRequest{V: 1, Action: bus.AuthzExec, Tenant: "t", User: "u", ConversationID: "c", PageID: "p",
			DriveID: "d", AgentPageID: "a", JobID: "j"}},
		{"authz_answer", bus.AuthzAnswer{Allow: true, Tier: plan.TierFree, Reason: plan.ReasonNoEditAccess}},
		{"audit", audit.Record{V: 1, Time: at, Kind: audit.KindRun, Tenant: "t", ID: "j.0", Actor: audit.Actor{User: "u", Tier: plan.TierPro,
			AgentPage: "a", Drive: "d", Operator: "ops"}, Action: "exec", Job: "j", Run: 1, Conversation: "c", Page: "p", Command: "ls", Path: "a",
			Outcome: plan.OutcomeExited, Reason: plan.ReasonError, ExitCode: &code, Detail: "d", DurationMs: 1, Anomaly: true, Sandbox: "s",
			Plan: plan.ActionResume, Why: plan.WhyWarm, Lease: "l", Fence: 1, Worker: "w",
			Usage: &audit.Usage{ActiveS: 1.5, Wakes: 1, Bytes: 2, Tier: plan.TierPro}}},
		{"execution", bus.ExecutionSwitch{Unreadable: true, On: true, By: "ops", Why: "incident", At: at}},
	}
}

// claims is every claim of a grant or ticket; the audience is a list of one, as the library writes it.
func claims(audience string) authz.Claims {
	when := jwt.NewNumericDate(at)
	return authz.Claims{Issuer: "web", Audience: jwt.ClaimStrings{audience}, IssuedAt: when, Expires: when, ID: "i", Subject: "ann",
		Tenant: "t", Tier: plan.TierPro, Drive: "d", Origin: "https://x", AgentPage: "a", Conversation: "c", Page: "p", Job: "j", Open: "o",
		Verdict: "allow", Request: hash}
}

func TestClaimsOfGrantsAndTicketsMatchTheirSchemas(t *testing.T) {
	t.Parallel()
	grant, ticket := claims(authz.AudienceGrant), claims(authz.AudienceTerminal)
	ticket.Role = "owner"
	for name, c := range map[string]authz.Claims{"grant": grant, "ticket": ticket} {
		data := asJSON(t, c)
		if err := compileSchema(t, name).Validate(parsed(t, data)); err != nil {
			t.Errorf("%s: %v", data, err)
		}
		doc, _ := readJSON(t, schemaPath(name)).(map[string]any)
		props, _ := doc["properties"].(map[string]any)
		var set map[string]any
		if err := json.Unmarshal(data, &set); err != nil {
			t.Fatal(err)
		}
		for claim := range props {
			if _, ok := set[claim]; !ok {
				t.Errorf("%s: claim %s is not in the Go type", name, claim)
			}
		}
	}
	if err := compileSchema(t, "ticket").Validate(parsed(t, asJSON(t, grant))); err == nil {
		t.Error("a grant passes as a ticket")
	}
}

func fullLetter() bus.Letter {
	return bus.Letter{V: 1, State: bus.LetterDead, Run: 1, Tenant: "t", Job: "j", Kind: bus.KindExec, Class: bus.ClassProvisionUnavailable,
		Reason: plan.ReasonProvisionFailed, Message: "m", Step: "create", Status: 503, Code: "x", Fingerprint: "f", MayHaveRun: true,
		Actor: actor, Sandbox: "s", Attempts: []bus.LetterAttempt{{At: at, Step: "create", Class: "unavailable", Status: 503, Code: "c", Held: true,
			Error: "e", RequestID: "r", RetryAfterMs: 1}}, AttemptCount: 1, Crashes: 1, Queued: 1, QueuedAt: at, DeadAt: at, Worker: "w",
		Traceparent: "00-x", Request: hash, Redacted: json.RawMessage(`{"v":1}`),
		Sealed: &bus.Sealed{KeyID: "k", Nonce: []byte("n"), Data: []byte("d")}, Replays: 1, By: "ops", Why: "w", At: at,
		History: []bus.LetterMark{{State: bus.LetterDead, Run: 0, Class: bus.ClassCrashLoop, Reason: plan.ReasonCrashLoop, By: "b", Why: "w", At: at}}}
}

// alternatives are messages whose fields exclude each other, so that two values fill them.
func alternatives() []example {
	return []example{
		{"exec", bus.ExecRequest{V: 1, JobID: "j", ConversationID: "c", DriveID: "d", Argv: []string{"a"}, Cwd: "/workspace",
			Env: map[string]string{"A": "1"}, Stdin: []byte("x"), TimeoutMs: 100, StreamBytes: 1, OnOutputLimit: "kill", Deadline: &at,
			OnLimit: "wait", Order: "serial", FreshStart: true}},
		{"exec", bus.ExecRequest{V: 1, JobID: "j", ConversationID: "c", Shell: "true"}},
		{"end", bus.EndRequest{V: 1, JobID: "j", ConversationID: "c", DriveID: "d"}},
		{"end", bus.EndRequest{V: 1, JobID: "j", PageID: "p"}},
		{"gap", bus.GapBody{Stream: bus.GapStdout, Why: bus.GapWhyTakeover}},
		{"authz_answer", bus.AuthzAnswer{Reason: plan.ReasonNoDriveAccess}},
	}
}

func compileSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	paths, err := filepath.Glob(schemaPath("*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no schemas in %s: %v", schemaDir, err)
	}
	for _, path := range paths {
		doc := readJSON(t, path)
		id, _ := doc.(map[string]any)["$id"].(string)
		if !strings.HasSuffix(id, "/"+filepath.Base(path)) {
			t.Fatalf("%s calls itself %q", path, id)
		}
		if err := c.AddResource(id, doc); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile("https://wakebus.dev/schema/" + name + ".schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readJSON(t *testing.T, path string) any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return doc
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parsed(t *testing.T, data []byte) any {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestEveryMessageOfTheGoTypesIsValidByItsSchema(t *testing.T) {
	t.Parallel()
	for _, ex := range append(examples(), alternatives()...) {
		t.Run(ex.schema, func(t *testing.T) {
			t.Parallel()
			data := asJSON(t, ex.full)
			if err := compileSchema(t, ex.schema).Validate(parsed(t, data)); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			back := reflect.New(reflect.TypeOf(ex.full))
			dec := json.NewDecoder(bytes.NewReader(data))
			dec.DisallowUnknownFields()
			if err := dec.Decode(back.Interface()); err != nil {
				t.Fatal(err)
			}
			if again := asJSON(t, back.Elem().Interface()); !bytes.Equal(again, data) {
				t.Fatalf("%s came back as %s", data, again)
			}
		})
	}
}

func TestEveryGoFieldIsInTheSchemaAndEveryPropertyInTheGoType(t *testing.T) {
	t.Parallel()
	for _, ex := range append(examples(), alternatives()...) {
		t.Run(ex.schema, func(t *testing.T) {
			t.Parallel()
			compareType(t, reflect.TypeOf(ex.full), schemaPath(ex.schema), nil)
		})
	}
}

// TestEveryFieldOfAnExampleIsSet keeps the two tests above honest: an unset field would not be looked at.
func TestEveryFieldOfAnExampleIsSet(t *testing.T) {
	t.Parallel()
	for _, ex := range examples() {
		checkSet(t, ex.schema, reflect.ValueOf(ex.full))
	}
}

func checkSet(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() == reflect.Slice && v.Len() > 0 {
		checkSet(t, path, v.Index(0))
	}
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
		return
	}
	for i := range v.NumField() {
		at := path + "." + v.Type().Field(i).Name
		if strings.Contains(at, "History.Run") { // run 0 died first: zero is a value there
			continue
		}
		if v.Field(i).IsZero() {
			t.Errorf("%s is not set", at)
		}
		checkSet(t, at, v.Field(i))
	}
}

// compareType compares a struct's JSON names with a schema's properties, and so on below both.
func compareType(t *testing.T, typ reflect.Type, path string, doc map[string]any) {
	t.Helper()
	if doc == nil {
		doc, _ = readJSON(t, path).(map[string]any)
	}
	props, _ := doc["properties"].(map[string]any)
	inGo := map[string]reflect.Type{}
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		inGo[name] = typ.Field(i).Type
		if _, ok := props[name]; !ok {
			t.Errorf("%s: %s.%s is not in the schema", path, typ, name)
		}
	}
	if doc["additionalProperties"] != false {
		t.Errorf("%s: %s allows what it does not name", path, typ)
	}
	for name, p := range props {
		goType, ok := inGo[name]
		if !ok {
			t.Errorf("%s: property %s is not in %s", path, name, typ)
			continue
		}
		prop, _ := p.(map[string]any)
		compareBelow(t, goType, path, prop)
	}
	required, _ := doc["required"].([]any)
	for _, r := range required {
		if _, ok := inGo[r.(string)]; !ok {
			t.Errorf("%s: requires %v, which %s lacks", path, r, typ)
		}
	}
}

func compareBelow(t *testing.T, typ reflect.Type, path string, prop map[string]any) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct {
		prop, _ = prop["items"].(map[string]any)
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() {
		return
	}
	if ref, ok := prop["$ref"].(string); ok {
		compareType(t, typ, filepath.Join(schemaDir, ref), nil)
		return
	}
	compareType(t, typ, path, prop)
}

func TestSchemasRefuseWhatTheParsersRefuse(t *testing.T) {
	t.Parallel()
	exec := compileSchema(t, "exec")
	for _, set := range []map[string]any{
		{"v": 2}, {"user": "x"}, {"job_id": "a.b"}, {"argv": nil}, {"shell": "true"}, {"argv": []string{}}, {"argv": []string{""}},
		{"timeout_ms": 99}, {"on_limit": "wait"}, {"order": "x"}, {"env": map[string]string{"WAKEBUS_A": ""}},
		{"env": map[string]string{"1": ""}}, {"drive_id": "a b"}, {"cwd": ""}, {"argv": nil, "shell": " "}, {"deadline": "soon"},
	} {
		body := edit(t, set)
		if _, err := bus.ParseExec(body); err == nil {
			t.Errorf("the parser takes %s", body)
		}
		if err := exec.Validate(parsed(t, body)); err == nil {
			t.Errorf("the schema takes %s", body)
		}
	}
	if err := exec.Validate(parsed(t, []byte(goodExec))); err != nil {
		t.Fatal(err)
	}
}

func TestTheReasonSchemaIsTheClosedSet(t *testing.T) {
	t.Parallel()
	doc, _ := readJSON(t, schemaPath("reason")).(map[string]any)
	var want []any
	for _, r := range plan.Reasons() {
		want = append(want, string(r.Reason))
	}
	if have, _ := doc["enum"].([]any); !slices.Equal(have, want) {
		t.Fatalf("schema has %v, Go has %v", have, want)
	}
}

func TestEveryClassOfADeadLetterIsInItsSchema(t *testing.T) {
	t.Parallel()
	s := compileSchema(t, "dead_letter")
	for _, class := range bus.LetterClasses() {
		letter := fullLetter()
		letter.Class = class
		if err := s.Validate(parsed(t, asJSON(t, letter))); err != nil {
			t.Errorf("%s: %v", class, err)
		}
		if class.Suggestion() == bus.LetterClass("").Suggestion() {
			t.Errorf("%s has no suggestion of its own", class)
		}
	}
}
