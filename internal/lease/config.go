package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Config sets a Manager up. Only URL is required.
type Config struct {
	// URL names the server: redis:// or rediss:// with host and port; with
	// ?master_name=NAME (or scheme redis+sentinel) the hosts are Sentinels,
	// with ?addr=HOST:PORT (or scheme redis+cluster) Cluster nodes. Its
	// password is never logged. Defaults to redis://127.0.0.1:6379.
	URL string
	// Prefix begins every key; its hash tag keeps them in one Cluster slot.
	// Defaults to {wakebus}.
	Prefix string
	// Owner names this process in records, unique per start. Defaults to a
	// random name.
	Owner string
	// TTL is how long a lease lives unrenewed. Defaults to 30 s.
	TTL time.Duration
	// Renew is the heartbeat's period, jittered by 10 %. Defaults to TTL/4.
	Renew time.Duration
	// CallTimeout bounds one call to Redis. Defaults to 1.5 s, at most Renew/2.
	CallTimeout time.Duration
	// Margin is how long before its expiry a lease that was not confirmed
	// counts as Unconfirmed. Defaults to TTL/6.
	Margin time.Duration
	// MaxHold is the longest a lease is held when its Request says nothing.
	// Defaults to 24 h.
	MaxHold time.Duration
	// Quarantine is how long after an empty start of Redis nothing new is
	// granted, so that live holders reattach first; negative is none (a
	// development server that always starts empty). Defaults to TTL.
	Quarantine time.Duration
	// WaiterTTL is how long a parked request keeps its place in line without
	// asking again. Defaults to 45 s.
	WaiterTTL time.Duration
	// LineMax bounds the requests in one scope's line. Defaults to 256.
	LineMax int
	// ParkedMax bounds a tenant's parked requests. Defaults to 100.
	ParkedMax int
	// GiveWay is how long a freed slot is kept for the waiter that was called.
	// Defaults to 3 s.
	GiveWay time.Duration
	// Gate sets the provider gate up. Defaults to the values of GateConfig.
	Gate GateConfig
	// Budget is how many runs a user may start in BudgetWindow; 0 is no
	// limit. Defaults to 0.
	Budget int
	// BudgetWindow is the sliding window of Budget. Defaults to 24 h.
	BudgetWindow time.Duration
	// Dialer opens connections. Defaults to the client's own, with TLS for
	// rediss.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// Now reads this process's clock; only differences count, never its
	// value. Defaults to time.Now.
	Now func() time.Time
	// Rand gives jitter in [0, 1); called concurrently. Defaults to
	// math/rand/v2.
	Rand func() float64
	// NewID gives a fresh random token for one call. Defaults to 96 bits of
	// crypto/rand.
	NewID func() string
	// Logger gets what no caller sees. Defaults to none.
	Logger *zerolog.Logger
	// Registerer takes the metrics. Defaults to none.
	Registerer prometheus.Registerer
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (c Config) withDefaults() Config {
	or(&c.URL, "redis://127.0.0.1:6379")
	or(&c.Prefix, "{wakebus}")
	or(&c.TTL, 30*time.Second)
	or(&c.Renew, c.TTL/4)
	or(&c.CallTimeout, min(1500*time.Millisecond, c.Renew/2))
	or(&c.Margin, c.TTL/6)
	or(&c.MaxHold, 24*time.Hour)
	or(&c.Quarantine, c.TTL)
	or(&c.WaiterTTL, 45*time.Second)
	or(&c.LineMax, 256)
	or(&c.ParkedMax, 100)
	or(&c.GiveWay, 3*time.Second)
	or(&c.BudgetWindow, 24*time.Hour)
	c.Gate = c.Gate.withDefaults()
	if c.NewID == nil {
		c.NewID = newID
	}
	or(&c.Owner, "proc-"+c.NewID())
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = mrand.Float64
	}
	if c.Logger == nil {
		nop := zerolog.Nop()
		c.Logger = &nop
	}
	return c
}

func newID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}

// validate reports every problem at once. It wants defaults filled in.
func (c Config) validate() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("lease config: "+format, args...))
		}
	}
	open, end := strings.Index(c.Prefix, "{"), strings.Index(c.Prefix, "}")
	bad(open >= 0 && end > open+1, "prefix %q has no hash tag like {wakebus}", c.Prefix)
	bad(!strings.ContainsAny(c.Prefix, " \r\n"), "prefix %q has spaces", c.Prefix)
	bad(c.TTL >= 100*time.Millisecond, "ttl %s is below 100ms", c.TTL)
	bad(c.Renew > 0 && c.TTL >= 3*c.Renew, "ttl %s is less than three renewals of %s", c.TTL, c.Renew)
	bad(c.CallTimeout > 0 && c.CallTimeout < c.Renew, "call timeout %s is not between 0 and renew %s", c.CallTimeout, c.Renew)
	bad(c.Margin > 0 && c.Margin <= c.TTL-c.Renew-c.CallTimeout, "margin %s leaves no time for a renewal", c.Margin)
	bad(c.MaxHold >= c.TTL, "max hold %s is below ttl %s", c.MaxHold, c.TTL)
	bad(c.WaiterTTL > 0 && c.GiveWay > 0, "waiter ttl %s and give way %s must be positive", c.WaiterTTL, c.GiveWay)
	bad(c.LineMax > 0 && c.LineMax <= 1024, "line max %d is not 1 to 1024", c.LineMax)
	bad(c.ParkedMax > 0, "parked max %d is not positive", c.ParkedMax)
	bad(c.Budget >= 0 && c.BudgetWindow > 0, "budget %d in %s", c.Budget, c.BudgetWindow)
	bad(tokenSafe(c.Owner, 200), "owner %q is not 1 to 200 of [A-Za-z0-9_.-]", c.Owner)
	errs = append(errs, c.Gate.validate())
	return errors.Join(errs...)
}

func (c Config) jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*c.Rand()-1)))
}
