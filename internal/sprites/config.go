package sprites

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Config sets a [Client] up. Only Token has no default.
type Config struct {
	// BaseURL is the API's address, http or https, without a path. Defaults to https://api.sprites.dev.
	BaseURL string
	// Token is the organisation's API token. It is sent to BaseURL only, and never logged. Required.
	Token string
	// DialTimeout bounds one socket handshake up to session_info; a cold wake must fit. Defaults to 60 s.
	DialTimeout time.Duration
	// CallTimeout bounds one try of a plain call, its body included. Defaults to 30 s.
	CallTimeout time.Duration
	// CreateTimeout bounds one try of a create that does not wait for capacity. Defaults to 120 s.
	CreateTimeout time.Duration
	// CreatePatience bounds all tries of a create together, and one that waits for capacity. Defaults to 5 min.
	CreatePatience time.Duration
	// FirstBoot bounds each try of a fresh Sprite's warm-up: a short one, then full ones. Defaults to 10 s, 30 s, 30 s.
	FirstBoot []time.Duration
	// Caps are what a new Sprite is asked for. Defaults to 2048 MB, 2 CPUs, 5 GB.
	Caps Caps
	// Path is the PATH that commands start with. Defaults to the usual system folders.
	Path string
	// PingEvery is the pause between keepalive pings on a socket. Defaults to 15 s.
	PingEvery time.Duration
	// PingTimeout is how long a socket may stay silent while we listen. Defaults to 45 s.
	PingTimeout time.Duration
	// Drain is how long output may lag behind an exit frame. Defaults to 25 ms.
	Drain time.Duration
	// ReplayQuiet is the silence which ends an attach's replay. Defaults to 300 ms.
	ReplayQuiet time.Duration
	// ReceiveBuffer is how much the kernel may take in per socket before it is read, in bytes (Linux doubles it). A small
	// one keeps a terminal's output fresh; it also bounds a socket's rate to so much per round trip. Defaults to the system's.
	ReceiveBuffer int
	// Transport is the HTTP transport to start from (proxy, TLS). It is cloned. Defaults to net/http's.
	Transport *http.Transport
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Sleep waits between tries and returns ctx's error when that ends first. Defaults to a timer.
	Sleep func(ctx context.Context, d time.Duration) error
	// Rand returns a number in [0,1), for jitter. Must be safe for concurrent use. Defaults to math/rand/v2.
	Rand func() float64
	// Nonce returns a new word of [A-Za-z0-9_-]{1,64} for each dial. Must be safe for concurrent use. Defaults to 96 random bits.
	Nonce func() string
	// Logger gets one line per retry and per refused token. Defaults to nothing.
	Logger *zerolog.Logger
	// Registerer gets the package's metrics. Defaults to none.
	Registerer prometheus.Registerer
}

// Caps are a new Sprite's resources. The service documents them as fixed: they are asked for and reported as requested,
// not promised.
type Caps struct {
	// RAMMB is memory in MiB. Defaults to 2048.
	RAMMB int `json:"ram_mb"`
	// CPUs is the number of virtual CPUs. Defaults to 2.
	CPUs int `json:"cpus"`
	// StorageGB is disk in GB. Defaults to 5.
	StorageGB int `json:"storage_gb"`
}

const (
	defaultBaseURL = "https://api.sprites.dev"
	defaultPath    = "/home/sprite/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Format keeps the token out of %v, %+v and %#v.
func (c Config) Format(s fmt.State, _ rune) {
	fmt.Fprintf(s, "sprites.Config{BaseURL:%q}", c.BaseURL)
}

func (c *Config) setDefaults() {
	setDefault(&c.BaseURL, defaultBaseURL)
	setDefault(&c.DialTimeout, 60*time.Second)
	setDefault(&c.CallTimeout, 30*time.Second)
	setDefault(&c.CreateTimeout, 120*time.Second)
	setDefault(&c.CreatePatience, 5*time.Minute)
	setDefault(&c.Caps.RAMMB, 2048)
	setDefault(&c.Caps.CPUs, 2)
	setDefault(&c.Caps.StorageGB, 5)
	setDefault(&c.Path, defaultPath)
	setDefault(&c.PingEvery, 15*time.Second)
	setDefault(&c.PingTimeout, 45*time.Second)
	setDefault(&c.Drain, 25*time.Millisecond)
	setDefault(&c.ReplayQuiet, 300*time.Millisecond)
	if len(c.FirstBoot) == 0 {
		c.FirstBoot = []time.Duration{10 * time.Second, 30 * time.Second, 30 * time.Second}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	if c.Rand == nil {
		c.Rand = mathrand.Float64
	}
	if c.Nonce == nil {
		c.Nonce = randomNonce
	}
	if c.Logger == nil {
		nop := zerolog.Nop()
		c.Logger = &nop
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *Config) validate() error {
	var problems []error
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil:
		problems = append(problems, errors.New("base URL cannot be parsed"))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "":
		problems = append(problems, errors.New("base URL must be http(s)://host[:port]"))
	}
	if c.Token == "" || strings.ContainsAny(c.Token, " \t\r\n") {
		problems = append(problems, errors.New("token must be one non-empty word"))
	}
	durations := map[string]time.Duration{
		"dial timeout": c.DialTimeout, "call timeout": c.CallTimeout, "create timeout": c.CreateTimeout,
		"create patience": c.CreatePatience, "ping interval": c.PingEvery, "ping timeout": c.PingTimeout,
		"drain": c.Drain, "replay quiet": c.ReplayQuiet,
	}
	for name, d := range durations {
		if d < 0 {
			problems = append(problems, fmt.Errorf("%s must not be negative", name))
		}
	}
	for _, d := range c.FirstBoot {
		if d <= 0 {
			problems = append(problems, errors.New("first boot tries must be positive"))
		}
	}
	if c.PingTimeout <= c.PingEvery {
		problems = append(problems, errors.New("ping timeout must exceed the ping interval"))
	}
	if c.Caps.RAMMB < 0 || c.Caps.CPUs < 0 || c.Caps.StorageGB < 0 {
		problems = append(problems, errors.New("caps must not be negative"))
	}
	return errors.Join(problems...)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

func randomNonce() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
