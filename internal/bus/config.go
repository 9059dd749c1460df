package bus

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Config says where the broker is and how large the streams may grow. The zero Config connects to a broker on this
// machine.
type Config struct {
	// URL is one or more server addresses, separated by commas; user and password may be inside. Defaults to
	// nats://127.0.0.1:4222.
	URL string
	// Creds is a file with a user JWT and its seed. Defaults to none.
	Creds string
	// NKey is a file with an NKey seed. Defaults to none.
	NKey string
	// CA is a PEM file with the certificate authorities to trust. Defaults to the system's.
	CA string
	// Cert is the PEM file of the client's certificate; it needs Key. Defaults to none.
	Cert string
	// Key is the PEM file of the client certificate's key. Defaults to none.
	Key string
	// Name is what the broker lists this connection as. Defaults to wakebus.
	Name string
	// InboxPrefix is where replies to this client go; each role has its own, so that no other may read them.
	// Defaults to _INBOX.
	InboxPrefix string
	// InProcess connects to a server in this process, without a socket; URL is then ignored except for its user
	// and password. Defaults to nil.
	InProcess *Server
	// TenantBacklog is how many requests of one tenant and kind may be queued, 1 and up. Defaults to 100.
	TenantBacklog int
	// Replicas is how many servers keep each stream, 1, 3 or 5. Defaults to 1.
	Replicas int
	// Limits bounds each stream in bytes. Defaults to DefaultLimits.
	Limits Limits
	// AckWait is how long a delivered request may stay silent before another worker gets it, 300 ms to 10 min.
	// Defaults to 9 s.
	AckWait time.Duration
	// PublishTimeout bounds one try of one publish or call, 50 ms to 1 min. Defaults to 5 s.
	PublishTimeout time.Duration
	// DirectReads says that this user may read the journal, output, marks and links by direct get, which is done where the
	// broker is a single server: it costs less than asking for the leader's answer. Defaults to false.
	DirectReads bool
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Logger gets connection changes and what only an operator can mend. Defaults to nothing.
	Logger *zerolog.Logger
	// Registerer takes the package's metrics. Defaults to none.
	Registerer prometheus.Registerer
}

// Limits bounds the streams in bytes. Together they must fit the broker's disk.
type Limits struct {
	// Sandbox bounds queued requests. Defaults to 256 MiB.
	Sandbox int64
	// Jobs bounds the journal; workers stop pulling at 80 % of it. Defaults to 512 MiB.
	Jobs int64
	// Output bounds stored output; the oldest goes first. Defaults to 2 GiB.
	Output int64
	// Control bounds cancel marks and switches. Defaults to 64 MiB.
	Control int64
	// DLQ bounds dead letters. Defaults to 512 MiB.
	DLQ int64
	// Audit bounds the audit trail. Defaults to 512 MiB.
	Audit int64
	// Links bounds the links bucket. Defaults to 128 MiB.
	Links int64
}

// DefaultLimits is what a zero Limits stands for: about 4 GiB in all.
func DefaultLimits() Limits {
	return Limits{Sandbox: 256 << 20, Jobs: 512 << 20, Output: 2 << 30, Control: 64 << 20, DLQ: 512 << 20,
		Audit: 512 << 20, Links: 128 << 20}
}

// The fixed bounds of the contract. Sizes are in bytes.
const (
	// MaxRequestBytes is the largest request that is queued; larger ones are refused by the broker.
	MaxRequestBytes = 256 << 10
	// JournalAge is how long the journal of a run is kept.
	JournalAge = 48 * time.Hour
	// OutputAge is how long output is kept at most.
	OutputAge = 24 * time.Hour
	// ControlAge is how long a cancel mark lives.
	ControlAge = 24 * time.Hour
	// DLQAge is how long dead letters are kept.
	DLQAge = 14 * 24 * time.Hour
	// TombstoneAge is how long the links bucket remembers that a key was deleted.
	TombstoneAge = 30 * 24 * time.Hour
	// maxOutputChunk is the largest output event: what a fast command prints while one event is under way is the next
	// one. It stays below the broker's default payload limit of 1 MiB, and a smaller limit makes it smaller.
	maxOutputChunk = 256 << 10
	// maxStateBytes bounds one state event; a result holds four previews of 32 KiB in base64.
	maxStateBytes = 512 << 10
	// JournalHighWater is the share of the journal's byte limit at which workers stop pulling, so that results fit.
	JournalHighWater = 0.8
)

func (c Config) withDefaults() Config {
	if c.URL == "" {
		c.URL = "nats://127.0.0.1:4222"
	}
	if c.Name == "" {
		c.Name = "wakebus"
	}
	if c.InboxPrefix == "" {
		c.InboxPrefix = "_INBOX"
	}
	if c.TenantBacklog == 0 {
		c.TenantBacklog = 100
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.AckWait == 0 {
		c.AckWait = 9 * time.Second
	}
	if c.PublishTimeout == 0 {
		c.PublishTimeout = 5 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		nop := zerolog.Nop()
		c.Logger = &nop
	}
	c.Limits = c.Limits.withDefaults()
	return c
}

func (l Limits) withDefaults() Limits {
	def := DefaultLimits()
	for _, f := range []struct{ have, want *int64 }{
		{&l.Sandbox, &def.Sandbox}, {&l.Jobs, &def.Jobs}, {&l.Output, &def.Output}, {&l.Control, &def.Control},
		{&l.DLQ, &def.DLQ}, {&l.Audit, &def.Audit}, {&l.Links, &def.Links},
	} {
		if *f.have == 0 {
			*f.have = *f.want
		}
	}
	return l
}

// validate reports every problem at once. It expects defaults to be in.
func (c Config) validate() error {
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...))
		}
	}
	add(c.TenantBacklog < 1, "TenantBacklog is %d, must be 1 or more", c.TenantBacklog)
	add(c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5, "Replicas is %d, must be 1, 3 or 5", c.Replicas)
	add(c.AckWait < 300*time.Millisecond || c.AckWait > 10*time.Minute, "AckWait is %s, must be 300ms to 10m", c.AckWait)
	add(c.PublishTimeout < 50*time.Millisecond || c.PublishTimeout > time.Minute, "PublishTimeout is %s, must be 50ms to 1m", c.PublishTimeout)
	add((c.Cert == "") != (c.Key == ""), "Cert and Key go together")
	add(c.Creds != "" && c.NKey != "", "Creds and NKey exclude each other")
	for name, n := range map[string]int64{"Sandbox": c.Limits.Sandbox, "Jobs": c.Limits.Jobs, "Output": c.Limits.Output,
		"Control": c.Limits.Control, "DLQ": c.Limits.DLQ, "Audit": c.Limits.Audit, "Links": c.Limits.Links} {
		add(n < 1<<20, "Limits.%s is %d bytes, must be 1 MiB or more", name, n)
	}
	return errors.Join(errs...)
}
