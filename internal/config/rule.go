package config

import (
	"net/url"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// ColdBoot is the longest that a cold Sprite was seen to take before it answers; a dial that cannot wait for it turns
// every cold wake into a failure (Sprites documentation: cold starts take 1 to 2 s; the rest is margin).
const ColdBoot = 5 * time.Second

// rules are the checks that compare settings with each other and with the role.
func (c Config) rules(role Role) []*Problem {
	var r ruleSet
	c.urlRules(&r, role)
	c.authRules(&r, role)
	c.limitRules(&r, role)
	c.terminalRules(&r, role)
	if role == RoleWorker {
		if _, err := c.ExecutionEnabled(); err != nil {
			r.problems = append(r.problems, c.executionNeeds()...)
		}
	}
	return r.problems
}

type ruleSet struct{ problems []*Problem }

// hold records a problem when ok is false.
func (r *ruleSet) hold(ok bool, variable, why string) {
	if !ok {
		r.problems = append(r.problems, &Problem{Variable: variable, Why: why})
	}
}

func (c Config) urlRules(r *ruleSet, role Role) {
	served := role == RoleWorker || role == RoleGateway
	r.hold(!served && role != RoleSetup || c.NATSURL != "", "NATS_URL", "is required: where NATS is, such as nats://127.0.0.1:4222")
	r.hold(!served || c.RedisURL != "", "REDIS_URL", "is required: where Redis is, such as redis://127.0.0.1:6379")
	r.hold(c.NATSURL == "" || schemeIn(c.NATSURL, "", "nats", "tls", "ws", "wss"), "NATS_URL", "must be nats, tls, ws or wss addresses")
	r.hold(c.RedisURL == "" || redisScheme(c.RedisURL), "REDIS_URL", "must be a redis or rediss address")
	r.hold(schemeIn(c.SpritesAPIURL, "http", "https"), "SPRITES_API_URL", "must be an http or https address")
	r.hold(c.Replicas%2 == 1, "WAKEBUS_REPLICAS", "must be 1, 3 or 5")
	r.hold(validInbox(c.NATSInboxPrefix), "WAKEBUS_INBOX_PREFIX", "must be tokens of letters, digits, _ and -, separated by dots")
	r.hold((c.NATSCert == "") == (c.NATSKey == ""), "NATS_CERT", "goes with NATS_KEY: set both or none")
	r.hold(c.NATSCreds == "" || c.NATSNKey == "", "NATS_CREDS", "is set together with NATS_NKEY; set one of them")
}

func (c Config) authRules(r *ruleSet, role Role) {
	r.hold(c.SessionSecretPrevious == "" || c.SessionSecretPrevious != c.SessionSecret,
		"SANDBOX_SESSION_SECRET_PREVIOUS", "is the same as SANDBOX_SESSION_SECRET")
	if role == RoleClient || role == RoleSetup {
		return
	}
	switch c.AuthzMode {
	case AuthGrant, AuthCallout:
		r.hold(c.GrantKeysFile != "", "GRANT_KEYS_FILE", "is required with AUTHZ_MODE grant and callout")
	case AuthDev:
		r.hold(c.NATSURL.Loopback() && c.RedisURL.Loopback() && c.SpritesAPIURL.Loopback(), "AUTHZ_MODE",
			"may be dev only when NATS_URL, REDIS_URL and SPRITES_API_URL are all on loopback")
	}
	if role == RoleGateway {
		r.hold(c.SpritesAPIToken != "", "SPRITES_API_TOKEN", "is required: the gateway opens terminals itself")
	}
}

func (c Config) limitRules(r *ruleSet, role Role) {
	r.hold(plan.ValidToken(c.DeploymentID), "WAKEBUS_DEPLOYMENT_ID", "must be 1 to 64 letters, digits, _ or -")
	if role != RoleWorker {
		return
	}
	r.hold(c.StreamBytes <= c.StreamHardCap, "WAKEBUS_STREAM_BYTES", "must not be above WAKEBUS_STREAM_HARD_CAP")
	r.hold(c.DialTimeout >= ColdBoot, "WAKEBUS_DIAL_TIMEOUT", "must be "+ColdBoot.String()+" or more, so that a cold wake fits")
	r.hold(c.LimitExec.Max() <= c.LimitTenant, "WAKEBUS_LIMIT_TENANT", "must not be below the largest limit of WAKEBUS_LIMIT_EXEC")
	r.hold(c.LimitTerminal.Max() <= c.LimitTenant, "WAKEBUS_LIMIT_TENANT", "must not be below the largest limit of WAKEBUS_LIMIT_TERMINAL")
	r.hold(c.HardExpiry == 0 || c.HardExpiry >= time.Minute, "WAKEBUS_HARD_EXPIRY", "must be 0s or at least 1m")
	r.hold(c.CanaryEvery == 0 || c.CanaryEvery >= 10*time.Second, "WAKEBUS_CANARY_EVERY", "must be 0s or at least 10s")
	_, refused := plan.CompileEgress(c.EgressAllow)
	r.hold(len(refused) == 0, "WAKEBUS_EGRESS_ALLOW", "may hold only host names and *.suffix entries: no bare *, address, port or URL")
}

func (c Config) terminalRules(r *ruleSet, role Role) {
	if role != RoleGateway {
		return
	}
	r.hold(c.TerminalPublicURL == "" || schemeIn(c.TerminalPublicURL, "http", "https"), "WAKEBUS_TERMINAL_PUBLIC_URL", "must be an http or https address")
	for _, origin := range c.TerminalOrigins {
		r.hold(exactOrigin(origin), "WAKEBUS_TERMINAL_ORIGINS", "must hold origins as browsers send them, such as https://app.example.com, without a path or wildcard")
	}
}

// executionNeeds is what running code cannot do without.
func (c Config) executionNeeds() []*Problem {
	var r ruleSet
	r.hold(c.SpritesAPIToken != "", "SPRITES_API_TOKEN", "is required while CODE_EXECUTION_ENABLED is on")
	r.hold(c.SessionSecret != "", "SANDBOX_SESSION_SECRET", "is required while CODE_EXECUTION_ENABLED is on")
	r.hold(c.SessionSecret == "" || len(c.SessionSecret) >= MinSessionSecret, "SANDBOX_SESSION_SECRET", "must be at least 32 bytes; a shorter one counts as absent")
	return r.problems
}

// doubts are the settings that are allowed and probably not meant.
func (c Config) doubts(role Role) []Warning {
	var w []Warning
	say := func(when bool, variable, why string) {
		if when {
			w = append(w, Warning{variable, why})
		}
	}
	if role == RoleWorker || role == RoleGateway {
		say(c.CodeExecution != "true" && c.CodeExecution != "false", "CODE_EXECUTION_ENABLED", "is neither true nor false, so running code is off")
		say(c.AuthzMode == AuthDev, "AUTHZ_MODE", "is dev: everybody on this machine may run code as anybody")
		say(c.SpritesAPIToken != "" && strings.HasPrefix(string(c.SpritesAPIURL), "http://") && !c.SpritesAPIURL.Loopback(),
			"SPRITES_API_URL", "is http beyond loopback: the token travels in the clear")
	}
	if role == RoleWorker {
		say(c.LimitGlobal > 0 && c.LimitGlobal < c.LimitTenant, "WAKEBUS_LIMIT_GLOBAL", "is below WAKEBUS_LIMIT_TENANT: one tenant can take all of it")
	}
	return w
}

func validInbox(prefix string) bool {
	for token := range strings.SplitSeq(prefix, ".") {
		if !plan.ValidToken(token) {
			return false
		}
	}
	return true
}

func schemeIn(u URL, schemes ...string) bool {
	for part := range strings.SplitSeq(string(u), ",") {
		part = strings.TrimSpace(part)
		scheme, rest, found := strings.Cut(part, "://")
		if !found {
			scheme, rest = "", part
		}
		ok := false
		for _, s := range schemes {
			ok = ok || strings.EqualFold(scheme, s)
		}
		if !ok || rest == "" || hostOf(part) == "" {
			return false
		}
	}
	return true
}

// redisScheme takes every form that begins with redis or rediss, also redis+sentinel and the like: which forms
// there are is the lease package's to say, and it says so when it opens.
func redisScheme(u URL) bool {
	scheme, rest, found := strings.Cut(string(u), "://")
	base, _, _ := strings.Cut(strings.ToLower(scheme), "+")
	return found && rest != "" && (base == "redis" || base == "rediss" || base == "unix")
}

func exactOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		u.Scheme+"://"+u.Host == origin && !strings.Contains(origin, "*") && origin == strings.ToLower(origin)
}
