package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

var (
	secretA = []byte("0123456789abcdef0123456789abcdef")
	secretB = []byte("fedcba9876543210fedcba9876543210")
)

func namer(t testing.TB, cfg session.NamerConfig) *session.Namer {
	t.Helper()
	n, err := session.NewNamer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func anyKey() *rapid.Generator[session.Key] {
	token := rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`)
	drive := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[!-~]{1,128}`), rapid.SampledFrom([]string{"n", ".", "a.b", "*", ">", "d"}))
	return rapid.Custom(func(t *rapid.T) session.Key {
		return session.Key{Kind: rapid.SampledFrom(plan.SessionKinds()).Draw(t, "kind"), Tenant: token.Draw(t, "tenant"),
			Drive: drive.Draw(t, "drive"), ID: token.Draw(t, "id")}
	})
}

var nameShape = regexp.MustCompile(`^wb-[a-z2-7]{32}$`)

func TestCase19NamesAreShortSafeAndStable(t *testing.T) {
	t.Parallel()
	n, again := namer(t, session.NamerConfig{Secret: secretA}), namer(t, session.NamerConfig{Secret: secretA})
	rapid.Check(t, func(t *rapid.T) {
		k := anyKey().Draw(t, "key")
		name, err := n.Name(k)
		if err != nil {
			t.Fatal(err)
		}
		if !nameShape.MatchString(name) || len(name) > session.MaxName {
			t.Fatalf("name %q", name)
		}
		if same, _ := again.Name(k); same != name {
			t.Fatalf("%q, then %q", name, same)
		}
	})
}

func TestCase19PartsThatConcatenateAlikeGetDifferentNames(t *testing.T) {
	t.Parallel()
	n := namer(t, session.NamerConfig{Secret: secretA})
	seen := map[string]session.Key{}
	for _, k := range []session.Key{
		{Kind: plan.KindConversation, Tenant: "ab", ID: "c"},
		{Kind: plan.KindConversation, Tenant: "a", ID: "bc"},
		{Kind: plan.KindConversation, Tenant: "a", Drive: "b", ID: "c"},
		{Kind: plan.KindConversation, Tenant: "a", Drive: "bc", ID: "d"},
		{Kind: plan.KindConversation, Tenant: "a", Drive: "b", ID: "cd"},
		{Kind: plan.KindConversation, Tenant: "ab", Drive: "c", ID: "d"},
		{Kind: plan.KindTerminal, Tenant: "ab", ID: "c"},
	} {
		name, err := n.Name(k)
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("%+v and %+v are both %s", k, other, name)
		}
		seen[name] = k
	}
}

// cases 19, 84
func TestCase84WhatIsNoTokenGetsNeitherANameNorAKey(t *testing.T) {
	t.Parallel()
	n := namer(t, session.NamerConfig{Secret: secretA})
	good := session.Key{Kind: plan.KindConversation, Tenant: "t", Drive: "d", ID: "c"}
	for _, bad := range []string{"*", ">", "a.b", "a b", "a\tb", "a\r", "a\nb", "a\x00b", strings.Repeat("a", 65), "é"} {
		for what, k := range map[string]session.Key{
			"tenant": {Kind: good.Kind, Tenant: bad, Drive: good.Drive, ID: good.ID},
			"id":     {Kind: good.Kind, Tenant: good.Tenant, Drive: good.Drive, ID: bad},
			"kind":   {Kind: plan.SessionKind(bad), Tenant: good.Tenant, Drive: good.Drive, ID: good.ID},
		} {
			if _, err := n.Name(k); !errors.Is(err, session.ErrBadKey) {
				t.Errorf("%s %q got a name: %v", what, bad, err)
			}
			if _, err := setup(t).store.Load(t.Context(), k); !errors.Is(err, session.ErrBadKey) {
				t.Errorf("%s %q reached the store: %v", what, bad, err)
			}
		}
	}
}

func TestARotatedSecretStillFindsWhatItNamed(t *testing.T) {
	t.Parallel()
	k := session.Key{Kind: plan.KindTerminal, Tenant: "t", ID: "p"}
	old, err := namer(t, session.NamerConfig{Secret: secretA}).Name(k)
	if err != nil {
		t.Fatal(err)
	}
	rotated := namer(t, session.NamerConfig{Secret: secretB, Previous: [][]byte{secretA}})
	names, err := rotated.Names(k)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 2 || names[1] != old || names[0] == old {
		t.Fatalf("%v, the old one was %s", names, old)
	}
	if current, _ := rotated.Name(k); current != names[0] {
		t.Fatalf("new Sprites get %s", current)
	}
}

func TestCase81AShortSecretCountsAsAbsent(t *testing.T) {
	t.Parallel()
	for _, cfg := range []session.NamerConfig{
		{}, {Secret: bytes.Repeat([]byte("x"), 31)}, {Secret: secretA, Previous: [][]byte{[]byte("short")}},
	} {
		if _, err := session.NewNamer(cfg); !errors.Is(err, session.ErrWeakSecret) {
			t.Errorf("accepted: %v", err)
		}
	}
	if _, err := session.NewNamer(session.NamerConfig{Secret: []byte("sentinel-secret")}); strings.Contains(err.Error(), "sentinel") {
		t.Errorf("the error prints the secret: %v", err)
	}
}

func TestAPrefixIsCheckedAndKept(t *testing.T) {
	t.Parallel()
	k := session.Key{Kind: plan.KindTerminal, Tenant: "t", ID: "p"}
	name, err := namer(t, session.NamerConfig{Secret: secretA, Prefix: "abcdefghijklmn"}).Name(k)
	if err != nil || !strings.HasPrefix(name, "abcdefghijklmn-") || len(name) > session.MaxName {
		t.Fatalf("%q, %v", name, err)
	}
	for _, bad := range []string{"A", "1a", "a-b", "abcdefghijklmno", "a."} {
		if _, err := session.NewNamer(session.NamerConfig{Secret: secretA, Prefix: bad}); err == nil {
			t.Errorf("prefix %q was accepted", bad)
		}
	}
}

// case 87
func TestCase87APrintedNamerHidesItsSecrets(t *testing.T) {
	t.Parallel()
	n := namer(t, session.NamerConfig{Secret: secretA, Previous: [][]byte{secretB}})
	for _, shown := range []string{fmt.Sprint(n), fmt.Sprintf("%v %+v %#v %s", n, n, n, n)} {
		if strings.Contains(shown, "0123456789") || strings.Contains(shown, "48 49 50") {
			t.Errorf("shown as %s", shown)
		}
	}
}

var keyShape = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){3}$`)

func TestCase84AKeyIsSafeAndUnambiguous(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyKey().Draw(t, "a"), anyKey().Draw(t, "b")
		if !keyShape.MatchString(a.String()) || !strings.HasPrefix(a.String(), session.Prefix(a.Kind, a.Tenant)) {
			t.Fatalf("%+v is stored under %q", a, a)
		}
		back, err := session.ParseKey(a.String())
		if err != nil || back != a {
			t.Fatalf("%+v came back as %+v, %v", a, back, err)
		}
		if (a == b) != (a.String() == b.String()) {
			t.Fatalf("%+v and %+v are stored under %q and %q", a, b, a, b)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add("conversation.acme.n.c1")
	f.Add("terminal.acme.dYQ.p")
	f.Add("a...")
	f.Fuzz(func(t *testing.T, stored string) {
		if k, err := session.ParseKey(stored); err == nil && (k.Validate() != nil || k.String() != stored) {
			t.Fatalf("%q was read as %+v", stored, k)
		}
	})
}

func FuzzParseLink(f *testing.F) {
	f.Add([]byte(`{"v":1,"state":"live","sandbox":"wb-a","kind":"conversation","tenant":"t","id":"c"}`))
	f.Add([]byte(`{"v":1,"state":"creating","holder":"t/j.0"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, err := session.ParseLink(data); err == nil && (!l.State.Valid() || l.State == plan.LinkNone) {
			t.Fatalf("read %+v", l)
		}
	})
}
