package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/authz"
	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/session"
	"github.com/wakebus/wakebus/internal/sprites"
)

// verdict is what a check found.
type verdict string

// The closed set of verdicts.
const (
	verdictOK   verdict = "ok"
	verdictNote verdict = "note"
	verdictFail verdict = "fail"
)

// finding is one line of `worker check`.
type finding struct {
	Verdict verdict `json:"verdict"`
	What    string  `json:"what"`
	ToDo    string  `json:"to_do,omitempty"`
}

// checkup collects findings and prints each as it comes.
type checkup struct {
	c      *cli
	failed bool
}

func (u *checkup) say(v verdict, what, todo string) {
	u.failed = u.failed || v == verdictFail
	if u.c.flags.json {
		_ = u.c.printJSON(finding{v, what, todo}) // a closed standard output ends nothing here
		return
	}
	fmt.Fprintf(u.c.out, "%-4s  %s", v, clean(what))
	if todo != "" {
		fmt.Fprintf(u.c.out, "  %s", clean(todo))
	}
	fmt.Fprintln(u.c.out)
}

// checkTimeout bounds all checks but the live one together.
const checkTimeout = time.Minute

// minPayload is what results need: previews of 4 x 32 KiB in base64 beside the record, and 64 KiB of stdin with its
// request (surface of sandbox.exec).
const minPayload = 1 << 20

func (c *cli) check(ctx context.Context, f checkFlags) error {
	u := &checkup{c: c}
	settings, warnings, err := c.load()
	for _, w := range warnings {
		u.warned(w)
	}
	// What follows reads the settings again: they have been told of.
	c = c.told()
	u.c = c
	var bad *config.Problem
	if errors.As(err, &bad) {
		for _, p := range config.Problems(err) {
			u.say(verdictFail, p.Variable, p.Why)
		}
		return endWith(codeRefused)
	}
	if err != nil {
		return err
	}
	dev := settings.AuthzMode == config.AuthDev
	u.settings(settings, dev)
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	short, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	b := u.nats(short, settings)
	if b != nil {
		defer b.Close()
	}
	u.redis(short, settings, dev)
	u.sprites(short, settings)
	if f.live {
		u.live(ctx, settings)
	}
	if u.failed {
		return endWith(codeRefused)
	}
	return nil
}

func (u *checkup) settings(s config.Client, dev bool) {
	switch {
	case s.File != nil:
		u.say(verdictOK, "settings of the dev instance of "+s.File.Dir, "")
	case dev:
		u.say(verdictNote, "AUTHZ_MODE is dev", "everybody on this machine may run code as anybody; not for production")
	default:
		u.say(verdictOK, "settings of the environment", "")
	}
	switch n := len(s.SessionSecret); {
	case n == 0:
		u.say(verdictNote, "SANDBOX_SESSION_SECRET is not set here", "workers need it while execution is on")
	case n < config.MinSessionSecret:
		u.say(verdictFail, "SANDBOX_SESSION_SECRET is too short", "make it 32 bytes or more; a shorter one counts as absent")
	default:
		u.say(verdictOK, "SANDBOX_SESSION_SECRET is long enough", "")
	}
	if s.GrantKeysFile == "" {
		return
	}
	if _, err := authz.OpenKeyFile(s.GrantKeysFile, authz.KeyFileConfig{Now: u.c.now}); err != nil {
		u.say(verdictFail, "GRANT_KEYS_FILE cannot be used: "+err.Error(), "make it with: worker grant key")
		return
	}
	u.say(verdictOK, "GRANT_KEYS_FILE is a key set", "")
}

// fleet looks at what runs over the bus.
func (u *checkup) fleet(ctx context.Context, b *bus.Bus) {
	if execution, err := b.Execution(ctx); err != nil {
		u.say(verdictFail, "the fleet's switch cannot be read: "+err.Error(), "workers take that for off")
	} else if execution.Unreadable {
		u.say(verdictFail, "execution is off for the fleet: "+execution.Why, "worker execution on, or off")
	} else if !execution.On {
		u.say(verdictNote, "execution is off for the fleet, by "+execution.By+": "+execution.Why, "worker execution on")
	} else {
		u.say(verdictOK, "execution is not switched off for the fleet", "")
	}
	share, err := b.JournalShare(ctx)
	switch {
	case err != nil:
	case share >= bus.JournalHighWater:
		u.say(verdictFail, fmt.Sprintf("the journal is %.0f %% full", share*100), "workers take no more work; give SANDBOX_JOBS more bytes")
	default:
		u.say(verdictOK, fmt.Sprintf("the journal is %.0f %% full", share*100), "")
	}
	stats, err := b.LetterStats(ctx, bus.LetterFilter{})
	if err == nil && stats.ByState[bus.LetterDead] > 0 {
		u.say(verdictNote, fmt.Sprintf("%d dead letters, the oldest %s old", stats.ByState[bus.LetterDead], u.c.since(stats.Oldest)), "worker dlq stats")
	}
}

func (u *checkup) redis(ctx context.Context, s config.Client, dev bool) {
	m, err := u.c.openLeases(ctx, s)
	var wrong *lease.Misconfigured
	switch {
	case errors.As(err, &wrong):
		u.say(verdictFail, "redis "+s.RedisURL.String()+": "+err.Error(), wrong.Fix)
		return
	case err != nil:
		u.say(verdictFail, "redis "+s.RedisURL.String()+": "+err.Error(), "start it, or set REDIS_URL")
		return
	}
	defer m.Close()
	u.say(verdictOK, "redis "+s.RedisURL.String()+" answers", "")
	policy, known, err := m.EvictionPolicy(ctx)
	switch {
	case err != nil:
		u.say(verdictFail, "redis eviction policy: "+err.Error(), "try again")
	case !known && dev:
		u.say(verdictNote, "redis does not tell its eviction policy", "the one in a dev instance has none")
	case !known:
		u.say(verdictNote, "redis does not tell its eviction policy", "make sure that it is noeviction: an evicted lease is a slot given twice")
	case policy != "noeviction":
		u.say(verdictFail, "redis eviction policy is "+policy, "set maxmemory-policy noeviction: an evicted lease is a slot given twice")
	default:
		u.say(verdictOK, "redis eviction policy is noeviction", "")
	}
	states, err := m.Gate().States(ctx)
	for _, g := range states {
		if err == nil && g.Status != lease.GateOpen {
			u.say(verdictNote, fmt.Sprintf("the provider's gate for %s is %s: %s", g.Op, g.Status, g.Why), "jobs wait; it opens by itself")
		}
	}
}

// checkName is a Sprite that never exists: asking for it proves address and token and touches nothing.
const checkName = "wb-check-none"

func (u *checkup) sprites(ctx context.Context, s config.Client) {
	client, err := u.c.sprites(s)
	if errors.Is(err, errNoServer) {
		u.say(verdictNote, "SPRITES_API_TOKEN is not set here", "workers need it while execution is on")
		return
	}
	if err != nil {
		u.say(verdictFail, "sprites: "+err.Error(), "set SPRITES_API_URL and SPRITES_API_TOKEN")
		return
	}
	defer client.Close()
	_, err = client.Get(ctx, checkName)
	switch sprites.ClassOf(err) {
	case sprites.ClassNotFound, "":
		u.say(verdictOK, "sprites "+s.SpritesAPIURL.String()+" answers and takes the token", "")
	case sprites.ClassUnauthorized:
		u.say(verdictFail, "sprites refuses the token", "renew SPRITES_API_TOKEN")
	case sprites.ClassRateLimited, sprites.ClassConcurrentLimit, sprites.ClassConflict, sprites.ClassInvalid,
		sprites.ClassUnavailable, sprites.ClassTimeout, sprites.ClassCanceled, sprites.ClassTransport:
		u.say(verdictFail, "sprites "+s.SpritesAPIURL.String()+": "+err.Error(), "see the provider's status, or set SPRITES_API_URL")
	}
}

// openSessions reads the links.
func (c *cli) openSessions(b *bus.Bus) (*session.Store, error) {
	return session.New(b.Links(), session.Config{Now: c.now})
}
