package config

import "time"

// Config holds every setting. It is the table: each field's tags give its variable, its default, its unit, the roles
// that read it and what it means. A Config that came with an error from Load still holds what could be read.
//
// The zero value is not useful; use Load, or Default for the defaults alone.
type Config struct {
	NATSURL         URL    `env:"NATS_URL" roles:"worker gateway client setup" secret:"yes" doc:"Where NATS is; may hold user:password, and several servers separated by commas."`
	NATSCreds       string `env:"NATS_CREDS" roles:"worker gateway client setup" unit:"file" doc:"Credentials file (JWT and seed) for NATS."`
	NATSNKey        string `env:"NATS_NKEY" roles:"worker gateway client setup" unit:"file" doc:"Seed file of a NATS nkey."`
	NATSCA          string `env:"NATS_CA" roles:"worker gateway client setup" unit:"file" doc:"Certificate authorities that NATS servers are checked with."`
	NATSCert        string `env:"NATS_CERT" roles:"worker gateway client setup" unit:"file" doc:"Client certificate for NATS; goes with NATS_KEY."`
	NATSKey         string `env:"NATS_KEY" roles:"worker gateway client setup" unit:"file" doc:"Key of the client certificate; goes with NATS_CERT."`
	NATSInboxPrefix string `env:"WAKEBUS_INBOX_PREFIX" default:"_INBOX" roles:"worker gateway client setup" unit:"subject" doc:"Where replies to this process go; each NATS role has its own, so that no other may read them."`
	Replicas        int    `env:"WAKEBUS_REPLICAS" default:"1" min:"1" max:"5" unit:"servers: 1, 3 or 5" roles:"worker gateway setup" doc:"NATS servers that keep each stream. Setup, workers and gateways must say the same."`
	RedisURL        URL    `env:"REDIS_URL" roles:"worker gateway client" secret:"yes" doc:"Where Redis is: redis or rediss, also in the Sentinel and Cluster forms."`

	SpritesAPIURL   URL    `env:"SPRITES_API_URL" default:"https://api.sprites.dev" roles:"worker gateway client" doc:"Base address of the Sprites API."`
	SpritesAPIToken Secret `env:"SPRITES_API_TOKEN" roles:"worker gateway client" secret:"yes" doc:"Token for the Sprites API. Needed where execution is on."`

	SessionSecret         Secret `env:"SANDBOX_SESSION_SECRET" roles:"worker gateway client" secret:"yes" doc:"Sandbox names and sealed dead letters derive from it; at least 32 bytes, a shorter one counts as absent. Needed where execution is on."`
	SessionSecretPrevious Secret `env:"SANDBOX_SESSION_SECRET_PREVIOUS" roles:"worker gateway client" secret:"yes" doc:"The secret before the last rotation: sandboxes and dead letters made under it are still found."`

	CodeExecution Switch        `env:"CODE_EXECUTION_ENABLED" default:"false" roles:"worker gateway" doc:"Running code is on only for the four letters true. Ending sessions is always possible."`
	AuthzMode     AuthMode      `env:"AUTHZ_MODE" default:"grant" roles:"worker gateway client" doc:"Who may run code: grant (a signed token), callout (the web app is asked) or dev (everybody; only when NATS, Redis and Sprites are on loopback)."`
	GrantKeysFile string        `env:"GRANT_KEYS_FILE" roles:"worker gateway" unit:"file" doc:"JWK set with the public keys that grants and tickets are checked with; read again when it changes. Needed for grant and callout."`
	Slots         int           `env:"WAKEBUS_SLOTS" default:"16" min:"1" max:"4096" unit:"jobs" roles:"worker" doc:"Jobs that one worker runs at the same time."`
	DrainGrace    time.Duration `env:"WAKEBUS_DRAIN_GRACE" default:"30s" min:"0s" max:"1h" roles:"worker gateway" doc:"How long running jobs may finish after SIGTERM before a peer takes them over."`
	AdminAddr     Addr          `env:"WAKEBUS_ADMIN_ADDR" default:"127.0.0.1:0" roles:"worker gateway" doc:"Address of /metrics, /livez, /readyz, /loglevel and /debug/pprof. Port 0 takes a free one, which the ready line names."`
	LogLevel      Level         `env:"WAKEBUS_LOG_LEVEL" default:"info" roles:"worker gateway client" doc:"Least level that is logged: trace, debug, info, warn, error or off. Can be changed at run time by PUT /loglevel."`
	TenantBacklog int           `env:"WAKEBUS_TENANT_BACKLOG" default:"100" min:"1" max:"1000000" unit:"requests" roles:"worker setup" doc:"Queued requests that one tenant may have; the next publish is refused. Setup and every worker must say the same."`

	JournalBytes Size `env:"WAKEBUS_JOURNAL_BYTES" default:"512MiB" min:"16MiB" max:"1048576MiB" roles:"worker setup" doc:"Size of the journal, which keeps each job for 48 hours at a few KiB; at 80 % workers stop pulling. Setup and every worker must say the same."`
	QueueBytes   Size `env:"WAKEBUS_QUEUE_BYTES" default:"256MiB" min:"16MiB" max:"1048576MiB" roles:"worker setup" doc:"Size of the queue, where a waiting request takes its own size and some 200 bytes; a full one refuses requests. Setup and every worker must say the same."`
	OutputBytes  Size `env:"WAKEBUS_OUTPUT_BYTES" default:"2GiB" min:"16MiB" max:"1048576MiB" roles:"worker setup" doc:"Size of the stored output, which is kept for 24 hours at most; the oldest goes first. Setup and every worker must say the same."`

	CanaryEvery time.Duration `env:"WAKEBUS_CANARY_EVERY" default:"0s" min:"0s" max:"24h" roles:"worker" doc:"How often one worker of the fleet runs a command of its own from publish to result, to measure how long that takes. It keeps one small Sprite. 0s = never, and what an earlier setting left is torn down."`

	LimitExec     TierLimits    `env:"WAKEBUS_LIMIT_EXEC" default:"free=1,pro=2,founder=3,business=5" unit:"leases" roles:"worker client" doc:"Commands that one user may run at the same time, by tier. A tier that is not named keeps its default."`
	LimitTerminal TierLimits    `env:"WAKEBUS_LIMIT_TERMINAL" default:"free=1,pro=2,founder=3,business=5" unit:"leases" roles:"worker gateway client" doc:"Terminals that one user may have open at the same time, by tier. A tier that is not named keeps its default."`
	LimitFile     int           `env:"WAKEBUS_LIMIT_FILE" default:"4" min:"1" max:"10000" unit:"leases" roles:"worker client" doc:"File transfers that one user may have under way."`
	LimitTenant   int           `env:"WAKEBUS_LIMIT_TENANT" default:"50" min:"1" max:"1000000" unit:"leases" roles:"worker gateway client" doc:"Leases that one tenant may hold in all."`
	LimitGlobal   int           `env:"WAKEBUS_LIMIT_GLOBAL" default:"0" min:"0" max:"1000000" unit:"leases" roles:"worker gateway client" doc:"Leases of the whole deployment; set it to the organisation's limit of running Sprites. 0 = no limit."`
	LeaseTTL      time.Duration `env:"WAKEBUS_LEASE_TTL" default:"30s" min:"8s" max:"10m" roles:"worker gateway" doc:"How long a dead holder's lease lives. Leases are renewed every quarter of it."`

	HardExpiry      time.Duration `env:"WAKEBUS_HARD_EXPIRY" default:"24h" min:"0s" max:"8760h" roles:"worker client" doc:"A conversation's sandbox that was idle for this long is torn down and made anew by the next command. 0s = never."`
	DialTimeout     time.Duration `env:"WAKEBUS_DIAL_TIMEOUT" default:"1m" min:"1s" max:"10m" roles:"worker gateway client" doc:"How long opening a connection to a Sprite may take; a cold wake must fit."`
	CreatePatience  time.Duration `env:"WAKEBUS_CREATE_PATIENCE" default:"5m" min:"1s" max:"12h" roles:"worker" doc:"How long a job waits for a rate limited create before it fails and is dead-lettered."`
	OutagePatience  time.Duration `env:"WAKEBUS_OUTAGE_PATIENCE" default:"1m30s" min:"1s" max:"12h" roles:"worker" doc:"How long a job is tried while the provider is away before it fails and is dead-lettered. The number of tries may end it sooner."`
	StreamBytes     Size          `env:"WAKEBUS_STREAM_BYTES" default:"8MiB" min:"1KiB" max:"64MiB" roles:"worker" doc:"Output that a job streams to its caller unless its request says otherwise."`
	StreamHardCap   Size          `env:"WAKEBUS_STREAM_HARD_CAP" default:"64MiB" min:"1KiB" max:"1GiB" roles:"worker" doc:"Output that a command may produce in all before it is stopped."`
	SpriteRAMMB     int           `env:"WAKEBUS_SPRITE_RAM_MB" default:"2048" min:"256" max:"65536" unit:"MB" roles:"worker" doc:"Memory that a new Sprite asks for."`
	SpriteCPUs      int           `env:"WAKEBUS_SPRITE_CPUS" default:"2" min:"1" max:"64" unit:"CPUs" roles:"worker" doc:"CPUs that a new Sprite asks for."`
	SpriteStorageGB int           `env:"WAKEBUS_SPRITE_STORAGE_GB" default:"5" min:"1" max:"1000" unit:"GB" roles:"worker" doc:"Disk that a new Sprite asks for."`
	EgressAllow     List          `env:"WAKEBUS_EGRESS_ALLOW" roles:"worker gateway" unit:"host names, commas" doc:"Hosts that sandboxes may reach: literal names or *.suffix. Everything else is denied."`
	DeploymentID    string        `env:"WAKEBUS_DEPLOYMENT_ID" default:"default" roles:"worker gateway client" doc:"Label of this deployment's Sprites; the sweep touches no others. 1 to 64 letters, digits, _ or -."`

	TerminalAddr         Addr          `env:"WAKEBUS_TERMINAL_ADDR" default:"127.0.0.1:8787" roles:"gateway" doc:"Address that the terminal gateway listens on."`
	TerminalPublicURL    URL           `env:"WAKEBUS_TERMINAL_PUBLIC_URL" roles:"gateway client" doc:"Address that browsers reach the gateway by. Its origin may connect when no origins are listed."`
	TerminalOrigins      List          `env:"WAKEBUS_TERMINAL_ORIGINS" roles:"gateway" unit:"origins, commas" doc:"Origins that may connect, each exactly as a browser sends it. Empty list = only the public address's own."`
	TerminalDetachWindow time.Duration `env:"WAKEBUS_TERMINAL_DETACH_WINDOW" default:"30m" min:"10s" max:"24h" roles:"worker gateway" doc:"How long a terminal without a viewer is kept."`
	TerminalRecordings   string        `env:"WAKEBUS_TERMINAL_RECORDINGS" roles:"gateway" unit:"folder" doc:"Folder for asciicast v2 recordings. Unset = none are made."`

	OperatorKey string `env:"WAKEBUS_OPERATOR_KEY" roles:"client" unit:"file" doc:"Signing key (JWK with iss ops) of operators' grants, which replays of dead letters travel with. Needed where AUTHZ_MODE is not dev."`
	TerminalURL URL    `env:"TERMINAL_URL" roles:"client" doc:"Where a dev instance's terminal gateway listens; written into its env file."`
}

// Role is what a process does with its settings: it decides what is required, and which malformed settings are
// problems rather than warnings.
type Role string

// The closed set of roles.
const (
	// RoleWorker: `worker run`.
	RoleWorker Role = "worker"
	// RoleGateway: `terminal-gw serve`.
	RoleGateway Role = "gateway"
	// RoleClient: the client commands; nothing is required until a command needs it.
	RoleClient Role = "client"
	// RoleSetup: deploy/setup, which makes and changes streams: a default in place of what was meant would change them.
	RoleSetup Role = "setup"
)

// MinSessionSecret is the least length of SANDBOX_SESSION_SECRET in bytes; a shorter one counts as absent.
const MinSessionSecret = 32

// Default returns the settings of an empty environment. It cannot fail: a test holds every default to its own rules.
func Default() Config {
	var c Config
	parse(&c, map[string]string{})
	return c
}

// ExecutionEnabled reports whether running code is on, by the environment alone. Its error is a configuration
// error, which is something else than off: the switch is on, and the token or the session secret is missing or weak.
func (c Config) ExecutionEnabled() (bool, error) {
	if !c.CodeExecution.On() {
		return false, nil
	}
	return true, joinProblems(c.executionNeeds())
}
