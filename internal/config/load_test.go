package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/plan"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const strongSecret = "0123456789abcdef0123456789abcdef"

func lookup(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
}

// worker is the least that `worker run` starts with, changed by the pairs given; "-" unsets.
func worker(pairs ...string) map[string]string {
	values := map[string]string{
		"NATS_URL": "nats://127.0.0.1:4222", "REDIS_URL": "redis://127.0.0.1:6379",
		"CODE_EXECUTION_ENABLED": "true", "SPRITES_API_TOKEN": "token", "SANDBOX_SESSION_SECRET": strongSecret,
		"GRANT_KEYS_FILE": "/etc/wakebus/keys.json",
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "-" {
			delete(values, pairs[i])
			continue
		}
		values[pairs[i]] = pairs[i+1]
	}
	return values
}

func load(role config.Role, values map[string]string) (config.Config, []config.Warning, error) {
	environ := make([]string, 0, len(values))
	for k, v := range values {
		environ = append(environ, k+"="+v)
	}
	return config.Load(role, lookup(values), environ)
}

func variables(err error) string {
	var names []string
	for _, p := range config.Problems(err) {
		names = append(names, p.Variable)
	}
	return strings.Join(names, " ")
}

func TestTheDefaultsAreThoseOfTheDocumentedSurface(t *testing.T) {
	t.Parallel()
	c := config.Default()
	for name, pair := range map[string][2]any{
		"slots": {c.Slots, 16}, "drain": {c.DrainGrace, 30 * time.Second}, "admin": {c.AdminAddr, config.Addr("127.0.0.1:0")},
		"backlog": {c.TenantBacklog, 100}, "file": {c.LimitFile, 4}, "tenant": {c.LimitTenant, 50}, "global": {c.LimitGlobal, 0},
		"ttl": {c.LeaseTTL, 30 * time.Second}, "expiry": {c.HardExpiry, 24 * time.Hour}, "dial": {c.DialTimeout, time.Minute},
		"patience": {c.CreatePatience, 5 * time.Minute}, "outage patience": {c.OutagePatience, 90 * time.Second}, "stream": {c.StreamBytes, config.Size(8 << 20)},
		"cap": {c.StreamHardCap, config.Size(64 << 20)}, "ram": {c.SpriteRAMMB, 2048}, "cpus": {c.SpriteCPUs, 2},
		"disk": {c.SpriteStorageGB, 5}, "terminal": {c.TerminalAddr, config.Addr("127.0.0.1:8787")},
		"window": {c.TerminalDetachWindow, 30 * time.Minute}, "mode": {c.AuthzMode, config.AuthGrant},
		"free": {c.LimitExec[plan.TierFree], 1}, "business": {c.LimitTerminal[plan.TierBusiness], 5}, "on": {c.CodeExecution.On(), false},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, want %v", name, pair[0], pair[1])
		}
	}
}

func TestEveryRowOfTheTableIsWholeAndItsDefaultPassesItsOwnRules(t *testing.T) {
	t.Parallel()
	contract := map[string]bool{"NATS_URL": true, "NATS_CREDS": true, "NATS_NKEY": true, "NATS_CA": true, "NATS_CERT": true,
		"NATS_KEY": true, "REDIS_URL": true, "SPRITES_API_URL": true, "SPRITES_API_TOKEN": true, "SANDBOX_SESSION_SECRET": true,
		"SANDBOX_SESSION_SECRET_PREVIOUS": true, "CODE_EXECUTION_ENABLED": true, "AUTHZ_MODE": true, "GRANT_KEYS_FILE": true, "TERMINAL_URL": true}
	for _, s := range config.Settings() {
		if s.Type == "" || s.Doc == "" || len(s.Roles) == 0 {
			t.Errorf("%s has an empty column: %+v", s.Variable, s)
		}
		if !contract[s.Variable] && !strings.HasPrefix(s.Variable, "WAKEBUS_") {
			t.Errorf("%s neither begins with WAKEBUS_ nor is a contract name", s.Variable)
		}
		if bounded := s.Type == "number" || s.Type == "duration" || s.Type == "size"; bounded != (s.Min != "" && s.Max != "") {
			t.Errorf("%s is a %s with the bounds %q and %q", s.Variable, s.Type, s.Min, s.Max)
		}
		if s.Default == "" {
			continue
		}
		values := worker(s.Variable, s.Default)
		c, _, err := load(config.RoleWorker, values)
		if v := variables(err); strings.Contains(v, s.Variable) {
			t.Errorf("the default of %s is refused: %v", s.Variable, err)
		}
		if got := s.Value(c); got != s.Default {
			t.Errorf("the default of %s is written %q and printed %q", s.Variable, s.Default, got)
		}
	}
}

func TestAllProblemsAreReportedAtOnceByVariable(t *testing.T) {
	t.Parallel()
	_, _, err := load(config.RoleWorker, map[string]string{
		"CODE_EXECUTION_ENABLED": "true", "WAKEBUS_SLOTS": "many", "WAKEBUS_DRAIN_GRACE": "30", "WAKEBUS_STREAM_BYTES": "",
	})
	want := "WAKEBUS_SLOTS WAKEBUS_DRAIN_GRACE WAKEBUS_STREAM_BYTES NATS_URL REDIS_URL GRANT_KEYS_FILE SPRITES_API_TOKEN SANDBOX_SESSION_SECRET"
	if got := variables(err); got != want {
		t.Fatalf("reported %s\nwant     %s", got, want)
	}
	var p *config.Problem
	if !errors.As(err, &p) {
		t.Fatal("the error holds no *Problem")
	}
}

func TestCase79TheWorkersOwnVariablesAreReadWhateverElseIsMissingOrMalformed(t *testing.T) {
	t.Parallel()
	for name, pairs := range map[string][]string{
		"nothing else":                    {},
		"a terminal setting malformed":    {"WAKEBUS_TERMINAL_ADDR", "nonsense"},
		"a terminal setting empty":        {"WAKEBUS_TERMINAL_ORIGINS", ""},
		"an unknown setting":              {"WAKEBUS_SLOT", "4"},
		"somebody else's variable broken": {"DATABASE_URL", "\x01"},
	} {
		c, _, err := load(config.RoleWorker, worker(pairs...))
		on, errOn := c.ExecutionEnabled()
		if err != nil || errOn != nil || !on || c.SpritesAPIToken.Reveal() != "token" || c.SessionSecret.Reveal() != strongSecret {
			t.Errorf("%s: on=%v %v, load: %v", name, on, errOn, err)
		}
	}
	// A bad setting of its own stops the worker, and still leaves flag, token and secret as they were.
	c, _, err := load(config.RoleWorker, worker("WAKEBUS_SLOTS", "x"))
	if on, errOn := c.ExecutionEnabled(); !on || errOn != nil || variables(err) != "WAKEBUS_SLOTS" {
		t.Errorf("on=%v %v, load: %v", on, errOn, err)
	}
}

func TestCase79AConfigurationErrorIsNotTheSameAsOff(t *testing.T) {
	t.Parallel()
	off, _, _ := load(config.RoleWorker, worker("CODE_EXECUTION_ENABLED", "false", "SPRITES_API_TOKEN", "-"))
	if on, err := off.ExecutionEnabled(); on || err != nil {
		t.Errorf("off says %v, %v", on, err)
	}
	broken, _, _ := load(config.RoleWorker, worker("SPRITES_API_TOKEN", "-"))
	if on, err := broken.ExecutionEnabled(); !on || variables(err) != "SPRITES_API_TOKEN" {
		t.Errorf("on without a token says %v, %v", on, err)
	}
}

func TestExecutionIsOnOnlyForTheFourLettersTrue(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"TRUE", "True", "1", "yes", "on", "t", " true", "true ", "false"} {
		c, warnings, err := load(config.RoleWorker, worker("CODE_EXECUTION_ENABLED", text))
		if err != nil || c.CodeExecution.On() {
			t.Errorf("%q: on=%v %v", text, c.CodeExecution.On(), err)
		}
		if told := strings.Contains(fmt.Sprint(warnings), "CODE_EXECUTION_ENABLED"); told != (text != "false") {
			t.Errorf("%q: warned %v", text, told)
		}
	}
}

func TestWithExecutionOffTheWorkerNeedsNoTokenAndNoSecret(t *testing.T) {
	t.Parallel()
	_, _, err := load(config.RoleWorker, worker("CODE_EXECUTION_ENABLED", "-", "SPRITES_API_TOKEN", "-", "SANDBOX_SESSION_SECRET", "-"))
	if err != nil {
		t.Fatal(err)
	}
}

func TestCase81AShortSecretCountsAsAbsent(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]string{1: "SANDBOX_SESSION_SECRET", 31: "SANDBOX_SESSION_SECRET", 32: ""} {
		_, _, err := load(config.RoleWorker, worker("SANDBOX_SESSION_SECRET", strings.Repeat("s", length)))
		if got := variables(err); got != want {
			t.Errorf("%d bytes: reported %q", length, got)
		}
	}
}

func TestCase81DurationsAreExactOrRefused(t *testing.T) {
	t.Parallel()
	for _, s := range config.Settings() {
		if s.Type != "duration" {
			continue
		}
		for _, text := range []string{"5", " 5 ", "-1", "1e3", "", "0", "-5m", "5 m", "5min", "999999h", "١s"} {
			values := worker(s.Variable, text)
			_, _, err := load(s.Roles[0], values)
			if !strings.Contains(variables(err), s.Variable) {
				t.Errorf("%s=%q is taken", s.Variable, text)
			}
		}
	}
	c, _, err := load(config.RoleWorker, worker("WAKEBUS_CREATE_PATIENCE", "5m", "WAKEBUS_HARD_EXPIRY", "1h30m"))
	if err != nil || c.CreatePatience != 5*time.Minute || c.HardExpiry != 90*time.Minute {
		t.Errorf("5m became %v and 1h30m %v: %v", c.CreatePatience, c.HardExpiry, err)
	}
}

func TestCase81RulesBetweenSettingsHold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		role  config.Role
		pairs []string
		want  string
	}{
		"stream above the cap":         {config.RoleWorker, []string{"WAKEBUS_STREAM_BYTES", "2MiB", "WAKEBUS_STREAM_HARD_CAP", "1MiB"}, "WAKEBUS_STREAM_BYTES"},
		"dial below a cold boot":       {config.RoleWorker, []string{"WAKEBUS_DIAL_TIMEOUT", "4s"}, "WAKEBUS_DIAL_TIMEOUT"},
		"lease shorter than its calls": {config.RoleWorker, []string{"WAKEBUS_LEASE_TTL", "5s"}, "WAKEBUS_LEASE_TTL"},
		"tenant below a tier":          {config.RoleWorker, []string{"WAKEBUS_LIMIT_EXEC", "business=60"}, "WAKEBUS_LIMIT_TENANT"},
		"certificate without key":      {config.RoleWorker, []string{"NATS_CERT", "/c.pem"}, "NATS_CERT"},
		"creds and nkey":               {config.RoleWorker, []string{"NATS_CREDS", "/c", "NATS_NKEY", "/k"}, "NATS_CREDS"},
		"grant without keys":           {config.RoleWorker, []string{"GRANT_KEYS_FILE", "-"}, "GRANT_KEYS_FILE"},
		"callout without keys":         {config.RoleWorker, []string{"AUTHZ_MODE", "callout", "GRANT_KEYS_FILE", "-"}, "GRANT_KEYS_FILE"},
		"dev beyond loopback":          {config.RoleWorker, []string{"AUTHZ_MODE", "dev"}, "AUTHZ_MODE"},
		"dev with NATS elsewhere":      {config.RoleWorker, []string{"AUTHZ_MODE", "dev", "SPRITES_API_URL", "http://127.0.0.1:1", "NATS_URL", "nats://127.0.0.1,nats://10.0.0.1"}, "AUTHZ_MODE"},
		"dev with a node elsewhere":    {config.RoleWorker, []string{"AUTHZ_MODE", "dev", "SPRITES_API_URL", "http://127.0.0.1:1", "REDIS_URL", "redis://127.0.0.1:1?addr=10.0.0.1:1"}, "AUTHZ_MODE"},
		"dev on loopback":              {config.RoleWorker, []string{"AUTHZ_MODE", "dev", "SPRITES_API_URL", "http://[::1]:1", "GRANT_KEYS_FILE", "-"}, ""},
		"same secret twice":            {config.RoleWorker, []string{"SANDBOX_SESSION_SECRET_PREVIOUS", strongSecret}, "SANDBOX_SESSION_SECRET_PREVIOUS"},
		"deployment with a dot":        {config.RoleWorker, []string{"WAKEBUS_DEPLOYMENT_ID", "a.b"}, "WAKEBUS_DEPLOYMENT_ID"},
		"an even number of replicas":   {config.RoleWorker, []string{"WAKEBUS_REPLICAS", "2"}, "WAKEBUS_REPLICAS"},
		"case 84: inbox of everybody":  {config.RoleClient, []string{"WAKEBUS_INBOX_PREFIX", "_INBOX.>"}, "WAKEBUS_INBOX_PREFIX"},
		"case 84: inbox with a space":  {config.RoleClient, []string{"WAKEBUS_INBOX_PREFIX", "a b"}, "WAKEBUS_INBOX_PREFIX"},
		"egress to everywhere":         {config.RoleWorker, []string{"WAKEBUS_EGRESS_ALLOW", "*"}, "WAKEBUS_EGRESS_ALLOW"},
		"egress to an address":         {config.RoleWorker, []string{"WAKEBUS_EGRESS_ALLOW", "pypi.org,10.0.0.1"}, "WAKEBUS_EGRESS_ALLOW"},
		"egress to names":              {config.RoleWorker, []string{"WAKEBUS_EGRESS_ALLOW", "pypi.org, *.npmjs.org"}, ""},
		"wrong NATS scheme":            {config.RoleWorker, []string{"NATS_URL", "http://127.0.0.1"}, "NATS_URL"},
		"wrong Redis scheme":           {config.RoleWorker, []string{"REDIS_URL", "127.0.0.1:6379"}, "REDIS_URL"},
		"wrong Sprites scheme":         {config.RoleWorker, []string{"SPRITES_API_URL", "ftp://x"}, "SPRITES_API_URL"},
		"Sentinel form":                {config.RoleWorker, []string{"REDIS_URL", "redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster/0"}, ""},
		"origin with a path":           {config.RoleGateway, []string{"WAKEBUS_TERMINAL_ORIGINS", "https://a.example,https://b.example/"}, "WAKEBUS_TERMINAL_ORIGINS"},
		"origin wildcard":              {config.RoleGateway, []string{"WAKEBUS_TERMINAL_ORIGINS", "https://*.example"}, "WAKEBUS_TERMINAL_ORIGINS"},
		"gateway without a token":      {config.RoleGateway, []string{"SPRITES_API_TOKEN", "-"}, "SPRITES_API_TOKEN"},
		"setup with a mistyped size":   {config.RoleSetup, []string{"WAKEBUS_JOURNAL_BYTES", "1GB", "WAKEBUS_QUEUE_BYTES", "x", "WAKEBUS_OUTPUT_BYTES", "1TiB"}, "WAKEBUS_JOURNAL_BYTES WAKEBUS_QUEUE_BYTES WAKEBUS_OUTPUT_BYTES"},
		"setup with a mistyped number": {config.RoleSetup, []string{"WAKEBUS_TENANT_BACKLOG", "1k", "WAKEBUS_REPLICAS", "three"}, "WAKEBUS_REPLICAS WAKEBUS_TENANT_BACKLOG"},
		"setup with NATS alone":        {config.RoleSetup, []string{"REDIS_URL", "-", "SPRITES_API_TOKEN", "-", "SANDBOX_SESSION_SECRET", "-", "GRANT_KEYS_FILE", "-"}, ""},
		"setup with nothing":           {config.RoleSetup, []string{"NATS_URL", "-"}, "NATS_URL"},
		"client with nothing":          {config.RoleClient, []string{"NATS_URL", "-", "REDIS_URL", "-", "SPRITES_API_TOKEN", "-", "GRANT_KEYS_FILE", "-"}, ""},
	} {
		_, _, err := load(tc.role, worker(tc.pairs...))
		if got := variables(err); got != tc.want {
			t.Errorf("%s: reported %q, want %q", name, got, tc.want)
		}
	}
}

func TestASecretMayComeFromAFileAndNotFromBoth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	empty := filepath.Join(dir, "empty")
	if err := errors.Join(os.WriteFile(good, []byte(strongSecret+"\r\n"), 0o600), os.WriteFile(empty, []byte("\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	c, _, err := load(config.RoleWorker, worker("SANDBOX_SESSION_SECRET", "-", "SANDBOX_SESSION_SECRET_FILE", good))
	if err != nil || c.SessionSecret.Reveal() != strongSecret {
		t.Errorf("read %d bytes: %v", len(c.SessionSecret), err)
	}
	for name, pairs := range map[string][]string{
		"both":    {"SANDBOX_SESSION_SECRET_FILE", good},
		"missing": {"SANDBOX_SESSION_SECRET", "-", "SANDBOX_SESSION_SECRET_FILE", filepath.Join(dir, "none")},
		"empty":   {"SANDBOX_SESSION_SECRET", "-", "SANDBOX_SESSION_SECRET_FILE", empty},
		"folder":  {"SANDBOX_SESSION_SECRET", "-", "SANDBOX_SESSION_SECRET_FILE", dir},
		"no name": {"SANDBOX_SESSION_SECRET", "-", "SANDBOX_SESSION_SECRET_FILE", ""},
	} {
		if _, _, err := load(config.RoleWorker, worker(pairs...)); variables(err) != "SANDBOX_SESSION_SECRET" {
			t.Errorf("%s: reported %q (%v)", name, variables(err), err)
		}
	}
}

func TestAMisspeltSettingIsWarnedAboutWithTheNearestName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"WAKEBUS_SLOT": "WAKEBUS_SLOTS?", "WAKEBUS_HARD_EXPIRE": "WAKEBUS_HARD_EXPIRY?", "WAKEBUS_LIMIT_TENNANT": "WAKEBUS_LIMIT_TENANT?",
		"WAKEBUS_ZZZZZZZZZZZZZZZZZZZZZZZZZ": "is no setting",
	} {
		_, warnings, err := load(config.RoleWorker, worker(name, "1"))
		if err != nil || len(warnings) != 1 || !strings.HasSuffix(warnings[0].String(), want) {
			t.Errorf("%s: %v %v", name, warnings, err)
		}
	}
	for _, name := range []string{"WAKEBUS_GRANT", "WAKEBUS_NATS_OPS_PASSWORD"} {
		if _, warnings, _ := load(config.RoleClient, worker(name, "x")); len(warnings) != 0 {
			t.Errorf("warned about what exec itself, or the broker, reads: %v", warnings)
		}
	}
}

func TestCase87NoErrorWarningOrPrintHoldsAValue(t *testing.T) {
	t.Parallel()
	const sentinel = "sentinel"
	for _, s := range config.Settings() {
		for _, value := range []string{sentinel, "x://u:" + sentinel + "@h:1/" + sentinel + "?p=" + sentinel, sentinel + "\x00"} {
			for _, role := range []config.Role{config.RoleWorker, config.RoleGateway, config.RoleClient} {
				values := worker(s.Variable, value, s.Variable+"X", value)
				if s.Secret && value == sentinel {
					delete(values, s.Variable)
					values[s.FileVariable()] = "/" + sentinel
				}
				_, warnings, err := load(role, values)
				if text := fmt.Sprint(warnings, err); strings.Contains(text, sentinel) {
					t.Errorf("%s leaks: %s", s.Variable, text)
				}
			}
		}
	}
	c, _, err := load(config.RoleWorker, worker("NATS_URL", "nats://u:"+sentinel+"@127.0.0.1:4222",
		"REDIS_URL", "redis://:"+sentinel+"@127.0.0.1:6379/0?password="+sentinel, "SPRITES_API_TOKEN", sentinel,
		"SANDBOX_SESSION_SECRET", strings.Repeat(sentinel, 4)))
	if err != nil {
		t.Fatal(err)
	}
	printed := fmt.Sprintf("%v %+v %#v %s", c, c, c, c.SpritesAPIToken)
	for _, s := range config.Settings() {
		printed += s.Value(c)
	}
	if strings.Contains(printed, sentinel) {
		t.Errorf("a print-out leaks: %s", printed)
	}
	for _, odd := range []config.URL{"nats://u:a/" + sentinel + "@b:1", sentinel + "@b:1", "x://" + sentinel + ":@b:1?p=" + sentinel + "#" + sentinel} {
		if text := odd.String(); strings.Contains(text, sentinel) || !strings.Contains(text, "b:1") {
			t.Errorf("an address is printed as %s", text)
		}
	}
	if !strings.Contains(printed, "127.0.0.1:4222") {
		t.Error("the print-out does not say which server")
	}
}

func TestCase82ConfigurationDocumentIsTheTable(t *testing.T) {
	t.Parallel()
	written, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != config.Markdown() {
		t.Error("docs/configuration.md differs from the table; run go generate ./internal/config")
	}
}
