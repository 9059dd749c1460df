package lease_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"

	"github.com/wakebus/wakebus/internal/lease"
)

func Example() {
	redis := miniredis.NewMiniRedis()
	if err := redis.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer redis.Close()
	ctx := context.Background()
	m, err := lease.Open(ctx, lease.Config{URL: "redis://" + redis.Addr(), Quarantine: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()

	request := func(job string) lease.Request {
		return lease.Request{
			ID: "acme." + job + ".0.1", Kind: lease.KindExec, Tenant: "acme", User: "ann", Job: job,
			Scopes: lease.Scopes(lease.KindExec, "acme", "ann", "free", lease.DefaultLimits()),
		}
	}
	l, err := m.Acquire(ctx, request("build"))
	fmt.Println("first:", err, l.State())

	_, err = m.Acquire(ctx, request("test"))
	var denied *lease.Denied
	if errors.As(err, &denied) {
		fmt.Println("second:", denied.Scope.Label(), "holds", denied.InUse, "of", denied.Limit, denied.Holders)
	}
	released, _ := l.Release(ctx)
	again, _ := l.Release(ctx)
	fmt.Println("released:", released, again)
	// Output:
	// first: <nil> held
	// second: user holds 1 of 1 [acme.build.0.1]
	// released: true false
}
