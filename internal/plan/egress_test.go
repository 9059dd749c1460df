package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/plan"
)

var platform = []plan.Rule{{Domain: "*.sprites.app", Action: "deny"}, {Domain: "*.sprites.dev", Action: "deny"},
	{Domain: "*.fly.dev", Action: "deny"}, {Domain: "*.internal", Action: "deny"}}

var denyAll = plan.Rule{Domain: "*", Action: "deny"}

func TestCase24AnEmptyAllowListIsClosed(t *testing.T) {
	t.Parallel()
	rules, refusals := plan.CompileEgress(nil)
	if want := append(slices.Clone(platform), denyAll); !slices.Equal(rules, want) || refusals != nil {
		t.Fatalf("%v, %v", rules, refusals)
	}
}

func TestAllowedNamesStandBetweenThePlatformAndTheDenyAll(t *testing.T) {
	t.Parallel()
	rules, refusals := plan.CompileEgress([]string{" PyPI.org. ", "*.githubusercontent.com", "pypi.org", "xn--bcher-kva.example"})
	want := slices.Concat(platform, []plan.Rule{{Domain: "*.githubusercontent.com", Action: "allow"}, {Domain: "pypi.org", Action: "allow"},
		{Domain: "xn--bcher-kva.example", Action: "allow"}, denyAll})
	if !slices.Equal(rules, want) || refusals != nil {
		t.Fatalf("%v, %v", rules, refusals)
	}
}

func TestWhatIsNoHostNameIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	for entry, why := range map[string]string{
		"":                              "empty",
		"  ":                            "empty",
		"*":                             "everything",
		"*.":                            "everything",
		"https://example.com":           "URL",
		"example.com/path":              "URL",
		"user@example.com":              "URL",
		"example.com:443":               "port",
		"1.2.3.4":                       "address",
		"10.0.0.0/8":                    "URL",
		"::1":                           "address",
		"[::1]":                         "address",
		"[::1]:443":                     "address",
		"0x7f.1":                        "address",
		"1.2.3.0x4":                     "address",
		"a.*.com":                       "may only stand first",
		"*.*.com":                       "may only stand first",
		"*example.com":                  "may only stand first",
		"*.com":                         "top-level",
		"localhost":                     "full host name",
		"-a.example":                    "no valid host name",
		"a..example":                    "no valid host name",
		"a b.example":                   "no valid host name",
		"bücher.example":                "xn--",
		"api.sprites.dev":               "platform",
		"sprites.dev":                   "platform",
		"*.sprites.app":                 "platform",
		"x.FLY.dev":                     "platform",
		"db.internal":                   "platform",
		"metadata.google.internal":      "platform",
		"metadata.goog":                 "metadata",
		"169-254-169-254.sslip.io":      "metadata",
		"169.254.169.254.nip.io":        "metadata",
		strings.Repeat("a.", 130) + "b": "longer",
	} {
		rules, refusals := plan.CompileEgress([]string{entry, "ok.example"})
		if len(refusals) != 1 || refusals[0].Entry != entry || !strings.Contains(refusals[0].Why, why) {
			t.Errorf("%q: %v, want %q", entry, refusals, why)
		}
		if len(rules) != len(platform)+2 || rules[len(platform)].Domain != "ok.example" {
			t.Errorf("%q: the others were not compiled: %v", entry, rules)
		}
	}
}

func TestALongAllowListIsCutAndSaid(t *testing.T) {
	t.Parallel()
	var allow []string
	for i := range plan.MaxEgressEntries + 3 {
		allow = append(allow, fmt.Sprintf("h%d.example", i))
	}
	rules, refusals := plan.CompileEgress(append(allow, "h0.example"))
	if len(rules) != len(platform)+plan.MaxEgressEntries+1 || len(refusals) != 3 {
		t.Fatalf("%d rules, %d refusals", len(rules), len(refusals))
	}
}

// case 24
func TestCase24EveryPolicyEndsClosedAndNeverOpensThePlatform(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		allow := rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"*", "*.dev", "a.fly.dev", "*.internal", "x.example", "*.x.example", "1.1.1.1"})), 0, 8).Draw(t, "allow")
		rules, refusals := plan.CompileEgress(allow)
		if !slices.Equal(rules[:len(platform)], platform) || rules[len(rules)-1] != denyAll {
			t.Fatalf("%v", rules)
		}
		for _, r := range rules[len(platform) : len(rules)-1] {
			for _, p := range platform {
				if r.Action != "allow" || strings.HasSuffix("."+r.Domain, p.Domain[1:]) || !strings.Contains(strings.TrimPrefix(r.Domain, "*."), ".") {
					t.Fatalf("%v opens %v", r, p)
				}
			}
		}
		if len(rules)-len(platform)-1+len(refusals) > len(allow) {
			t.Fatalf("%d entries became %d rules and %d refusals", len(allow), len(rules), len(refusals))
		}
	})
}

func TestThePolicyHashTellsPoliciesApartAndNotOrders(t *testing.T) {
	t.Parallel()
	hash := func(allow ...string) string { rules, _ := plan.CompileEgress(allow); return plan.PolicyHash(rules) }
	if hash("a.example", "b.example") != hash("B.example", "a.example.", "a.example") {
		t.Error("the order of the list changes the hash")
	}
	if hash("a.example") == hash() || hash("a.example") == hash("*.a.example") {
		t.Error("two policies have one hash")
	}
	if plan.PolicyHash([]plan.Rule{{Domain: "a", Action: "bc"}}) == plan.PolicyHash([]plan.Rule{{Domain: "ab", Action: "c"}}) {
		t.Error("parts that concatenate alike have one hash")
	}
}

func FuzzCompileEgress(f *testing.F) {
	for _, seed := range []string{"example.com", "*.a.b", "*", "::1", "a:1", "%", "xn--"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		rules, refusals := plan.CompileEgress([]string{entry})
		if rules[len(rules)-1] != denyAll || len(rules)+len(refusals) != len(platform)+2 {
			t.Fatalf("%v, %v", rules, refusals)
		}
	})
}
