package lease_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/wakebus/wakebus/internal/lease"
)

func threeScopes(user string) []lease.Scope {
	return []lease.Scope{
		lease.UserScope(lease.KindExec, "acme", user, 1000), lease.TenantScope(lease.KindExec, "acme", 10_000), lease.GlobalScope(100_000),
	}
}

// spread runs f from exactly n goroutines.
func spread(b *testing.B, n int, f func(worker, i int) error) {
	var next atomic.Int64
	done := make(chan error, n)
	b.ResetTimer()
	for worker := range n {
		go func() {
			for {
				i := int(next.Add(1))
				if i > b.N {
					done <- nil
					return
				}
				if err := f(worker, i); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	for range n {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

// BenchmarkAcquireRelease takes and gives back three scopes on a redis-server.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) {
			m := open(b, startReal(b).config())
			spread(b, n, func(worker, i int) error {
				l, err := m.Acquire(context.Background(), lease.Request{
					ID: fmt.Sprintf("acme.j%d.0.1", i), Kind: lease.KindExec, Tenant: "acme", User: "ann",
					Scopes: threeScopes(fmt.Sprintf("u%d", worker)),
				})
				if err != nil {
					return err
				}
				_, err = l.Release(context.Background())
				return err
			})
		})
	}
}

// BenchmarkDenied is one round trip that grants nothing.
func BenchmarkDenied(b *testing.B) {
	m := open(b, startReal(b).config())
	if _, err := m.Acquire(context.Background(), ask("acme.holder.0.1", 1)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := m.Acquire(context.Background(), ask("acme.other.0.1", 1)); err == nil {
			b.Fatal("granted")
		}
	}
}

// BenchmarkRenew is one heartbeat.
func BenchmarkRenew(b *testing.B) {
	m := open(b, startReal(b).config())
	l, err := m.Acquire(context.Background(), lease.Request{ID: "acme.a.0.1", Kind: lease.KindExec, Tenant: "acme", User: "ann", Scopes: threeScopes("ann")})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := l.RenewNow(); err != nil {
			b.Fatal(err)
		}
	}
}
