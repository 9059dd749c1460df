package job

import (
	"context"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
)

// claimWindow is how long the gateway has to take a terminal's lease over; unclaimed, it expires.
const claimWindow = 15 * time.Second

// openTerminal gives a page's gateway a slot and a Sprite that is awake. The gateway opens the PTY itself.
func (r *run) openTerminal(ctx context.Context) *ending {
	if e := r.mayStart(); e != nil {
		return e
	}
	if e := r.marked(ctx); e != nil {
		return e
	}
	if e := r.authorise(ctx); e != nil {
		return e
	}
	if e := r.admit(ctx, lease.KindTerminal); e != nil {
		return e
	}
	if e := r.prepare(ctx); e != nil {
		return e
	}
	if e := r.wake(ctx); e != nil {
		return e
	}
	if r.req.replay {
		// An operator's replay readies the sandbox so that the person's next open is quick; nobody waits for the slot.
		return &ending{result: bus.ResultBody{Outcome: plan.OutcomeOpened, Message: "The sandbox is ready; nobody waits for this slot."}}
	}
	return r.ticket(ctx)
}

// wake proves that a resumed Sprite answers before somebody's PTY is opened on it; a fresh one just did.
func (r *run) wake(ctx context.Context) *ending {
	if r.chain.Record().Fresh {
		return nil
	}
	start := r.w.now()
	defer r.measured(&r.timing.Wake, start)
	woke, err := r.w.sprites.EnsureAwake(ctx, r.chain.Record().Sandbox)
	if err != nil {
		return r.provisionFailed(ctx, "wake", err)
	}
	r.woke = string(woke)
	return nil
}

// ticket renews the lease once and lets go of it: the gateway acquires the same id, or it expires.
func (r *run) ticket(ctx context.Context) *ending {
	expires := r.w.now().Add(claimWindow)
	if err := r.lease.Extend(ctx, min(claimWindow, r.w.cfg.LeaseTTL)); err != nil {
		return park(bus.WaitRedis, "", r.w.now().Add(r.w.jitter(redisRetry)), "the lease could not be handed over")
	}
	return &ending{keepLease: true, result: bus.ResultBody{
		Outcome:     plan.OutcomeOpened,
		LeaseTicket: &bus.LeaseTicket{ID: r.lease.ID(), Fence: r.lease.Fence(), Expires: expires},
	}}
}
