package authz_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/authz"
)

func TestASigningKeySurvivesItsFile(t *testing.T) {
	t.Parallel()
	k := key(t, "k1", 1)
	data, err := k.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := authz.ParseSigningKey(data)
	if err != nil || back.ID != "k1" || !back.Private.Equal(k.Private) {
		t.Fatalf("%v, %v", back, err)
	}
}

func TestBrokenKeysAreRefusedWithoutBeingQuoted(t *testing.T) {
	t.Parallel()
	private, err := key(t, "k1", 1).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	public, err := authz.MarshalKeySet(key(t, "k1", 1))
	if err != nil {
		t.Fatal(err)
	}
	one := func(k string) string { return `{"keys":[` + k + `]}` }
	x := `"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"`
	for name, text := range map[string]string{
		"no JSON":          "sentinel",
		"no keys":          `{}`,
		"empty":            one(""),
		"only others":      one(`{"kty":"RSA","kid":"a","n":"x","e":"AQAB"}`),
		"only encryption":  one(`{"kty":"OKP","crv":"Ed25519","use":"enc","kid":"a",` + x + `}`),
		"only HS256":       one(`{"kty":"OKP","crv":"Ed25519","alg":"HS256","kid":"a",` + x + `}`),
		"no kid":           one(`{"kty":"OKP","crv":"Ed25519",` + x + `}`),
		"a short x":        one(`{"kty":"OKP","crv":"Ed25519","kid":"a","x":"c2VudGluZWw"}`),
		"a kid used twice": one(`{"kty":"OKP","crv":"Ed25519","kid":"a",` + x + `},{"kty":"OKP","crv":"Ed25519","kid":"a",` + x + `}`),
		"a private key":    one(string(private)),
		"too large":        one(strings.Repeat(" ", authz.MaxKeySet)),
	} {
		set, err := authz.ParseKeySet([]byte(text))
		if err == nil || set != nil || strings.Contains(err.Error(), "sentinel") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"no JSON": "sentinel", "a public one": string(public), "no private part": `{"kty":"OKP","crv":"Ed25519","kid":"a",` + x + `}`,
		"halves of two": strings.Replace(string(private), `"x": "`, `"x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "y": "`, 1),
	} {
		if _, err := authz.ParseSigningKey([]byte(text)); err == nil || strings.Contains(err.Error(), "sentinel") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// case 87
func TestCase87APrintedSigningKeyHidesItself(t *testing.T) {
	t.Parallel()
	k := key(t, "k1", 77)
	for _, shown := range []string{fmt.Sprint(k), fmt.Sprintf("%+v", k), fmt.Sprintf("%#v", k)} {
		if shown != "signing key k1" {
			t.Errorf("shown as %s", shown)
		}
	}
}

func write(t *testing.T, path string, keys ...authz.SigningKey) {
	t.Helper()
	data, err := authz.MarshalKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, path, data)
}

// replace puts a new file in the old one's place, as a rotation does.
func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

func TestKeysRotateWithoutARestart(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join(t.TempDir(), "keys.json"), noon
	k1, k2 := key(t, "k1", 1), key(t, "k2", 2)
	write(t, path, k1)
	file, err := authz.OpenKeyFile(path, authz.KeyFileConfig{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	v := verifier(t, file)
	check := func(k authz.SigningKey, ok bool) {
		t.Helper()
		if _, err := v.Authentic(mint(t, grant(nil), k), authz.AudienceGrant); (err == nil) != ok {
			t.Fatalf("%s: %v", k.ID, err)
		}
	}
	check(k1, true)
	check(k2, false)
	write(t, path, k1, k2)
	now = now.Add(time.Second)
	check(k1, true)
	check(k2, true)
	write(t, path, k2)
	now = now.Add(time.Second)
	check(k1, false)
	check(k2, true)
}

func TestABrokenKeyFileServesItsLastKeysForAWhile(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join(t.TempDir(), "keys.json"), noon
	k := key(t, "k1", 1)
	write(t, path, k)
	told := 0
	file, err := authz.OpenKeyFile(path, authz.KeyFileConfig{Now: func() time.Time { return now }, OnError: func(error) { told++ }})
	if err != nil {
		t.Fatal(err)
	}
	replace(t, path, []byte("broken"))
	now = now.Add(time.Minute)
	if _, err := file.Key("k1"); err != nil || told != 1 {
		t.Fatalf("%v, told %d times", err, told)
	}
	now = now.Add(15 * time.Minute)
	var broken *authz.Misconfigured
	if _, err := file.Key("k1"); !errors.As(err, &broken) {
		t.Fatal(err)
	}
	if _, err := verifier(t, file).Authentic(mint(t, grant(nil), k), authz.AudienceGrant); !errors.As(err, &broken) {
		t.Fatalf("a verifier calls it something else: %v", err)
	}
	write(t, path, k)
	now = now.Add(time.Second)
	if _, err := file.Key("k1"); err != nil {
		t.Fatal(err)
	}
}

func TestAKeyFileMustBeInOrderAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "absent"), dir} {
		if _, err := authz.OpenKeyFile(path, authz.KeyFileConfig{}); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
}

func FuzzParseKeySet(f *testing.F) {
	data, err := authz.MarshalKeySet(key(f, "k1", 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"keys":[{"kty":"OKP"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := authz.ParseKeySet(data)
		if err == nil && (len(set) == 0 || set[""].Public != nil) {
			t.Fatalf("%v", set)
		}
	})
}
