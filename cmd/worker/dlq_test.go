package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// kill writes dead letters of class provision_unavailable for tenant acme.
func (r *rig) kill(jobs ...string) {
	r.t.Helper()
	for i, job := range jobs {
		_, err := r.bus.DeadLetter(r.t.Context(), bus.Letter{Tenant: "acme", Job: job, Kind: bus.KindExec, Class: bus.ClassProvisionUnavailable,
			Reason: plan.ReasonProvisionFailed, Step: "create", Status: 503, Code: "down", Message: "the provider \x1b[31mdied",
			Queued: uint64(i + 1), Sealed: &bus.Sealed{}, Attempts: []bus.LetterAttempt{{At: time.Now(), Step: "create", Status: 503, RequestID: "req-1"}}, AttemptCount: 1})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) state(job string) bus.LetterState {
	r.t.Helper()
	letter, err := r.bus.Letter(r.t.Context(), bus.LetterID{Tenant: "acme", Job: job})
	if err != nil {
		r.t.Fatal(err)
	}
	return letter.State
}

func names(prefix string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d", prefix, i))
	}
	return all
}

func TestAnEmptyListPrintsNothingAndIsDone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, args := range [][]string{{"dlq", "list"}, {"dlq", "list", "--json"}, {"dlq", "list", "--by", "fingerprint"}, {"leases", "list"},
		{"leases", "list", "--json"}, {"sandboxes", "list", "--json"}} {
		r.run(args...).want(t, strings.Join(args, " "), 0, "")
	}
}

func TestDeadLettersAreListedGroupedCountedAndShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kill("j1", "j2")
	rows := lines[letterRow](t, r.run("dlq", "list", "--json").out)
	if len(rows) != 2 || rows[0].ID != "acme/j1" || rows[0].Class != bus.ClassProvisionUnavailable || rows[0].State != bus.LetterDead || rows[0].DeadAt.IsZero() {
		t.Errorf("list %+v", rows)
	}
	if groups := lines[groupRow](t, r.run("dlq", "list", "--by", "fingerprint", "--json").out); len(groups) != 1 || groups[0].Count != 2 {
		t.Errorf("groups %+v", groups)
	}
	if got := r.run("dlq", "stats"); got.code != 0 || !strings.Contains(got.out, "provision_unavailable") {
		t.Errorf("stats %s", got)
	}
	for filter, want := range map[string]int{"--class=crash_loop": 0, "--class=provision_unavailable": 2, "--tenant=other": 0, "--since=1h": 2, "--limit=1": 1, "--reason=provision_failed": 2} {
		if got := lines[letterRow](t, r.run("dlq", "list", "--json", filter).out); len(got) != want {
			t.Errorf("%s gives %d", filter, len(got))
		}
	}
	got := r.run("dlq", "show", "acme/j1")
	for _, part := range []string{"acme/j1", "503 down", "req-1", "to do:"} {
		if got.code != 0 || !strings.Contains(got.out, part) {
			t.Errorf("show lacks %q: %s", part, got)
		}
	}
	if strings.Contains(got.out, "\x1b") {
		t.Error("an escape sequence reaches the operator's terminal")
	}
	r.run("dlq", "show", "nobody").want(t, "show", 1, "")
	r.run("dlq", "show", "a/b/c").want(t, "show", 2, "")
	r.run("dlq", "list", "--class", "nonsense").want(t, "list", 2, "")
}

func TestAReplayRunsTheJobAgainAndSaysHowItEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	r.kill("good1", "bad1")
	got := r.run("dlq", "replay", "--json", "--wait", "--why", "fixed", "acme/good1", "acme/bad1")
	if got.code != 1 {
		t.Errorf("%s", got)
	}
	ends := map[string]letterDone{}
	for _, done := range lines[letterDone](t, got.out) {
		ends[done.ID+" "+done.State] = done
	}
	if good := ends["acme/good1 resolved"]; good.Run != 1 || good.Outcome != plan.OutcomeExited {
		t.Errorf("good ended %+v of %v", good, ends)
	}
	if bad := ends["acme/bad1 dead"]; bad.Run != 1 || bad.Outcome != plan.OutcomeFailed {
		t.Errorf("bad ended %+v of %v", bad, ends)
	}
	if again := r.run("dlq", "replay", "--wait", "acme/good1"); again.code != 1 || !strings.Contains(again.out, "refused") {
		t.Errorf("a second replay: %s", again)
	}
}

func TestAReplayWithoutIDsAndFiltersIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kill("j1")
	for name, args := range map[string][]string{"nothing": {}, "both": {"acme/j1", "--class", "crash_loop"}, "a bad rate": {"acme/j1", "--rate", "fast"},
		"a bad share": {"acme/j1", "--stop-on-failure", "0.2"}, "no deadline": {"acme/j1", "--deadline", "0s"}} {
		r.run(append([]string{"dlq", "replay"}, args...)...).want(t, name, 2, "")
	}
	if got := r.state("j1"); got != bus.LetterDead {
		t.Errorf("j1 is %s", got)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kill("j1")
	if got := r.run("dlq", "replay", "--dry-run", "acme/j1", "acme/none"); !strings.Contains(got.out, "would replay acme/j1") || !strings.Contains(got.out, "refused acme/none") {
		t.Errorf("%s", got)
	}
	if got := r.state("j1"); got != bus.LetterDead {
		t.Errorf("j1 is %s", got)
	}
}

func TestMoreThanTenAskUnlessYes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kill(names("j", 11)...)
	if got := r.run("dlq", "replay", "--tenant", "acme"); got.code != 1 || r.state("j0") != bus.LetterDead {
		t.Errorf("without an answer: %s", got)
	}
	if got := r.runIn("no\n", "dlq", "replay", "--tenant", "acme"); got.code != 1 || r.state("j0") != bus.LetterDead {
		t.Errorf("no: %s", got)
	}
	if got := r.runIn("yes\n", "dlq", "replay", "--tenant", "acme", "--limit", "11"); got.code != 0 || r.state("j0") != bus.LetterReplaying {
		t.Errorf("yes: %s", got)
	}
}

func TestCanariesThatFailKeepTheRestFromBeingTouched(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	r.kill("bad0")
	r.kill(names("good", 5)...)
	got := r.run("dlq", "replay", "--tenant", "acme", "--canary", "1")
	if got.code != 1 || !strings.Contains(got.err, "5 records were not touched") {
		t.Errorf("%s", got)
	}
	for _, job := range names("good", 5) {
		if state := r.state(job); state != bus.LetterDead {
			t.Errorf("%s is %s", job, state)
		}
	}
}

func TestCanariesThatEndWellLetTheRestGo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	r.kill(names("good", 4)...)
	if got := r.run("dlq", "replay", "--tenant", "acme", "--canary", "2", "--rate", "100/s", "--wait"); got.code != 0 || strings.Count(got.out, "resolved") != 4 {
		t.Errorf("%s", got)
	}
}

func TestTooManyFailuresStopAReplay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	r.kill(names("bad", 10)...)
	got := r.run("dlq", "replay", "--tenant", "acme", "--rate", "2/s", "--stop-on-failure", "20%", "--yes")
	if got.code != 1 || !strings.Contains(got.err, "did not end well; ") {
		t.Errorf("%s", got)
	}
	if state := r.state("bad9"); state != bus.LetterDead {
		t.Errorf("the last one is %s", state)
	}
}

func TestAnInterruptStopsBetweenRecordsAndTheSameCommandContinues(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kill(names("good", 3)...)
	done := make(chan ended, 1)
	go func() { done <- r.run("dlq", "replay", "--tenant", "acme", "--rate", "1/h") }()
	r.interrupt()
	if got := <-done; got.code != 1 || !strings.Contains(got.err, "the same command continues") {
		t.Errorf("%s", got)
	}
	if got := r.run("dlq", "replay", "--tenant", "acme"); got.code != 0 || r.state("good2") != bus.LetterReplaying {
		t.Errorf("%s", got)
	}
}

func TestTwoOperatorsReplayEachRecordOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kill(names("good", 8)...)
	done := make(chan ended, 2)
	for range 2 {
		go func() { done <- r.run("dlq", "replay", "--json", "--tenant", "acme", "--limit", "8") }()
	}
	count := map[string]int{}
	for range 2 {
		for _, d := range lines[letterDone](t, (<-done).out) {
			if d.State == "replaying" {
				count[d.ID]++
			}
		}
	}
	for id, n := range count {
		if n != 1 {
			t.Errorf("%s was replayed %d times", id, n)
		}
	}
	if len(count) != 8 {
		t.Errorf("%d records were replayed", len(count))
	}
}

func TestADiscardNeedsAWhyAndClosesTheRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kill("j1")
	r.run("dlq", "discard", "acme/j1").want(t, "without why", 2, "")
	r.run("dlq", "discard", "acme/j1", "--why", "gave up").want(t, "discard", 0, "discarded acme/j1\n")
	if state := r.state("j1"); state != bus.LetterDiscarded {
		t.Errorf("j1 is %s", state)
	}
	r.run("dlq", "discard", "acme/none", "--why", "x").want(t, "none", 1, "")
}

func TestAReplayNeedsAnOperatorsGrantOutsideDev(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.env["AUTHZ_MODE"] = "grant"
	r.kill("j1")
	if got := r.run("dlq", "replay", "acme/j1"); got.code != 2 || !strings.Contains(got.err, "operator's grant") || r.state("j1") != bus.LetterDead {
		t.Errorf("%s", got)
	}
}
