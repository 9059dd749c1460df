package emulator

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// AttachMode says how an attach replays what a session has printed.
type AttachMode string

// The two ways to replay.
const (
	// AttachExact replays both streams byte for byte, each under its own number.
	AttachExact AttachMode = "exact"
	// AttachMerged replays a bounded tail of both streams together as standard
	// output, as the live service was seen to do (sprites-go PR 34).
	AttachMerged AttachMode = "merged"
)

// IsolationMode says how Sprites are kept apart from the host.
type IsolationMode string

// The ways to isolate.
const (
	// IsolationAuto takes namespaces where the host allows them, else mapped.
	IsolationAuto      IsolationMode = "auto"
	IsolationNamespace IsolationMode = "namespace"
	// IsolationMapped runs commands as plain processes and maps paths under
	// /workspace and /home/sprite into the Sprite's folder.
	IsolationMapped IsolationMode = "mapped"
)

// Config is how to run a Server. The zero Config works.
type Config struct {
	// Addr is the loopback address to listen on. Defaults to "127.0.0.1:0".
	Addr string
	// Token is the bearer token that every call must carry. Defaults to a random one.
	Token string
	// Dir keeps Sprites and their files over restarts; it is locked while in
	// use. Defaults to a temporary folder, removed by Close.
	Dir string
	// Idle is how long a Sprite without activity stays running; twice as long
	// while a service runs, unless Documented. Defaults to 30s.
	Idle time.Duration
	// ColdAfter is how long a Sprite stays warm. Defaults to 5m.
	ColdAfter time.Duration
	// WarmWake is how long a warm Sprite takes to wake; negative is not at all.
	// Defaults to 300ms.
	WarmWake time.Duration
	// ColdWake is the same for a cold one. Defaults to 1.5s.
	ColdWake time.Duration
	// Linger is how long an exec socket stays open after the exit frame unless
	// the client closes it; negative is not at all. Defaults to 5s.
	Linger time.Duration
	// CreateLimit is how many Sprites may be created in a minute. Defaults to 0, no limit.
	CreateLimit int
	// RunningLimit is how many Sprites may run at once. Defaults to 0, no limit.
	RunningLimit int
	// Attach is how an attach replays. Defaults to AttachExact.
	Attach AttachMode
	// Scrollback is how many bytes of output a session keeps for attaches.
	// Defaults to 8 MiB for AttachExact and 64 KiB for AttachMerged.
	Scrollback int
	// Offset honours output_offset on attach and says so in
	// X-Sprite-Capabilities. Defaults to false.
	Offset bool
	// KeepAlive sends a text frame {"type":"debug"} on exec sockets this often,
	// which SDKs without pings need (sprites-js 0.1.0). Defaults to 0, never.
	KeepAlive time.Duration
	// Faults are the first rules; AddFaults adds more. Defaults to none.
	Faults []Fault
	// Seed makes probabilities of faults repeatable. Defaults to 0, which is a seed too.
	Seed int64
	// Mutation breaks the protocol on purpose in one way. Defaults to MutateNothing.
	Mutation Mutation
	// Instant answers a few commands in process instead of starting them, so
	// that benchmarks measure the client. Defaults to false.
	Instant bool
	// Control offers the /control channel. Defaults to false, 404.
	Control bool
	// Documented behaves as documented where the live service was seen to
	// differ: services, their states and http_port conflicts. Defaults to false.
	Documented bool
	// Isolation of Sprites. Defaults to IsolationAuto.
	Isolation IsolationMode
	// Workspace is what is wrong with /workspace in every Sprite:
	// guest.WorkspaceMissing, guest.WorkspaceForeign or "". Defaults to "", nothing.
	Workspace string
	// Clock is the source of time. Defaults to the system's.
	Clock Clock
	// Logger for what the emulator has to say. Defaults to none.
	Logger zerolog.Logger
}

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Addr, "127.0.0.1:0")
	setDefault(&c.Idle, 30*time.Second)
	setDefault(&c.ColdAfter, 5*time.Minute)
	setDefault(&c.WarmWake, 300*time.Millisecond)
	setDefault(&c.ColdWake, 1500*time.Millisecond)
	setDefault(&c.Linger, 5*time.Second)
	setDefault(&c.Attach, AttachExact)
	setDefault(&c.Isolation, IsolationAuto)
	if c.Scrollback == 0 {
		c.Scrollback = 8 << 20
		if c.Attach == AttachMerged {
			c.Scrollback = 64 << 10
		}
	}
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.Token == "" {
		raw := make([]byte, 24)
		if _, err := rand.Read(raw); err != nil {
			return c, fmt.Errorf("make token: %w", err)
		}
		// The shape of the real ones, slashes and all (Sprites docs, tokens).
		c.Token = "emulator/local/dev/" + hex.EncodeToString(raw)
	}
	return c, c.validate()
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// validate reports every problem at once.
func (c Config) validate() error {
	var errs []error
	bad := func(field string, v any) { errs = append(errs, fmt.Errorf("%s %v: %w", field, v, ErrConfig)) }
	if !loopback(c.Addr) {
		bad("addr (must be loopback)", c.Addr)
	}
	if c.Attach != AttachExact && c.Attach != AttachMerged {
		bad("attach", c.Attach)
	}
	if !slices.Contains([]IsolationMode{IsolationAuto, IsolationNamespace, IsolationMapped}, c.Isolation) {
		bad("isolation", c.Isolation)
	}
	if c.Mutation != MutateNothing && !slices.Contains(Mutations(), c.Mutation) {
		bad("mutation", c.Mutation)
	}
	if c.Idle < 0 || c.ColdAfter < 0 {
		bad("idle and cold-after", fmt.Sprint(c.Idle, " ", c.ColdAfter))
	}
	if c.CreateLimit < 0 || c.RunningLimit < 0 || c.Scrollback < 0 {
		bad("limits", fmt.Sprint(c.CreateLimit, " ", c.RunningLimit, " ", c.Scrollback))
	}
	if c.Dir != "" {
		if st, err := os.Stat(c.Dir); err == nil && !st.IsDir() {
			bad("dir (is a file)", c.Dir)
		}
	}
	for i, f := range c.Faults {
		if err := f.validate(); err != nil {
			errs = append(errs, fmt.Errorf("fault %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
