package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The actions of an egress rule, as the platform spells them.
const (
	EgressAllow = "allow"
	EgressDeny  = "deny"
)

// Rule is one line of a Sprite's network policy: a name, *.suffix or *, and allow or deny. On the platform the more
// specific rule wins and an empty list means that everything is open (Sprites API reference, network policy).
type Rule struct {
	Domain string `json:"domain"`
	Action string `json:"action"`
}

// Refusal is an allow-list entry that was left out, and why.
type Refusal struct {
	Entry string `json:"entry"`
	Why   string `json:"why"`
}

// MaxEgressEntries is how many allow-list entries are compiled; the rest is refused.
const MaxEgressEntries = 256

// platformSuffixes are the provider's own names: from inside a sandbox they reach its neighbours and control plane.
var platformSuffixes = []string{"sprites.app", "sprites.dev", "fly.dev", "internal"}

// CompileEgress turns an allow-list into a policy: the platform's names denied first, the allowed names sorted, an
// explicit deny-all last, so that an empty list is closed. Entries are host names or *.suffix; what else is in the
// list is refused, and the policy is compiled without it.
func CompileEgress(allow []string) ([]Rule, []Refusal) {
	rules := make([]Rule, 0, len(platformSuffixes)+len(allow)+1)
	for _, s := range platformSuffixes {
		rules = append(rules, Rule{Domain: "*." + s, Action: EgressDeny})
	}
	var refusals []Refusal
	var names []string
	for _, entry := range allow {
		name, why := egressName(entry)
		if why == "" && len(names) >= MaxEgressEntries && !slices.Contains(names, name) {
			why = fmt.Sprintf("the list has more than %d entries", MaxEgressEntries)
		}
		if why != "" {
			refusals = append(refusals, Refusal{Entry: entry, Why: why})
			continue
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		rules = append(rules, Rule{Domain: name, Action: EgressAllow})
	}
	return append(rules, Rule{Domain: "*", Action: EgressDeny}), refusals
}

// egressName cleans one entry, or says why it is refused.
func egressName(entry string) (name, why string) {
	name = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(entry)), ".")
	host, wild := strings.CutPrefix(name, "*.")
	switch {
	case name == "":
		return "", "it is empty"
	case name == "*":
		return "", "it allows everything; name the hosts"
	case strings.Contains(name, "://"), strings.ContainsAny(name, "/?#@"):
		return "", "it is a URL; write the host name alone"
	case isAddress(name):
		return "", "it is an address; write a host name"
	case strings.Contains(name, ":"):
		return "", "it has a port; write the host name alone"
	case strings.Contains(host, "*"):
		return "", "a * may only stand first, as in *.example.com"
	}
	if why := badHost(host, wild); why != "" {
		return "", why
	}
	return name, ""
}

func badHost(host string, wild bool) string {
	if len(host) > 253 {
		return "it is longer than a host name may be"
	}
	labels := strings.Split(host, ".")
	for _, l := range labels {
		if why := badLabel(l); why != "" {
			return why
		}
	}
	switch last := labels[len(labels)-1]; {
	case len(labels) == 1 && wild:
		return "it covers a whole top-level domain"
	case len(labels) == 1:
		return "it is no full host name"
	case isNumeric(last):
		return "it is an address; write a host name"
	}
	for _, s := range platformSuffixes {
		if host == s || strings.HasSuffix(host, "."+s) {
			return "it is one of the platform's own names"
		}
	}
	if _, found := FindMetadataAddress(host); found {
		return "it leads to a cloud metadata address"
	}
	return ""
}

func badLabel(l string) string {
	if l == "" || len(l) > 63 {
		return "it is no valid host name"
	}
	for i := 0; i < len(l); i++ {
		c := l[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_':
		case c == '-' && i > 0 && i < len(l)-1:
		case c >= 0x80:
			return "it is not ASCII; write it in its xn-- form"
		default:
			return "it is no valid host name"
		}
	}
	return ""
}

func isAddress(name string) bool {
	bare := strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if _, err := netip.ParsePrefix(bare); err == nil {
		return true
	}
	if _, err := netip.ParseAddr(bare); err == nil {
		return true
	}
	if host, _, found := strings.Cut(bare, "]"); found {
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	return false
}

func isNumeric(label string) bool {
	_, ok := looseNumber(label)
	return ok
}

// PolicyHash names a compiled policy: hex SHA-256 over its rules in their order. A link keeps it as part of the proof
// that a Sprite is locked down.
func PolicyHash(rules []Rule) string {
	h := sha256.New()
	for _, r := range rules {
		// Lengths keep two lists that concatenate alike apart.
		fmt.Fprintf(h, "%d:%s%d:%s", len(r.Domain), r.Domain, len(r.Action), r.Action)
	}
	return hex.EncodeToString(h.Sum(nil))
}
