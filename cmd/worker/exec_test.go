package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/plan"
)

func TestExecPassesBytesThroughAndEndsWithTheCommandsOwnCode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	got := r.run("exec", "--", "out:a\x01\r\n", "err:b\n", "out:c", "exit:7")
	if got.code != 7 || got.out != "a\x01\r\nc" || got.err != "b\n" {
		t.Errorf("%s", got)
	}
}

func TestExecEndsWithOneCodePerOutcomeAndOneLineOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	for word, want := range map[string]struct {
		code int
		says string
	}{
		"exit:0": {0, ""}, "exit:255": {255, ""}, "timed_out": {124, "timed_out after 1s"}, "output_limit": {126, "output_limit"},
		"canceled": {130, "canceled"}, "lost": {255, "lost"}, "expired": {125, "expired"},
		"denied:concurrency_limit": {125, "denied concurrency_limit: " + plan.ReasonConcurrencyLimit.Sentence()},
		"failed:provision_failed":  {125, "failed provision_failed"},
	} {
		got := r.run("exec", "--", "out:x", word)
		if got.code != want.code || got.out != "x" || !strings.Contains(got.err, want.says) || (want.says == "") != (got.err == "") || strings.Count(got.err, "\n") > 1 {
			t.Errorf("%s: %s", word, got)
		}
	}
}

func TestExecPrintsEveryEventAsOneJSONObjectPerLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	got := r.run("exec", "--json", "--job", "j1", "--", "out:hello", "exit:3")
	if got.code != 3 || got.err != "" {
		t.Fatalf("%s", got)
	}
	events := lines[map[string]any](t, got.out)
	seq, data := 0.0, ""
	for _, ev := range events {
		if ev["seq"].(float64) <= seq || ev["job_id"] != "j1" || ev["run"] != 0.0 || ev["time"] == nil || ev["stdout_offset"] == nil || ev["stderr_offset"] == nil {
			t.Errorf("event %v after seq %v", ev, seq)
		}
		seq = ev["seq"].(float64)
		_, isOutput := ev["data"]
		if _, isState := ev["body"]; isOutput == isState {
			t.Errorf("event %v has data and body, or neither", ev)
		}
		if isOutput {
			data += ev["data"].(string)
		}
	}
	last := events[len(events)-1]
	if last["event"] != "result" || data != "aGVsbG8=" || last["body"].(map[string]any)["exit_code"] != 3.0 {
		t.Errorf("data %q, last %v", data, last)
	}
}

func TestOneInterruptCancelsAndWaitsForTheResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.play()
	done := make(chan ended, 1)
	go func() { done <- r.run("exec", "--", "out:begun", "wait") }()
	<-p.running
	r.interrupt()
	got := <-done
	if got.code != 130 || got.out != "begun" || !strings.Contains(got.err, "canceled by olga") {
		t.Errorf("%s", got)
	}
}

func TestASecondInterruptLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t) // nobody runs the job, so no result can come
	done := make(chan ended, 1)
	go func() { done <- r.run("exec", "--", "true") }()
	r.interrupt()
	r.interrupt()
	if got := <-done; got.code != 130 || !strings.Contains(got.err, "left") {
		t.Errorf("%s", got)
	}
}

func TestAnInterruptWaitsForTheResultForABoundedTime(t *testing.T) {
	t.Parallel()
	r := newRig(t) // nobody runs the job, so no result can come
	var out, text lockedBuffer
	c := r.cli(strings.NewReader(""), &out, &text)
	c.farewell = 10 * time.Millisecond
	done := make(chan int, 1)
	go func() { done <- run(t.Context(), c, []string{"exec", "--", "true"}) }()
	r.interrupt()
	if code := <-done; code != 130 || !strings.Contains(text.String(), "left") {
		t.Errorf("%d: %s", code, text.String())
	}
}

// brokenPipe is a standard output whose reader has gone after the first write.
type brokenPipe struct{ writes int }

func (b *brokenPipe) Write(p []byte) (int, error) {
	b.writes++
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
}

func TestAClosedStandardOutputLeavesAndTheJobGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.play()
	pipe := &brokenPipe{}
	if code := run(t.Context(), r.cli(strings.NewReader(""), pipe, io.Discard), []string{"exec", "--job", "j1", "--", "out:x", "wait"}); code != codeClosedOutput || pipe.writes != 1 {
		t.Errorf("code %d after %d writes", code, pipe.writes)
	}
	<-p.running
	if mark, err := r.bus.CancelMark(t.Context(), "dev", "j1", "default", r.bus.ReconnectedAt()); mark != nil || err != nil {
		t.Errorf("the job was canceled: %v %v", mark, err)
	}
}

func TestDetachPrintsTheIDOnceItIsStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := r.run("exec", "--detach", "--job", "later", "--", "out:x")
	got.want(t, "detach", 0, "later\n")
	depths, err := r.bus.Backlog(t.Context())
	if err != nil || len(depths) != 1 || depths[0].Tenant != "dev" || depths[0].Count != 1 {
		t.Errorf("stored %v %v", depths, err)
	}
	r.play()
	r.run("exec", "--job", "later", "--", "out:y").want(t, "attach", 0, "x")
}

func TestAnIDUsedBeforePrintsWhatWasRecordedAndRunsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	r.run("exec", "--job", "j1", "--", "out:first", "exit:4").want(t, "first", 4, "first")
	r.run("exec", "--job", "j1", "--", "out:second", "exit:5").want(t, "second", 4, "first")
}

func TestUnusableArgumentsEndWith125AndPublishNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.env["SET"] = "v"
	for name, args := range map[string][]string{
		"a wildcard conversation": {"--conversation", "a*b", "--", "true"}, "no command": {}, "both": {"--shell", "true", "--", "true"},
		"an empty command": {"--shell", ""}, "a job id with a dot": {"--job", "a.b", "--", "true"}, "tenant _": {"--tenant", "_", "--", "true"},
		"a tenant wildcard": {"--tenant", "*", "--", "true"}, "a timeout without unit": {"--timeout", "5", "--", "true"},
		"a negative timeout": {"--timeout", "-1s", "--", "true"}, "a huge command": {"--shell", strings.Repeat("x", 16<<10+1)},
		"an unknown flag": {"--nope"}, "a bad size": {"--stream-bytes", "lots", "--", "true"}, "an unset variable": {"--env", "UNSET", "--", "true"},
		"a reserved variable": {"--env", "LD_PRELOAD=x", "--", "true"},
		"an unknown word":     {"--order", "sideways", "--", "true"}, "a deadline beyond a day": {"--deadline", "100h", "--", "true"},
		"an unknown tier": {"--tier", "gold", "--", "true"},
	} {
		if got := r.run(append([]string{"exec"}, args...)...); got.code != 125 || got.out != "" || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s: %s", name, got)
		}
	}
	if depths, err := r.bus.Backlog(t.Context()); err != nil || len(depths) != 0 {
		t.Errorf("published %v %v", depths, err)
	}
}

func TestTheRequestCarriesWhatTheFlagsSay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.env["PASSED"] = "on"
	r.runIn("input", "exec", "--detach", "--tenant", "acme", "--user", "ann", "--tier", "pro", "--conversation", "c1", "--drive", "d1", "--job", "j1",
		"--timeout", "3s", "--cwd", "/workspace/x", "--env", "A=1=2", "--env", "PASSED", "--stdin", "--on-limit", "wait", "--order", "serial",
		"--on-output-limit", "kill", "--stream-bytes", "1MiB", "--fresh-start", "--", "a", "--b").want(t, "exec", 0, "j1\n")
	seen := make(chan *bus.Delivery, 1)
	pool, err := bus.NewPool(r.bus, bus.PoolConfig{}, func(ctx context.Context, d *bus.Delivery) { seen <- d; _ = d.Ack(ctx) })
	if err != nil {
		t.Fatal(err)
	}
	stop := runPool(t, pool)
	d := <-seen
	stop()
	var got, want bus.ExecRequest
	if err := json.Unmarshal(d.Data, &got); err != nil || got.Deadline == nil {
		t.Fatalf("%v %s", err, d.Data)
	}
	got.Deadline = nil
	want = bus.ExecRequest{V: 1, JobID: "j1", ConversationID: "c1", DriveID: "d1", Argv: []string{"a", "--b"}, Cwd: "/workspace/x",
		Env: map[string]string{"A": "1=2", "PASSED": "on"}, Stdin: []byte("input"), TimeoutMs: 3000, StreamBytes: 1 << 20,
		OnOutputLimit: "kill", OnLimit: "wait", Order: "serial", FreshStart: true}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) || d.Tenant != "acme" || d.Header.Get(bus.HeaderGrant) != `{"sub":"ann","tier":"pro"}` {
		t.Errorf("sent %s to %s with %s\nwant %s", a, d.Tenant, d.Header.Get(bus.HeaderGrant), b)
	}
}

func TestASignedGrantComesFromTheFlagOrTheEnvironment(t *testing.T) {
	t.Parallel()
	c := &cli{lookup: func(name string) (string, bool) { return "from.env.x", name == "WAKEBUS_GRANT" }}
	for flag, want := range map[string]string{"": "from.env.x", "from.flag.x": "from.flag.x"} {
		if hdr, err := c.grantHeader(flag, "u", "free"); err != nil || hdr.Get(bus.HeaderGrant) != want {
			t.Errorf("%q: %v %v", flag, hdr, err)
		}
	}
}

func TestStandardInputAboveItsLimitIsRefusedNotCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if got := r.runIn(strings.Repeat("x", bus.MaxStdin+1), "exec", "--stdin", "--", "cat"); got.code != 125 || !strings.Contains(got.err, "stdin") {
		t.Errorf("%s", got)
	}
}

func TestWhereNoWorkerRunsExecEndsAfterTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if got := r.run("exec", "--deadline", "100ms", "--", "true"); got.code != 125 || !strings.Contains(got.err, "no worker took it") {
		t.Errorf("%s", got)
	}
}

func TestAFullQueueIsRefusedWithACode(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *bus.Config) { c.TenantBacklog = 1 })
	r.run("exec", "--detach", "--", "true").want(t, "first", 0, "*")
	if got := r.run("exec", "--detach", "--", "true"); got.code != 125 || !strings.Contains(got.err, "refused") {
		t.Errorf("%s", got)
	}
}

func TestADevInstanceThatIsGoneSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	delete(r.env, "NATS_URL")
	delete(r.env, "REDIS_URL")
	dev := filepath.Join(r.dir, config.DevDir)
	if err := os.Mkdir(dev, 0o700); err != nil {
		t.Fatal(err)
	}
	err := config.WriteDevFile(filepath.Join(dev, config.EnvName), map[string]string{"NATS_URL": "nats://u:secret@127.0.0.1:1", "REDIS_URL": "redis://127.0.0.1:1", "AUTHZ_MODE": "dev"})
	if err != nil {
		t.Fatal(err)
	}
	for code, args := range map[int][]string{125: {"exec", "--", "true"}, 3: {"dlq", "list"}} {
		got := r.run(args...)
		if want := "worker: the dev instance of " + dev + " is not running\n"; got.code != code || got.err != want {
			t.Errorf("%v: %s", args, got)
		}
	}
	r.run("leases", "list").want(t, "leases", 3, "")
}

func TestAServerThatIsAwayAndNoServerAtAllAreCode3(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.env["NATS_URL"] = "nats://u:sentinel@127.0.0.1:1"
	r.env["REDIS_URL"] = "redis://:sentinel@127.0.0.1:1"
	for _, args := range [][]string{{"dlq", "list"}, {"leases", "list"}, {"status"}, {"execution", "show"}} {
		if got := r.run(args...); got.code != 3 || strings.Contains(got.err, "sentinel") {
			t.Errorf("%v: %s", args, got)
		}
	}
	// RFC 6761 promises that no such name ever resolves.
	r.env["NATS_URL"] = "nats://nowhere.invalid:4222"
	r.run("dlq", "list").want(t, "a name that does not resolve", 3, "")
	delete(r.env, "NATS_URL")
	if got := r.run("dlq", "list"); got.code != 3 || !strings.Contains(got.err, "worker dev") {
		t.Errorf("%s", got)
	}
}

// What would silently become something else is refused: zero is no default, and JSON carries only UTF-8.
func TestArgumentsThatWouldBecomeOthersAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, args := range map[string][]string{
		"no timeout": {"exec", "--timeout", "0s", "--", "true"}, "no deadline": {"exec", "--deadline", "0s", "--", "true"},
		"no output": {"exec", "--stream-bytes", "0", "--", "true"}, "an argument of bytes": {"exec", "--", "echo", "\xff"},
		"a variable of bytes": {"exec", "--env", "A=\xff", "--", "true"}, "a script of bytes": {"exec", "--shell", "echo \xff"},
	} {
		if got := r.run(args...); got.code != 125 || !strings.Contains(got.err, "unusable arguments") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.run("files", "put", filepath.Join(r.dir, "f"), "a\xff"); got.code == 0 || !strings.Contains(got.err, "UTF-8") {
		t.Errorf("a file name of bytes: %s", got)
	}
}
