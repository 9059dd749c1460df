package job_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// Case 87: secrets go through every way a request can end, and are found nowhere but in the sandbox: not in logs,
// events, audit records, dead letters, links, control messages, metrics or traces, not even when the provider echoes them.
func TestCase87SecretsAreKeptOutOfEverythingThatIsKept(t *testing.T) {
	t.Parallel()
	const inEnv, inStdin, inFile, inGrant = "sentinel-env-7f3a", "sentinel-stdin-91bc", "sentinel-file-5d20", "sentinel-grant-c4e8"
	h, spans := recorded(t)
	js := h.streams(t)
	ask := func(conversation, text string) bus.ExecRequest {
		return bus.ExecRequest{ConversationID: conversation, Shell: text, Env: map[string]string{"PASSWORD": inEnv}, Stdin: []byte(inStdin)}
	}
	who := func(more ...any) grant {
		g := grant{"sub": "ann", "jti": inGrant, "tier": "pro"}
		for i := 0; i+1 < len(more); i += 2 {
			g[more[i].(string)] = more[i+1]
		}
		return g
	}
	echo := fmt.Sprintf(`{"error":"bad request","message":"you sent %s %s with %s"}`, inEnv, inStdin, h.inst.Emulator().Token())

	exited(t, h.exec(t, ask("c", "cat >/dev/null"), who()).result(), 0)
	exited(t, h.exec(t, ask("c", "exit 3"), who()).result(), 3)
	timed := ask("c", "sleep 60")
	timed.TimeoutMs = 100
	outcome(t, h.exec(t, timed, who()).result(), plan.OutcomeTimedOut, "")
	outcome(t, h.exec(t, ask("c", "true"), who("verdict", plan.ReasonNoEditAccess)).result(), plan.OutcomeDenied, plan.ReasonNoEditAccess)
	outcome(t, h.exec(t, ask("c", "true"), who("exp", 1_000_000_000)).result(), plan.OutcomeDenied, plan.ReasonAuthorizationExpired)
	outcome(t, h.exec(t, ask("c", "true"), who("tenant", "other")).result(), plan.OutcomeDenied, plan.ReasonInvalidRequest)
	h.fault(t, emulator.Fault{Route: "sprite.create", Sprite: h.name(t, "echo"), Do: emulator.FaultStatus, Status: 400, Body: echo})
	outcome(t, h.exec(t, ask("echo", "true"), who()).result(), plan.OutcomeFailed, plan.ReasonProvisionFailed)
	h.fault(t, emulator.Fault{Route: "sprite.get", Sprite: h.name(t, "refused"), Do: emulator.FaultStatus, Status: 401, Body: echo})
	outcome(t, h.exec(t, ask("refused", "true"), who()).result(), plan.OutcomeFailed, plan.ReasonMisconfigured)
	cut := ask("c", "echo up; sleep 60")
	a := h.exec(t, cut, who())
	a.until(bus.EventStdout)
	if err := h.inst.Emulator().Kill(h.name(t, "c")); err != nil {
		t.Fatal(err)
	}
	a.result()
	odd := h.id("odd")
	body := []byte(`{"v":1,"job_id":"` + odd + `","conversation_id":"c","shell":"true","env":{"PASSWORD":"` + inEnv + `"},"colour":"` + inStdin + `"}`)
	outcome(t, h.publish(t, bus.KindExec, tenant, odd, body, who().header(t)).result(), plan.OutcomeDenied, plan.ReasonInvalidRequest)
	if _, err := h.bus.Publish(t.Context(), bus.KindExec, tenant, who().header(t), []byte(`{"v":1,"env":{"PASSWORD":"`+inEnv+`"}}`)); err != nil {
		t.Fatal(err)
	}
	files := who().header(t)
	if _, err := h.bus.FileWrite(t.Context(), tenant, files, bus.FileWriteParams{ConversationID: "c", Path: "s"}, []byte(inFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.bus.FileRead(t.Context(), tenant, files, bus.FileReadParams{ConversationID: "c", Path: "s"}); err != nil {
		t.Fatal(err)
	}
	h.fault(t, emulator.Fault{Route: "fs.*", Do: emulator.FaultStatus, Status: 400, Body: echo})
	if _, err := h.bus.FileRead(t.Context(), tenant, files, bus.FileReadParams{ConversationID: "c", Path: "s"}); err == nil {
		t.Fatal("the fault did not hit")
	}
	outcome(t, h.end(t, "c"), plan.OutcomeEnded, "")
	eventually(t, "the malformed request is a dead letter", func() bool {
		stats, err := h.bus.LetterStats(t.Context(), bus.LetterFilter{})
		return err == nil && stats.ByClass[bus.ClassMalformed] == 1
	})
	eventually(t, "every request is settled", func() bool { return waiting(t, js) == 0 })

	places := map[string]string{"the log": h.logs.String()}
	for _, s := range []string{bus.StreamJobs, bus.StreamOutput, bus.StreamControl, bus.StreamDLQ, bus.StreamAudit, "KV_SANDBOX_LINKS"} {
		var b strings.Builder
		for _, m := range everything(t.Context(), t, js, s) {
			fmt.Fprintf(&b, "%s %v %s\n", m.Subject, m.Header, m.Data)
		}
		places[s] = b.String()
		if b.Len() == 0 {
			t.Errorf("%s is empty: the test shows nothing", s)
		}
	}
	var metrics bytes.Buffer
	for _, r := range h.reg {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			metrics.WriteString(f.String())
		}
	}
	places["the metrics"] = metrics.String()
	if err := h.inst.StopWorker(0); err != nil {
		t.Fatal(err)
	}
	places["the traces"] = traced(spans())
	if !strings.Contains(places["the traces"], odd) {
		t.Error("no trace names the job: the test shows nothing")
	}
	secrets := []string{inEnv, inStdin, inFile, inGrant, h.inst.Emulator().Token(), h.inst.Env()["SANDBOX_SESSION_SECRET"]}
	for _, s := range secrets {
		for place, text := range places {
			for _, form := range []string{s, base64.StdEncoding.EncodeToString([]byte(s))} {
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("%s is in %s: …%s…", form, place, text[max(0, at-120):min(len(text), at+80)])
				}
			}
		}
	}
}

// One audit record per run, block, end, replay and file call, each run's with its usage.
func TestEverythingThatWasDoneIsRecordedOnce(t *testing.T) {
	t.Parallel()
	h := build(t)
	js := h.streams(t)
	who := grant{"sub": "ann", "tier": "pro"}
	ran := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "echo TOKEN=abcdefgh12345678 hello"}, who)
	exited(t, ran.result(), 0)
	blocked := h.exec(t, bus.ExecRequest{ConversationID: "c", Argv: []string{"curl", "--password", "a phrase of words", "http://169.254.169.254/"}}, who)
	outcome(t, blocked.result(), plan.OutcomeDenied, plan.ReasonBlockedMetadataAccess)
	full := h.exec(t, bus.ExecRequest{ConversationID: "c", Shell: "true"}, grant{"verdict": plan.ReasonNoDriveAccess})
	outcome(t, full.result(), plan.OutcomeDenied, plan.ReasonNoDriveAccess)
	if _, err := h.bus.FileWrite(t.Context(), tenant, who.header(t), bus.FileWriteParams{ConversationID: "c", Path: "f"}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	ending := h.ending(t, "c")
	outcome(t, ending.result(), plan.OutcomeEnded, "")
	want := []string{"run." + ran.job + ".0", "run." + blocked.job + ".0", "block." + blocked.job + ".0", "run." + full.job + ".0",
		"block." + full.job + ".0", "run." + ending.job + ".0", "teardown." + ending.job}
	var records map[string]map[string]any
	eventually(t, "every record is there", func() bool {
		records = auditOf(t, h, js)
		for _, id := range want {
			if records["sandbox.audit."+tenant+"."+id] == nil {
				return false
			}
		}
		return true
	})
	files := 0
	for subject, r := range records {
		if strings.HasPrefix(subject, "sandbox.audit."+tenant+".file.") {
			files++
			if r["outcome"] != string(plan.OutcomeExited) {
				t.Errorf("a file that was written: %v", r)
			}
		}
	}
	if files != 1 || len(records) != len(want)+1 {
		t.Errorf("%d records, %d of files", len(records), files)
	}
	run := records["sandbox.audit."+tenant+".run."+ran.job+".0"]
	usage, _ := run["usage"].(map[string]any)
	if usage == nil || usage["tier"] != "pro" || usage["bytes"] == 0.0 || run["fence"] == nil {
		t.Errorf("the run's record: %v", run)
	}
	if strings.Contains(fmt.Sprint(run["command"]), "abcdefgh12345678") {
		t.Errorf("the command is not redacted: %v", run["command"])
	}
	if block := records["sandbox.audit."+tenant+".block."+blocked.job+".0"]; block["anomaly"] != true || strings.Contains(fmt.Sprint(block["command"]), "words") {
		t.Errorf("a blocked command is no anomaly, or shows a secret of several words: %v", block)
	}
}

// A sink that fails changes no outcome, and is counted.
func TestAFailingAuditSinkBreaksNothingAndIsCounted(t *testing.T) {
	t.Parallel()
	h := build(t)
	if err := h.streams(t).DeleteStream(t.Context(), bus.StreamAudit); err != nil {
		t.Fatal(err)
	}
	exited(t, h.sh(t, "c", "true"), 0)
	eventually(t, "the failure is counted", func() bool { return h.counted(t, "wakebus_audit_records_total", "failed") > 0 })
}
