package lease

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Kind is what a lease is for. Kinds have scopes of their own: an open
// terminal refuses nobody a command, and a running command no file.
type Kind string

// The kinds.
const (
	KindExec     Kind = "exec"
	KindTerminal Kind = "terminal"
	KindFile     Kind = "file"
	KindSerial   Kind = "serial" // scope of one conversation's commands in order
	KindLeader   Kind = "leader"
	KindSprite   Kind = "sprite" // scope of all that keeps a Sprite running
)

// Valid says whether k is one of the kinds.
func (k Kind) Valid() bool {
	switch k {
	case KindExec, KindTerminal, KindFile, KindSerial, KindLeader, KindSprite:
		return true
	default:
		return false
	}
}

// Scope is one thing that is limited. Redis stores no limit: it travels with
// each request, so a change holds from the next Acquire on and revokes nobody.
type Scope struct {
	Kind Kind
	// Name is what the constructors make: "u:<tenant>:<user>", "t:<tenant>",
	// "g", "c:<tenant>:<conversation>", "l:<name>".
	Name string
	// Limit is the most live leases; 0 suspends. Leave an unlimited scope out.
	Limit int
	// Wait puts a denied request into this scope's line.
	Wait bool
}

func (s Scope) key() string { return string(s.Kind) + ":" + s.Name }

// label names the scope's breadth for metrics: a closed set.
func (s Scope) label() string {
	head, _, _ := strings.Cut(s.Name, ":")
	switch head {
	case "u":
		return "user"
	case "t":
		return "tenant"
	case "g":
		return "global"
	case "c":
		return "conversation"
	case "l":
		return "leader"
	default:
		return "other"
	}
}

// Label names the scope's breadth: user, tenant, global, conversation, leader
// or other.
func (s Scope) Label() string { return s.label() }

// UserScope limits one user's leases of a kind.
func UserScope(k Kind, tenant, user string, limit int) Scope {
	return Scope{Kind: k, Name: "u:" + escape(tenant) + ":" + escape(user), Limit: limit}
}

// TenantScope limits one tenant's leases of a kind.
func TenantScope(k Kind, tenant string, limit int) Scope {
	return Scope{Kind: k, Name: "t:" + escape(tenant), Limit: limit}
}

// GlobalScope limits what keeps Sprites running, commands and terminals
// together, to what the organisation may run at once.
func GlobalScope(limit int) Scope {
	return Scope{Kind: KindSprite, Name: "g", Limit: limit}
}

// SerialScope lets one command of a conversation run at a time; it always waits.
func SerialScope(tenant, conversation string) Scope {
	return Scope{Kind: KindSerial, Name: "c:" + escape(tenant) + ":" + escape(conversation), Limit: 1, Wait: true}
}

// Limits are the figures Scopes uses.
type Limits struct {
	// Exec and Terminal are a user's limits by tier. An unknown tier counts as
	// the lowest of them.
	Exec, Terminal map[string]int
	// File, Tenant and Global are plain; Global 0 is no limit.
	File, Tenant, Global int
}

// DefaultLimits are free 1, pro 2, founder 3 and business 5 for commands and
// for terminals, 4 file calls, 50 a tenant, no global limit.
func DefaultLimits() Limits {
	tiers := func() map[string]int { return map[string]int{"free": 1, "pro": 2, "founder": 3, "business": 5} }
	return Limits{Exec: tiers(), Terminal: tiers(), File: 4, Tenant: 50}
}

// Scopes are the scopes of one request, narrow to wide. Files have no global
// one: they are short, and their user's and tenant's bound them.
func Scopes(k Kind, tenant, user, tier string, l Limits) []Scope {
	var perUser int
	switch k {
	case KindExec:
		perUser = tierLimit(l.Exec, tier)
	case KindTerminal:
		perUser = tierLimit(l.Terminal, tier)
	case KindFile:
		perUser = l.File
	case KindSerial, KindLeader, KindSprite:
		return nil
	default:
		return nil
	}
	scopes := []Scope{UserScope(k, tenant, user, perUser), TenantScope(k, tenant, l.Tenant)}
	if l.Global > 0 && k != KindFile {
		scopes = append(scopes, GlobalScope(l.Global))
	}
	return scopes
}

func tierLimit(tiers map[string]int, tier string) int {
	if n, ok := tiers[tier]; ok {
		return n
	}
	lowest := -1
	for _, n := range tiers {
		if lowest < 0 || n < lowest {
			lowest = n
		}
	}
	return max(lowest, 0)
}

// Waiting returns the scopes with Wait set on all: on_limit "wait".
func Waiting(scopes []Scope) []Scope {
	out := make([]Scope, len(scopes))
	for i, s := range scopes {
		s.Wait = true
		out[i] = s
	}
	return out
}

// Request asks for a lease.
type Request struct {
	// ID is "<tenant>.<job>.<run>.<attempt>": 1 to 300 of [A-Za-z0-9_.-].
	ID string
	// Owner is who holds it, "<worker>.<epoch>". Defaults to Config.Owner.
	Owner string
	Kind  Kind
	// Tenant, User, Job and Sandbox are kept in the record for List.
	Tenant, User, Job, Sandbox string
	// Scopes, 1 to 8, narrow to wide, are taken all or none.
	Scopes []Scope
	// MaxHold counts from the id's first grant, over every transfer. Defaults
	// to Config.MaxHold.
	MaxHold time.Duration
	// Force never denies: the run is already going on (take-over). A full
	// scope is exceeded by one and counted; it passes quarantine and lines.
	Force bool
	// Queued orders waiters, lowest first (the stream sequence of the first
	// request). Defaults to the server's time in ms at the first denial; do
	// not mix the two.
	Queued int64
	// Strict ends the lease's Context when it is not confirmed in time and
	// never exceeds a limit: for leaders, of which two must not act.
	Strict bool
}

func (r Request) validate() error {
	var errs []error
	if !tokenSafe(r.ID, 300) {
		errs = append(errs, fmt.Errorf("lease id %q is not 1 to 300 of [A-Za-z0-9_.-]", r.ID))
	}
	if !tokenSafe(r.Owner, 200) {
		errs = append(errs, fmt.Errorf("owner %q is not 1 to 200 of [A-Za-z0-9_.-]", r.Owner))
	}
	if !r.Kind.Valid() {
		errs = append(errs, fmt.Errorf("kind %q is unknown", r.Kind))
	}
	if len(r.Scopes) < 1 || len(r.Scopes) > 8 {
		errs = append(errs, fmt.Errorf("%d scopes are not 1 to 8", len(r.Scopes)))
	}
	seen := map[string]bool{}
	for _, s := range r.Scopes {
		if !s.Kind.Valid() || s.Name == "" || len(s.Name) > 900 || !scopeSafe(s.Name) || s.Limit < 0 {
			errs = append(errs, fmt.Errorf("scope %q with limit %d is not valid", s.key(), s.Limit))
		}
		if seen[s.key()] {
			errs = append(errs, fmt.Errorf("scope %q stands twice", s.key()))
		}
		seen[s.key()] = true
	}
	if r.MaxHold < time.Millisecond {
		errs = append(errs, fmt.Errorf("max hold %s is not positive", r.MaxHold))
	}
	if r.Queued < 0 {
		errs = append(errs, fmt.Errorf("queued %d is negative", r.Queued))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lease request: %w", err)
	}
	return nil
}

// escape keeps [A-Za-z0-9_.@-] and percent-encodes every other byte, so that
// no user name can end a key part, open a hash tag or split a signal.
func escape(s string) string {
	if tokenSafe(s, len(s)) {
		return s
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c == '@' || plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// unescape undoes escape; what escape did not write stays as it is.
func unescape(s string) string {
	out, err := url.PathUnescape(s)
	if err != nil {
		return s
	}
	return out
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
}

func tokenSafe(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		if !plain(s[i]) {
			return false
		}
	}
	return true
}

func scopeSafe(s string) bool {
	for i := range len(s) {
		if c := s[i]; !plain(c) && c != ':' && c != '%' && c != '@' {
			return false
		}
	}
	return true
}
