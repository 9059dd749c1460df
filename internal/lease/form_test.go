package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wakebus/wakebus/internal/lease"
)

// olderLease stores a lease as workers did when records were hashes under other names; the sets are the same.
func olderLease(t *testing.T, s *server, prefix, id string, ttl time.Duration) {
	t.Helper()
	now := time.Now()
	expires := now.Add(ttl).UnixMilli()
	_, err := s.raw.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		p.HSet(context.Background(), prefix+":sys", "f", now.UnixMicro(), "e", now.Add(-time.Hour).UnixMilli())
		p.ZAdd(context.Background(), prefix+":z:exec:u:acme:ann", redis.Z{Score: float64(expires), Member: id})
		p.HSet(context.Background(), prefix+":l:"+id, "s", "A", "f", now.UnixMicro(), "g", now.UnixMicro(), "o", "old.1",
			"c", now.UnixMilli(), "x", now.Add(time.Hour).UnixMilli(), "n", "n", "v", "granted")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestALeaseOfAnOlderFormCountsIsTakenOverAndExpires(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		m := open(t, cfg)
		olderLease(t, s, cfg.Prefix, "acme.old.0.1", 10*time.Minute)
		_, err := m.Acquire(context.Background(), ask("acme.new.0.1", 1))
		var d *lease.Denied
		if !errors.As(err, &d) || d.InUse != 1 || len(d.Holders) != 1 || d.Holders[0] != "acme.old.0.1" {
			t.Fatalf("beside an older worker's lease: %v", err)
		}
		// Its run's taker acquires the same id: no second slot, no denial by the slot that is its own.
		taken := must(t, m, ask("acme.old.0.1", 1))
		if n := inUse(t, m, ask("", 1).Scopes[0]); n != 1 {
			t.Fatalf("%d in use after the take-over", n)
		}
		if ok, err := taken.Release(context.Background()); !ok || err != nil {
			t.Fatalf("release: %v %v", ok, err)
		}
		olderLease(t, s, cfg.Prefix, "acme.dead.0.1", -time.Millisecond)
		must(t, m, ask("acme.new.0.1", 1))
		// The older worker's own keys are as it left them: a string there would break each of its calls.
		for _, key := range []string{":sys", ":l:acme.old.0.1"} {
			if kind, err := s.raw.Type(context.Background(), cfg.Prefix+key).Result(); err != nil || kind != "hash" {
				t.Errorf("%s is a %s now (%v)", key, kind, err)
			}
		}
	})
}

func TestATakeOverNeedsNoSecondSlotWhenItsRecordIsGone(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cfg := s.config()
		m := open(t, cfg)
		old := must(t, m, ask("acme.a.0.1", 1))
		if err := s.raw.Del(context.Background(), cfg.Prefix+":r:acme.a.0.1").Err(); err != nil {
			t.Fatal(err)
		}
		r := ask("acme.a.0.1", 1)
		r.Owner = "taker.1"
		taker := must(t, m, r)
		if taker.Fence() <= old.Fence() {
			t.Errorf("fence %d after %d", taker.Fence(), old.Fence())
		}
		var lost *lease.Lost
		if err := old.RenewNow(); !errors.As(err, &lost) || lost.Reason != lease.Transferred {
			t.Errorf("the old owner's renewal: %v", err)
		}
		if n := inUse(t, m, ask("", 1).Scopes[0]); n != 1 {
			t.Errorf("%d in use", n)
		}
	})
}

// Somebody else's keys at our names: nothing is granted that is not counted, nothing is taken in half, and once they are
// gone all is well.
func TestForeignKeysAtOurNamesFailClosed(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		spoil := map[string]func(key string) error{
			"string": func(key string) error { return s.raw.Set(ctx, key, "not ours", 0).Err() },
			"list":   func(key string) error { return s.raw.RPush(ctx, key, "not ours").Err() },
			"hash":   func(key string) error { return s.raw.HSet(ctx, key, "not", "ours").Err() },
			"set":    func(key string) error { return s.raw.SAdd(ctx, key, "not ours").Err() },
		}
		for kind, put := range spoil {
			for i, name := range []string{":s", ":r:acme.b.0.1", ":z:exec:u:acme:ann", ":z:exec:t:acme", ":w:exec:u:acme:ann", ":p:acme"} {
				t.Run(fmt.Sprintf("%s at %s", kind, name), func(t *testing.T) {
					cfg := s.config()
					m := open(t, cfg)
					holder := must(t, m, two("acme.a.0.1", 1, 9))
					waiting := two("acme.w.0.1", 1, 9)
					waiting.Scopes = lease.Waiting(waiting.Scopes)
					standing(t, m, waiting)
					key := cfg.Prefix + name
					if err := s.raw.Del(ctx, key).Err(); err != nil {
						t.Fatal(err)
					}
					if err := put(key); err != nil {
						t.Fatal(err)
					}
					l, err := m.Acquire(ctx, two("acme.b.0.1", 1, 9))
					if err == nil {
						t.Fatalf("granted %s beside its holder", l.ID())
					}
					var denied *lease.Denied
					if !errors.As(err, &denied) && !errors.Is(err, lease.ErrUnavailable) {
						t.Errorf("acquire: %v", err)
					}
					// A call that failed is repeated in the background; here once the key is gone.
					_, _ = holder.Release(ctx)
					if err := s.raw.Del(ctx, key).Err(); err != nil {
						t.Fatal(err)
					}
					m.Settle(ctx)
					if err := m.Leave(ctx, waiting); err != nil {
						t.Fatal(err)
					}
					for _, scope := range waiting.Scopes {
						if n := inUse(t, m, scope); n != 0 {
							t.Errorf("case %d: %s holds %d after all", i, scope.Label(), n)
						}
					}
					must(t, m, two("acme.c.0.1", 1, 9))
				})
			}
		}
	})
}
