package sprites

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/wakebus/wakebus/internal/plan"
)

// Rule is one line of a network policy as the service keeps it. The more specific domain wins, whatever the order.
type Rule struct {
	// Domain is a host name, "*.suffix" or "*".
	Domain string `json:"domain,omitempty"`
	// Action is "allow" or "deny".
	Action string `json:"action,omitempty"`
	// Include names a bundle of the provider's own ("defaults"). We never set it; read back, it is a difference.
	Include string `json:"include,omitempty"`
}

// egressRules compiles an allow list into a default-deny policy. The entries that the policy refuses come back.
func egressRules(allow []string) (rules []Rule, refused []string) {
	compiled, refusals := plan.CompileEgress(allow)
	for _, r := range compiled {
		rules = append(rules, Rule{Domain: r.Domain, Action: r.Action})
	}
	for _, r := range refusals {
		refused = append(refused, r.Entry)
	}
	return rules, refused
}

// PolicyHash identifies a policy by its content: the order of rules does not matter, since the more specific one wins.
func PolicyHash(rules []Rule) string {
	lines := make([]string, 0, len(rules))
	for _, r := range rules {
		lines = append(lines, r.Action+"\x00"+r.Domain+"\x00"+r.Include)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\x01")))
	return hex.EncodeToString(sum[:])
}
