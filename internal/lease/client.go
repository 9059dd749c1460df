package lease

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// newClient makes a client that never executes a script twice by itself and
// never outlives its caller's deadline: go-redis' defaults retry a lost answer
// and block for 5 s on a stopped server.
func newClient(cfg Config, pool int) (redis.UniversalClient, error) {
	quiet.Do(func() { redis.SetLogger(silent{}) })
	u, err := url.Parse(cfg.URL)
	if err != nil {
		// The parser quotes the URL, and with it the password.
		return nil, &Misconfigured{Class: ClassRefused, Fix: "the Redis URL is not a URL"}
	}
	base, form, _ := strings.Cut(u.Scheme, "+")
	u.Scheme = base
	switch query := u.Query(); {
	case form == "cluster", form == "" && query.Has("addr") && !query.Has("master_name"):
		return newCluster(cfg, u.String(), pool)
	case form == "sentinel", form == "" && query.Has("master_name"):
		return newFailover(cfg, u.String(), pool)
	case form != "":
		return nil, &Misconfigured{Class: ClassRefused, Fix: "the Redis URL's scheme is none of redis, rediss, redis+cluster, redis+sentinel"}
	default:
		return newSingle(cfg, u.String(), pool)
	}
}

// The client writes each failed dial to the process' standard error. Every
// failure reaches our caller as an error, which is logged once.
var quiet sync.Once

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// refused keeps the reason of a URL error and drops what quotes the URL.
func refused(err error) error {
	var quoted *url.Error
	if errors.As(err, &quoted) {
		err = quoted.Err
	}
	return &Misconfigured{Class: ClassRefused, Fix: "correct the Redis URL", cause: err}
}

func newSingle(cfg Config, u string, pool int) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(u)
	if err != nil {
		return nil, refused(err)
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = cfg.CallTimeout, cfg.CallTimeout, cfg.CallTimeout, cfg.CallTimeout
	o.PoolSize, o.Protocol, o.DisableIdentity = pool, 2, true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if cfg.Dialer != nil {
		o.Dialer = cfg.Dialer
	}
	return redis.NewClient(o), nil
}

func newFailover(cfg Config, u string, pool int) (redis.UniversalClient, error) {
	o, err := redis.ParseFailoverURL(u)
	if err != nil {
		return nil, refused(err)
	}
	if o.MasterName == "" {
		return nil, &Misconfigured{Class: ClassRefused, Fix: "a Sentinel URL needs ?master_name=NAME"}
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = cfg.CallTimeout, cfg.CallTimeout, cfg.CallTimeout, cfg.CallTimeout
	o.PoolSize, o.Protocol, o.DisableIdentity = pool, 2, true
	// A replica may lag behind a grant: only the primary counts.
	o.ReplicaOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	if cfg.Dialer != nil {
		o.Dialer = cfg.Dialer
	}
	return redis.NewFailoverClient(o), nil
}

func newCluster(cfg Config, u string, pool int) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(u)
	if err != nil {
		return nil, refused(err)
	}
	// Redirects are how a Cluster client learns a moved slot; a repeated
	// script is harmless because each acquire carries its own nonce.
	o.MaxRedirects, o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = 2, -1, 1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = cfg.CallTimeout, cfg.CallTimeout, cfg.CallTimeout, cfg.CallTimeout
	o.PoolSize, o.Protocol, o.DisableIdentity = pool, 2, true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	if cfg.Dialer != nil {
		o.Dialer = cfg.Dialer
	}
	return redis.NewClusterClient(o), nil
}
