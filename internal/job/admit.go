package job

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/lease"
	"github.com/wakebus/wakebus/internal/plan"
)

const (
	// redisRetry spaces the tries of a run that Redis cannot admit now; the worker stops pulling meanwhile.
	redisRetry = 2 * time.Second
	// limitRetry is the longest a run parked on a limit sleeps without looking again; a freed slot wakes it sooner.
	limitRetry = 30 * time.Second
	// holdMargin is what a lease may be held over the command's own limit: provisioning, a stop, the result.
	holdMargin = 10 * time.Minute
)

// leaseID names the slot of one attempt; a later owner of the run acquires the same id and so takes it over.
func leaseID(k bus.RunKey, attempt int) string {
	return k.Tenant + "." + k.Job + "." + strconv.Itoa(k.Run) + "." + strconv.Itoa(attempt)
}

// leaseKind is which limits the run counts against.
func (r *run) leaseKind() lease.Kind {
	if r.req.kind == bus.KindTerminal {
		return lease.KindTerminal
	}
	return lease.KindExec
}

func (r *run) leaseRequest(kind lease.Kind) lease.Request {
	return r.leaseRequestOf(kind, r.chain.Record())
}

func (r *run) leaseRequestOf(kind lease.Kind, rec bus.Record) lease.Request {
	scopes := lease.Scopes(kind, r.key.Tenant, r.actor.User, string(r.actor.Tier), r.w.cfg.Limits)
	hold := holdMargin
	if r.waits() {
		scopes = lease.Waiting(scopes)
	}
	if q := r.req.exec; q != nil {
		if q.Serial() {
			// Serial order always waits, and it is asked first: a job in line takes no slot of its user's.
			scopes = append([]lease.Scope{lease.SerialScope(r.key.Tenant, q.ConversationID)}, scopes...)
		}
		hold += r.timeout()
	}
	return lease.Request{
		ID: leaseID(r.key, rec.Attempt), Owner: string(r.w.owner), Kind: kind, Tenant: r.key.Tenant, User: r.actor.User,
		Job: r.key.Job, Sandbox: rec.Sandbox, Scopes: scopes, MaxHold: hold, Queued: int64(rec.Queued),
	}
}

// admit takes the concurrency lease, all scopes or none.
func (r *run) admit(ctx context.Context, kind lease.Kind) *ending {
	start := r.w.now()
	defer r.measured(&r.timing.Lease, start)
	req := r.leaseRequest(kind)
	l, err := r.w.leases.Acquire(ctx, req)
	if err == nil {
		r.lease = l
		r.log = r.log.With().Str("lease", l.ID()).Int64("fence", l.Fence()).Logger()
		if e := r.step(ctx, StepAfterLease); e != nil {
			return e
		}
		if e := r.unlessMarked(nil); e != nil {
			return e
		}
		return r.charge(ctx)
	}
	return r.unlessMarked(r.notAdmitted(err))
}

// notAdmitted says what a refused acquire means. An outage denies nothing (case 48).
func (r *run) notAdmitted(err error) *ending {
	var full *lease.Denied
	var gone *lease.Lost
	switch {
	case errors.As(err, &full):
		return r.full(full)
	case errors.As(err, &gone):
		return canceled(gone.By, gone.Why)
	case errors.Is(err, lease.ErrWarmingUp):
		return park(bus.WaitRedis, "", r.w.now().Add(r.w.jitter(redisRetry)), "redis started empty a moment ago; running commands are counted again first")
	case errors.Is(err, lease.ErrUnavailable), errors.Is(err, lease.ErrAbandoned):
		return park(bus.WaitRedis, "", r.w.now().Add(r.w.jitter(redisRetry)), "redis does not answer")
	}
	return failed(plan.ReasonMisconfigured, bus.ClassExecutionFailed, "", err)
}

// full denies, or parks a run that may wait.
func (r *run) full(d *lease.Denied) *ending {
	held := fmt.Sprintf("%d of %d in use (%s)", d.InUse, d.Limit, d.Scope.Label())
	switch d.Standing {
	case lease.NotWaiting:
		if jobs := jobsOf(r.key.Tenant, d.Holders); len(jobs) > 0 {
			held += ": " + strings.Join(jobs, ", ")
		}
		return deniedAfter(plan.ReasonConcurrencyLimit, held+".", d.RetryAfter)
	case lease.LineFull:
		if r.req.replay {
			// Its operator started a thousand of one user's, and cannot know that they do not fit into a line.
			return park(bus.WaitLimit, d.Scope.Label(), r.w.now().Add(r.w.jitter(limitRetry)), held+"; as many of the tenant's jobs wait as may")
		}
		return deniedAfter(plan.ReasonRateLimited, "As many of the tenant's jobs wait as may.", d.RetryAfter)
	case lease.Parked:
	}
	what := bus.WaitLimit
	if d.Scope.Kind == lease.KindSerial {
		what = bus.WaitSerial
	}
	// A slot that frees by release calls the run; this is the safety net for a call that is lost.
	wait := limitRetry
	if d.Expires > 0 {
		wait = min(wait, d.Expires+time.Second)
	}
	return park(what, d.Scope.Label(), r.w.now().Add(r.w.jitter(wait)), held)
}

// waits reports whether the run waits for a slot of its user's. A replay does, whatever its request said: its caller is
// gone, and its operator replays several of one user's at once.
func (r *run) waits() bool { return r.req.replay || r.req.exec != nil && r.req.exec.Waits() }

// inLine reports whether the run may stand in a line for a slot.
func (r *run) inLine() bool { return r.waits() || r.req.exec != nil && r.req.exec.Serial() }

// leaveLine takes a run that ends out of the lines, so that no freed slot is kept for it. It is an accelerator: a call
// that is lost costs the next in line its own look.
func (r *run) leaveLine(ctx context.Context) {
	if !r.inLine() || r.actor.User == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	if err := r.w.leases.Leave(ctx, r.leaseRequest(r.leaseKind())); err != nil {
		r.log.Debug().Err(err).Msg("run left in line; its place runs out")
	}
}

// leaveParked does the same for a run that nobody owns.
func (w *Worker) leaveParked(ctx context.Context, key bus.RunKey, rec bus.Record) {
	parked, ok, err := w.bus.ParkedShow(ctx, key)
	if err != nil || !ok || rec.Actor == nil {
		return
	}
	body, replay := parked.Data, parked.Header.Get(bus.HeaderReplayOf) != ""
	if replay {
		if body, _, err = w.openReplay(ctx, bus.LetterID{Tenant: key.Tenant, Job: key.Job}); err != nil {
			return
		}
	}
	req := &request{key: key, kind: parked.Kind, replay: replay}
	if err := req.parse(body, w.cfg.StreamHardCap); err != nil {
		return
	}
	r := &run{w: w, key: key, req: req, actor: *rec.Actor, log: w.log}
	if !r.inLine() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	if err := w.leases.Leave(ctx, r.leaseRequestOf(r.leaseKind(), rec)); err != nil {
		w.log.Debug().Err(err).Stringer("run", key).Msg("run left in line; its place runs out")
	}
}

// jobsOf turns the lease ids of a tenant's runs into job ids for a person. Of a limit that tenants share, the others'
// are nothing that this one may see.
func jobsOf(tenant string, ids []string) []string {
	jobs := make([]string, 0, len(ids))
	for _, id := range ids {
		if parts := strings.Split(id, "."); len(parts) == 4 && parts[0] == tenant {
			jobs = append(jobs, parts[1])
		}
	}
	return jobs
}

// charge counts the run against its user's budget, once however often it is attempted.
func (r *run) charge(ctx context.Context) *ending {
	if r.req.kind != bus.KindExec {
		return nil
	}
	err := r.w.leases.Charge(ctx, r.key.Tenant, r.actor.User, r.key.String())
	var over *lease.OverBudget
	switch {
	case err == nil:
		return nil
	case errors.As(err, &over):
		return deniedAfter(plan.ReasonRateLimited, fmt.Sprintf("The daily budget of %d runs is used up.", over.Limit), over.RetryAfter)
	case errors.Is(err, lease.ErrUnavailable):
		return park(bus.WaitRedis, "", r.w.now().Add(r.w.jitter(redisRetry)), "redis does not answer")
	}
	return failed(plan.ReasonError, bus.ClassExecutionFailed, "", err)
}

// hold takes the lease of a command that runs already: never denied, over by one if need be.
func (r *run) hold(ctx context.Context) {
	req := r.leaseRequest(lease.KindExec)
	req.ID, req.Force = r.chain.Record().Lease, true
	if req.ID == "" {
		return
	}
	l, err := r.w.leases.Acquire(ctx, req)
	if err != nil {
		// A Redis outage costs nobody a command; the run goes on uncounted until it ends.
		r.w.met.unleased.Inc()
		r.log.Warn().Err(err).Msg("a running command is not counted")
		return
	}
	r.lease = l
}
