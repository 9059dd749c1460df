package audit_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/audit"
)

// secret is short and plain, so that only what announces it can give it away.
const secret = "hunter2"

func TestSecretsThatAreAnnouncedAreRedacted(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"shell assignment":      "API_TOKEN=hunter2 ./run",
		"double quotes":         `export DB_PASSWORD="hunter2 and more"; ls`,
		"single quotes":         `MY_SECRET='hunter2' make`,
		"long flag":             "login --password hunter2 --host h",
		"long flag with equals": "login --client-secret=hunter2",
		"json":                  `{"apiKey": "hunter2", "n": 1}`,
		"json without spaces":   `{"access_key":"hunter2"}`,
		"yaml":                  "password: hunter2\nuser: a",
		"header":                `curl -H "Authorization: Basic hunter2" http://x`,
		"header of two words":   "X: 1\nAuthorization: Token token hunter2\nY: 2",
		"cookie":                `curl -H 'Cookie: a=b; sid=hunter2'`,
		"bearer":                "bearer hunter2",
		"url":                   "git clone https://user:hunter2@example.com/r.git",
		"url with an at":        "psql postgres://u:hun@hunter2@db/x",
		"camel case":            "githubToken=hunter2",
		"go assignment":         `password := "hunter2"`,
		"private key":           "cat <<E\n-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nE",
		"key on one line":       `echo "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"`,
		"key without an end":    "-----BEGIN EC PRIVATE KEY-----\nhunter2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := audit.Redact(text); strings.Contains(got, secret) || !strings.Contains(got, "[redacted]") {
				t.Fatalf("Redact(%q) = %q", text, got)
			}
		})
	}
}

func TestTokensAreRedactedWithoutBeingAnnounced(t *testing.T) {
	t.Parallel()
	for _, token := range []string{
		"ghp_16C7e42F292c6912E7710c838347Ae178B4a",
		"sk-proj-abcdefghijklmnop",
		"AKIAIOSFODNN7EXAMPLE",
		"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		"eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl",
		"0123456789abcdef0123456789abcdef",
		"0b9cf1d2-5a77-4f0e-9b0f-2f0d9f1c2a3b",
	} {
		if got := audit.Redact("run " + token + " now"); got != "run [redacted] now" {
			t.Errorf("Redact of %q = %q", token, got)
		}
	}
}

func TestWhatIsNoSecretStaysReadable(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "ls -la /workspace/src", "PWD=/workspace make test", "go test ./internal/plan/... -run TestX -count=1",
		"git commit -m 'fix the parser' && git push", "curl https://example.com/a?b=c", "echo café ☕",
		"pip install requests==2.31.0", "/usr/local/lib/python3.11/site-packages/numpy/core/tests/test_umath.py",
		"the token was fine", "-----BEGIN CERTIFICATE-----",
	} {
		if got := audit.Redact(text); got != text {
			t.Errorf("Redact(%q) = %q", text, got)
		}
	}
}

func TestCommandRedactsAnItemWhateverItContains(t *testing.T) {
	t.Parallel()
	got := audit.Command([]string{"mysql", "--password", "a b' hunter2", "DB_PASSWORD=x hunter2", "-u", "me:hunter2", "-e", "select 1"}, "")
	if strings.Contains(got, secret) {
		t.Fatalf("Command = %q", got)
	}
	if want := "mysql --password [redacted] DB_PASSWORD=[redacted] -u [redacted] -e select 1"; got != want {
		t.Fatalf("Command = %q, want %q", got, want)
	}
}

func TestCommandIsCappedAfterItIsRedacted(t *testing.T) {
	t.Parallel()
	got := audit.Command(nil, strings.Repeat("é", 700)+" TOKEN=hunter2"+strings.Repeat(" x", 600))
	if len(got) > audit.MaxCommand || !utf8.ValidString(got) || strings.Contains(got, secret) {
		t.Fatalf("%d bytes: %q", len(got), got)
	}
	if !strings.HasSuffix(got, "…") {
		t.Fatalf("the cut is not shown: %q", got[len(got)-10:])
	}
}

func TestRedactingTwiceChangesNothingMore(t *testing.T) {
	t.Parallel()
	piece := rapid.OneOf(rapid.SampledFrom([]string{"token", "=", ":", " ", "\"", "'", "--password", "Bearer ", "https://", "@", "\n",
		"-----BEGIN ", "PRIVATE KEY-----", "-----END ", "[redacted]", "/", ".", "eyJ", strings.Repeat("a1", 16)}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), "")
		once := audit.Redact(text)
		if twice := audit.Redact(once); twice != once {
			t.Fatalf("%q became %q, then %q", text, once, twice)
		}
	})
}

// With quadratic time one of these would take minutes and run into the test's own limit.
func TestHostileTextIsRedactedInLinearTime(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "token", "token=", "token ", "--token  ", "a://", "a://b@",
		"'", "token='", "token=\"\\", "Bearer ", "eyJ.", "a/", "a1", "=", " ", "cookie: "} {
		text := strings.Repeat(unit, (128<<10)/len(unit))
		once := audit.Redact(text)
		if len(once) > 10*len(text) {
			t.Errorf("%d bytes of %q became %d", len(text), unit, len(once))
		}
	}
}

func FuzzRedact(f *testing.F) {
	for _, seed := range []string{"token=a", "Bearer x", "a://b:c@d", "password : 'x", "-----BEGIN PRIVATE KEY-----x",
		`{"secret":"a\"b"}`, "--token  x", "Cookie: a; b", "token=\"", "://@", "sk-aaaaaaaaaaaaaaaaaaaa.a1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := audit.Redact(text)
		if twice := audit.Redact(once); twice != once {
			t.Fatalf("%q became %q, then %q", text, once, twice)
		}
	})
}
