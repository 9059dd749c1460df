package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

func TestTheHelpTextGroupsTheCommandsAndEveryOneHasAnExample(t *testing.T) {
	t.Parallel()
	root := newRoot(&cli{})
	groups := map[string]bool{}
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue // cobra's own
		}
		groups[cmd.GroupID] = true
		if cmd.GroupID == "" {
			t.Errorf("%s has no group", cmd.CommandPath())
		}
		walk(cmd, func(cmd *cobra.Command) {
			if cmd.Short == "" || !strings.Contains(cmd.Example, cmd.CommandPath()) {
				t.Errorf("%s lacks a text or an example of itself", cmd.CommandPath())
			}
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if f.Usage == "" {
					t.Errorf("%s --%s says nothing of itself", cmd.CommandPath(), f.Name)
				}
			})
		})
	}
	if len(groups) != 3 {
		t.Errorf("groups %v", groups)
	}
}

func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

func TestEveryCommandHasAManualPageAndEveryShellItsCompletion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := filepath.Join(r.dir, "man")
	r.run("docs", "man", dir).want(t, "man", 0, "")
	walk(newRoot(&cli{}), func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() || cmd.IsAdditionalHelpTopicCommand() || cmd.Name() == "help" || strings.Contains(cmd.CommandPath(), " completion") {
			return
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(page), ".SH NAME") || !strings.Contains(string(page), ".SH EXAMPLE") {
			t.Errorf("%s: %v, %d bytes", name, err, len(page))
		}
	})
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := r.run("completion", shell); got.code != 0 || !strings.Contains(got.out, "worker") {
			t.Errorf("%s: code %d, %d bytes", shell, got.code, len(got.out))
		}
	}
	r.run("completion", "tcsh").want(t, "a shell that it does not know", 2, "")
	if got := r.run("__complete", "dlq", ""); got.code != 0 || !strings.Contains(got.out, "replay\t") {
		t.Errorf("%s", got)
	}
}

func TestWrongUsageIsCode2(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, args := range [][]string{{"nope"}, {"--nope"}, {"dlq"}, {"dlq", "nope"}, {"dlq", "show"}, {"plan", "x"}, {"plan", "--link", "x"},
		{"leases", "release", "a.b.0.1"}, {"leases", "list", "--kind", "cat"}, {"execution", "off"}, {"check", "--config", "--role", "x"}, {"emulator", "--wake", "1s"},
		{"emulator", "--mutation", "none-such"}, {"emulator", "--fault", `{"do":"explode"}`}, {"emulator", "--faults", "none-such"}, {"grant"}} {
		if got := r.run(args...); got.code != 2 {
			t.Errorf("%v: %s", args, got)
		}
	}
}

func TestLeasesAreListedMarkedAndFreed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	m, err := lease.Open(t.Context(), lease.Config{URL: r.env["REDIS_URL"], Quarantine: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	for _, id := range []string{"acme.j1.0.1", "acme.j2.0.1"} {
		if _, err := m.Acquire(t.Context(), lease.Request{ID: id, Kind: lease.KindExec, Tenant: "acme", User: "ann",
			Scopes: []lease.Scope{lease.UserScope(lease.KindExec, "acme", "ann", 5)}}); err != nil {
			t.Fatal(err)
		}
	}
	if rows := lines[lease.Record](t, r.run("leases", "list", "--json", "--tenant", "acme").out); len(rows) != 2 || rows[0].User != "ann" {
		t.Errorf("list %+v", rows)
	}
	r.run("leases", "release", "acme.j1.0.1", "--why", "stuck", "--now").want(t, "now", 0, "released acme.j1.0.1\n")
	r.run("leases", "release", "acme.j2.0.1", "--why", "stuck").want(t, "mark", 0, "marked acme.j2.0.1\n")
	r.run("leases", "release", "acme.none.0.1", "--why", "x").want(t, "none", 1, "")
	// No run ends for these: a leader would go on beside the next one, a file call is over by then.
	for kind, id := range map[lease.Kind]string{lease.KindLeader: "leader.sweep.1", lease.KindFile: "acme.file.1"} {
		held, err := m.Acquire(t.Context(), lease.Request{ID: id, Kind: kind, Tenant: "acme", User: "bob",
			Scopes: []lease.Scope{lease.UserScope(kind, "acme", "bob", 5)}})
		if err != nil {
			t.Fatal(err)
		}
		r.run("leases", "release", id, "--why", "x", "--now").want(t, string(kind), 1, "")
		if rows := lines[lease.Record](t, r.run("leases", "list", "--json", "--kind", string(kind), "--user", "bob").out); len(rows) != 1 || rows[0].ID != id {
			t.Errorf("%s: %+v", kind, rows)
		}
		if ok, err := held.Release(t.Context()); !ok || err != nil {
			t.Errorf("%s: %v %v", kind, ok, err)
		}
	}
	rows := lines[lease.Record](t, r.run("leases", "list", "--json").out)
	if len(rows) != 1 || rows[0].ID != "acme.j2.0.1" || rows[0].Why != "stuck" || rows[0].By != "olga" {
		t.Errorf("left %+v", rows)
	}
}

func TestExecutionOffHoldsForTheFleetUntilOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, on := range []bool{false, true} {
		word := map[bool]string{false: "off", true: "on"}[on]
		r.run("execution", word, "--why", "incident").want(t, word, 0, "execution "+word+"\n")
		s, err := r.bus.Execution(t.Context())
		if err != nil || s.On != on || s.By != "olga" || s.Why != "incident" {
			t.Errorf("%s: %+v %v", word, s, err)
		}
	}
}

// What is no switch keeps the fleet off, and every look at the fleet says so.
func TestAJunkSwitchIsSaidByStatusAndCheck(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	nc, err := nats.Connect(r.env["NATS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Request(bus.SubjectExecution, []byte("junk"), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"status"}, {"execution", "show"}, {"check"}} {
		if got := r.run(args...); !strings.Contains(got.out, "is no switch") {
			t.Errorf("%v: %s", args, got)
		}
	}
	r.run("execution", "on", "--why", "mended").want(t, "on", 0, "execution on\n")
	if got := r.run("status"); strings.Contains(got.out, "is no switch") {
		t.Errorf("mended: %s", got)
	}
}

func TestSandboxesAreListedAndShownWithoutAskingTheProviderForMore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store, err := session.New(r.bus.Links(), session.Config{})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := store.Load(t.Context(), session.Key{Kind: plan.KindConversation, Tenant: "acme", ID: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.BeginCreate(t.Context(), snap, session.Hold{Run: "acme/j1.0", Seq: 1}, "wb-abc", false); err != nil {
		t.Fatal(err)
	}
	rows := lines[sandboxRow](t, r.run("sandboxes", "list", "--json").out)
	if len(rows) != 1 || rows[0].Sandbox != "wb-abc" || rows[0].State != plan.LinkCreating || rows[0].Holder != "acme/j1.0" || rows[0].Provider != providerUnknown {
		t.Errorf("%+v", rows)
	}
	if got := r.run("sandboxes", "show", "--tenant", "acme", "--conversation", "c1"); got.code != 0 || !strings.Contains(got.out, "wb-abc") {
		t.Errorf("%s", got)
	}
	r.run("sandboxes", "show", "--conversation", "none").want(t, "none", 1, "")
	r.run("sandboxes", "show").want(t, "nothing named", 2, "")
}

func TestASessionIsEndedOverTheBus(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.play()
	if got := r.run("sandboxes", "end", "--conversation", "c1", "--why", "asked"); got.code != 0 || !strings.Contains(got.out, "noop") {
		t.Errorf("%s", got)
	}
	r.run("sandboxes", "end", "--conversation", "c1").want(t, "no why", 2, "")
}

func TestStatusShowsQueuesDeadLettersAndLeases(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kill("j1")
	r.run("exec", "--detach", "--", "true").want(t, "exec", 0, "*")
	got := r.run("status", "--json")
	var s fleetStatus
	if err := json.Unmarshal([]byte(got.out), &s); err != nil || got.code != 0 || strings.Count(got.out, "\n") != 1 {
		t.Fatalf("%v %s", err, got)
	}
	if !s.Execution.On || len(s.Queues) != 1 || s.Queues[0].Tenant != "dev" || s.DeadLetters[bus.ClassProvisionUnavailable] != 1 {
		t.Errorf("%+v", s)
	}
	waits, err := r.bus.Claim(t.Context(), bus.RunKey{Tenant: "acme", Job: "w1"}, "player.1", bus.Claim{Record: bus.Record{QueuedAt: time.Now().Add(-time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := waits.Waiting(t.Context(), bus.WaitingBody{For: bus.WaitLimit, Until: time.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	if got := r.run("status"); got.code != 0 || !strings.Contains(got.out, "provision_unavailable 1") || !strings.Contains(got.out, "limit 1") || !strings.Contains(got.out, "1h") {
		t.Errorf("%s", got)
	}
}

func TestCheckFailsOnWhatIsAwayAndNotesWhatCannotBeKnown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.env["SANDBOX_SESSION_SECRET"] = strings.Repeat("s", 32)
	got := r.run("check", "--json")
	found := map[verdict][]string{}
	for _, f := range lines[finding](t, got.out) {
		found[f.Verdict] = append(found[f.Verdict], f.What)
	}
	if got.code != 0 || len(found[verdictFail]) != 0 || !strings.Contains(strings.Join(found[verdictNote], "\n"), "eviction policy") {
		t.Errorf("%s", got)
	}
	r.redis.Close()
	if got := r.run("check"); got.code != 1 || !strings.Contains(got.out, "fail  redis") {
		t.Errorf("%s", got)
	}
}

func TestCheckConfigPrintsTheSettingsRedacted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.env["SANDBOX_SESSION_SECRET"] = "sentinel-secret"
	got := r.run("check", "--config", "--role", "worker")
	if got.code != 0 || !strings.Contains(got.out, "WAKEBUS_SLOTS") || strings.Contains(got.out+got.err, "sentinel") || !strings.Contains(got.out, "127.0.0.1") {
		t.Errorf("%s", got)
	}
	r.env["CODE_EXECUTION_ENABLED"] = "true"
	if got := r.run("check", "--config", "--role", "worker"); got.code != 1 || !strings.Contains(got.err, "SANDBOX_SESSION_SECRET: must be at least 32 bytes") {
		t.Errorf("%s", got)
	}
	password, _, _ := strings.Cut(strings.TrimPrefix(r.env["NATS_URL"], "nats://"), "@")
	if strings.Contains(got.out, password) {
		t.Error("the password of NATS is printed")
	}
}

func TestPlanPrintsThePlanTheRowAndTheWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for want, args := range map[string][]string{
		`"plan":"resume","why":"idle"`:                                         {"--authorised", "--link", "live", "--idle", "20m"},
		`"plan":"noop","why":"idle"`:                                           {"--authorised", "--link", "live", "--idle", "20m", "--kind", "terminal"},
		`"plan":"teardown","why":"hard_expiry"`:                                {"--authorised", "--link", "live", "--idle", "25h"},
		`"plan":"deny","why":"session_ended"`:                                  {"--authorised", "--link", "ended"},
		`"plan":"deny","why":"insufficient_role","reason":"insufficient_role"`: {"--link", "live"},
	} {
		if got := r.run(append([]string{"plan", "--json"}, args...)...); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%v: %s", args, got)
		}
	}
	if got := r.runIn(`{"intent":"end","authentic":true,"authorised":false,"link":"live"}`, "plan", "--facts", "-"); got.code != 0 || !strings.Contains(got.out, "teardown") {
		t.Errorf("%s", got)
	}
	r.runIn(`{"intent":"end","nope":1}`, "plan", "--facts", "-").want(t, "unknown fact", 2, "")
}

func TestAGrantIsWhatTheVerifierTakes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, set := filepath.Join(r.dir, "key"), filepath.Join(r.dir, "set")
	r.run("grant", "key", "--kid", "k1", "--key", key, "--set", set).want(t, "key", 0, "")
	r.run("grant", "key", "--kid", "k1", "--key", key, "--set", set).want(t, "over an old key", 1, "")
	keys, err := authz.OpenKeyFile(set, authz.KeyFileConfig{})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := authz.NewVerifier(keys, authz.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	got := r.run("grant", "--tenant", "acme", "--user", "ann", "--tier", "pro", "--conversation", "c1", "--job", "j1", "--key", key)
	claims, err := verifier.Authentic(strings.TrimSpace(got.out), authz.AudienceGrant)
	if err != nil || claims.Subject != "ann" || claims.Job != "j1" || claims.Tier != plan.TierPro || verifier.Current(claims, time.Now()) != nil {
		t.Errorf("%+v %v %s", claims, err, got)
	}
	token := strings.TrimSpace(got.out)
	if got := r.runIn(token+"\n", "grant", "check", "--set", set); got.code != 0 || !strings.Contains(got.out, `"sub":"ann"`) {
		t.Errorf("check: %s", got)
	}
	for name, bad := range map[string]string{"changed": token[:len(token)-4] + "AAAA", "none": "", "no token": "x.y.z"} {
		if got := r.runIn(bad, "grant", "check", "--set", set); got.code != 1 || got.out != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
	got = r.run("grant", "--tenant", "acme", "--user", "ann", "--page", "p1", "--origin", "https://a.example", "--ticket", "--key", key)
	if _, err := verifier.Ticket(strings.TrimSpace(got.out), "p1", "https://a.example", time.Now()); err != nil {
		t.Errorf("ticket: %v %s", err, got)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	r.run("grant", "--conversation", "c1", "--key", key).want(t, "a key for all to read", 2, "")
	r.run("grant", "--conversation", "c1", "--page", "p1").want(t, "two sessions", 2, "")
}

func TestVersionNamesTheToolChain(t *testing.T) {
	t.Parallel()
	if got := newRig(t).run("--version"); got.code != 0 || !strings.HasPrefix(got.out, "worker ") || !strings.Contains(got.out, "go1.") {
		t.Errorf("%s", got)
	}
}

// A key signs for one issuer, and the set that workers read holds both issuers' keys.
func TestTheOperatorsKeyIsAddedToTheWebAppsSet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	web, ops, set := filepath.Join(r.dir, "web.jwk"), filepath.Join(r.dir, "ops.jwk"), filepath.Join(r.dir, "set.json")
	for _, args := range [][]string{{"--kid", "web-1", "--key", web, "--set", set}, {"--kid", "ops-1", "--issuer", "ops", "--key", ops, "--set", set, "--add"}} {
		r.run(append([]string{"grant", "key"}, args...)...).want(t, "key", 0, "")
	}
	r.run("grant", "key", "--kid", "ops-1", "--key", filepath.Join(r.dir, "x"), "--set", set, "--add").want(t, "an id twice", 1, "")
	data, err := os.ReadFile(set)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := authz.ParseKeySet(data)
	if err != nil || keys["web-1"].Issuer != authz.IssuerWeb || keys["ops-1"].Issuer != authz.IssuerOps {
		t.Fatalf("%+v %v", keys, err)
	}
	r.run("grant", "--tenant", "acme", "--user", "olga", "--issuer", "ops", "--job", "j1", "--key", web).want(t, "the web app's key", 2, "")
	got := r.run("grant", "--tenant", "acme", "--user", "olga", "--issuer", "ops", "--job", "j1", "--key", ops)
	verifier, err := authz.NewVerifier(keys, authz.VerifierConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if claims, err := verifier.Authentic(strings.TrimSpace(got.out), authz.AudienceGrant); got.code != 0 || err != nil || claims.Issuer != authz.IssuerOps {
		t.Errorf("%s: %+v %v", got, claims, err)
	}
	r.env["AUTHZ_MODE"] = "grant"
	r.kill("j1")
	if got := r.run("dlq", "replay", "acme/j1", "--key", web); got.code != 2 || r.state("j1") != bus.LetterDead {
		t.Errorf("a replay by the web app's key: %s", got)
	}
	if got := r.run("dlq", "replay", "acme/j1", "--key", ops); got.code != 0 || r.state("j1") != bus.LetterReplaying {
		t.Errorf("a replay by the operators' key: %s", got)
	}
}
