package bus_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

var (
	secretA = bytes.Repeat([]byte("a"), 32)
	secretB = bytes.Repeat([]byte("b"), 40)
	idOne   = bus.LetterID{Tenant: "t", Job: "j"}
)

func newSealer(t *testing.T, secret, previous []byte) *bus.Sealer {
	t.Helper()
	s, err := bus.NewSealer(secret, bus.SealerConfig{Previous: previous})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestASealedBodyOpensByteForByteAndHoldsNothingReadable(t *testing.T) {
	t.Parallel()
	s := newSealer(t, secretA, nil)
	rapid.Check(t, func(t *rapid.T) {
		body := append([]byte("sentinel-secret"), rapid.SliceOf(rapid.Byte()).Draw(t, "body")...)
		sealed, err := s.Seal(idOne, body)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(sealed.Data, []byte("sentinel")) {
			t.Fatal("the body can be read")
		}
		if got, err := s.Open(idOne, sealed); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("got %q, %v", got, err)
		}
	})
}

func TestASealOpensOnlyWithTheDeploymentsSecretOrThePreviousOne(t *testing.T) {
	t.Parallel()
	old, err := newSealer(t, secretA, nil).Seal(idOne, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newSealer(t, secretB, nil).Open(idOne, old); !errors.Is(err, bus.ErrWrongSecret) {
		t.Fatalf("another deployment: %v", err)
	}
	rotated := newSealer(t, secretB, secretA)
	if got, err := rotated.Open(idOne, old); err != nil || string(got) != "x" {
		t.Fatalf("after the rotation: %q, %v", got, err)
	}
	fresh, err := rotated.Seal(idOne, []byte("y"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newSealer(t, secretA, nil).Open(idOne, fresh); !errors.Is(err, bus.ErrWrongSecret) {
		t.Fatalf("a new seal was made with the old secret: %v", err)
	}
}

func TestAChangedOrMovedSealIsBroken(t *testing.T) {
	t.Parallel()
	s := newSealer(t, secretA, nil)
	sealed, err := s.Seal(idOne, []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(bus.LetterID{Tenant: "other", Job: "j"}, sealed); !errors.Is(err, bus.ErrSealBroken) {
		t.Fatalf("moved: %v", err)
	}
	sealed.Data[0] ^= 1
	if _, err := s.Open(idOne, sealed); !errors.Is(err, bus.ErrSealBroken) {
		t.Fatalf("changed: %v", err)
	}
	for _, broken := range []*bus.Sealed{nil, {KeyID: sealed.KeyID, Nonce: []byte("short"), Data: sealed.Data}, {KeyID: sealed.KeyID, Nonce: sealed.Nonce}} {
		if _, err := s.Open(idOne, broken); !errors.Is(err, bus.ErrSealBroken) {
			t.Fatalf("%+v: %v", broken, err)
		}
	}
}

func TestASecretThatIsTooShortMakesNoSealer(t *testing.T) {
	t.Parallel()
	if _, err := bus.NewSealer(secretA[:31], bus.SealerConfig{}); !errors.Is(err, bus.ErrNoSecret) {
		t.Fatalf("got %v", err)
	}
	s, err := bus.NewSealer(secretA, bus.SealerConfig{Random: strings.NewReader("few")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(idOne, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("a nonce without randomness: %v", err)
	}
}

func TestARedactedRequestShowsNoEnvNoStdinAndNoSecretInTheCommand(t *testing.T) {
	t.Parallel()
	const sentinel = "S3NTINEL"
	for _, body := range []string{
		`{"env":{"A":"S3NTINEL"},"stdin":"S3NTINEL","shell":"true"}`,
		`{"env":["S3NTINEL"],"shell":{"a":"S3NTINEL"},"argv":[["S3NTINEL"]]}`,
		`{"shell":"curl -H 'Authorization: Bearer S3NTINEL' https://u:S3NTINEL@host/x"}`,
		`{"shell":"export API_KEY=S3NTINEL; MY_TOKEN='S3NTINEL x' run --password S3NTINEL --token=S3NTINEL"}`,
		`{"argv":["tool","--password","S3NTINEL","--api-key=S3NTINEL","https://S3NTINEL@host"]}`,
		`{"shell":"echo '{\"db_password\": \"S3NTINEL\"}'"}`,
		`S3NTINEL, which is no JSON`,
		`["S3NTINEL"]`,
	} {
		if out := bus.Redact([]byte(body)); strings.Contains(string(out), sentinel) || !json.Valid(out) {
			t.Errorf("%s became %s", body, out)
		}
	}
	out := string(bus.Redact([]byte(`{"v":1,"job_id":"j","argv":["ls","-l"],"env":{"PATH":"12345"},"cwd":"/workspace"}`)))
	for _, want := range []string{`"job_id":"j"`, `"ls","-l"`, `"PATH":"[5 bytes]"`, "/workspace"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in %s", want, out)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"env":{"A":"b"},"argv":["--token","x"]}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if out := bus.Redact(body); !json.Valid(out) {
			t.Fatalf("%q became %q", body, out)
		}
	})
}

func TestALetterKeepsTheFirstAndTheLastNineAttempts(t *testing.T) {
	t.Parallel()
	var l bus.Letter
	for i := range 25 {
		l.AddAttempt(bus.LetterAttempt{Status: i, Error: strings.Repeat("é", 2000)})
	}
	var got []int
	for _, a := range l.Attempts {
		got = append(got, a.Status)
		if len(a.Error) > 1100 {
			t.Fatalf("an error of %d bytes", len(a.Error))
		}
	}
	if l.AttemptCount != 25 || len(got) != 10 || got[0] != 0 || got[1] != 16 || got[9] != 24 {
		t.Fatalf("%d attempts, kept %v", l.AttemptCount, got)
	}
}

func TestFingerprintsDifferByEachPartAndNotByText(t *testing.T) {
	t.Parallel()
	base := bus.Fingerprint(bus.ClassProvisionUnavailable, 503, "c", "create")
	for _, other := range []string{
		bus.Fingerprint(bus.ClassProvisionConflict, 503, "c", "create"), bus.Fingerprint(bus.ClassProvisionUnavailable, 500, "c", "create"),
		bus.Fingerprint(bus.ClassProvisionUnavailable, 503, "d", "create"), bus.Fingerprint(bus.ClassProvisionUnavailable, 503, "c", "wake"),
	} {
		if other == base {
			t.Fatal("two causes have one fingerprint")
		}
	}
	if bus.Fingerprint(bus.ClassProvisionUnavailable, 503, "c", "create") != base {
		t.Fatal("one cause has two fingerprints")
	}
}

// case 84: an id from outside becomes a subject only when both of its parts are tokens.
func TestCase84LetterIDsThatWouldWidenASubjectAreRefused(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{"j": "dev/j", "t/j": "t/j", "": "", "t/": "", "*/j": "", "t/>": "", "t/a.b": "", "t/a/b": "", "t/a\r\n": ""} {
		id, err := bus.ParseLetterID(s, "dev")
		if (err == nil) != (want != "") || err == nil && id.String() != want {
			t.Errorf("%q: got %v, %v", s, id, err)
		}
		if err != nil && !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestAMalformedRequestHasOneIDHoweverOftenItIsDelivered(t *testing.T) {
	t.Parallel()
	id := bus.MalformedID("t", 7, []byte("x"))
	if id != bus.MalformedID("t", 7, []byte("x")) || !plan.ValidToken(id) {
		t.Fatalf("got %q", id)
	}
	if id == bus.MalformedID("t", 8, []byte("x")) || id == bus.MalformedID("u", 7, []byte("x")) {
		t.Fatal("two requests share an id")
	}
}

func TestEveryOutcomeHasAVerdictOnAReplaysLetter(t *testing.T) {
	t.Parallel()
	dead := map[plan.Outcome]bool{plan.OutcomeDenied: true, plan.OutcomeExpired: true, plan.OutcomeFailed: true, plan.OutcomeLost: true}
	for _, o := range plan.Outcomes() {
		if got := bus.AfterReplay(o); (got == bus.LetterDead) != dead[o] || (got == bus.LetterResolved) == dead[o] {
			t.Errorf("%s: %s", o, got)
		}
	}
}
