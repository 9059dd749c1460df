package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/wakebus/wakebus/internal/audit"
	"github.com/wakebus/wakebus/internal/bus"
)

const (
	// maxWatched bounds how many replays are followed at once; the next record waits for one of them to end.
	maxWatched = 64
	// leastForShare is how many replays must have ended before their share of failures says anything.
	leastForShare = 5
	// progressEvery is the least time between two lines of progress.
	progressEvery = 5 * time.Second
	// settlePatience is how long a record may say "replaying" after its replay's result.
	settlePatience = 15 * time.Second
)

// errStillReplaying: the worker has not written down yet how a replay ended.
var errStillReplaying = errors.New("still replaying")

// errTooManyFailed: the share of failures is above --stop-on-failure.
var errTooManyFailed = errors.New("too many did not end well")

// replayer replays records one after another and follows those that run.
type replayer struct {
	c        *cli
	b        *bus.Bus
	f        replayFlags
	grants   func(bus.LetterID) (string, error)
	pace     time.Duration
	share    float64 // -1 = never stop
	watch    bool    // follow each replay to its result
	explicit bool    // the operator named the records, so a refused one is a failure of the command
	slots    chan struct{}

	wg sync.WaitGroup
	mu sync.Mutex // protects what follows, and the output
	// started, ended, failed and refused count records.
	started, ended, failed, refused int
	said                            time.Time
}

// run replays the canaries, then the rest. What it follows ends with it.
func (r *replayer) run(ctx context.Context, ids []bus.LetterID) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.wg.Wait()
	defer cancel()
	canaries := min(r.f.canary, len(ids))
	if err := r.each(ctx, ids[:canaries]); err != nil {
		return err
	}
	if canaries > 0 && canaries < len(ids) {
		r.wg.Wait()
		if failed := r.count(&r.failed); failed > 0 {
			r.c.say("stopped: %d of %d canaries did not end well; %d records were not touched", failed, canaries, len(ids)-canaries)
			return endWith(codeRefused)
		}
	}
	err := r.each(ctx, ids[canaries:])
	if r.f.wait || errors.Is(err, errTooManyFailed) {
		r.wg.Wait()
	}
	return r.end(ctx, err, len(ids))
}

func (r *replayer) end(ctx context.Context, err error, total int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	interrupted := ctx.Err() != nil
	switch {
	case errors.Is(err, errTooManyFailed):
		r.c.say("stopped: %d of %d that ended did not end well; %d records were not touched", r.failed, r.ended, total-r.started-r.refused)
		return endWith(codeRefused)
	case err != nil && !interrupted:
		return err
	case interrupted && r.started+r.refused < total:
		r.c.say("interrupted: %d records were not touched; the same command continues", total-r.started-r.refused)
		return endWith(codeRefused)
	}
	if total > 1 || r.f.wait {
		r.c.say("replayed %d, refused %d, ended %d, not well %d", r.started, r.refused, r.ended, r.failed)
	}
	if r.f.wait && (r.failed > 0 || r.ended < r.started) || r.explicit && r.refused > 0 {
		return endWith(codeRefused)
	}
	return nil
}

// each replays ids at the pace, until one cannot be asked for, too many have failed, or ctx ends.
func (r *replayer) each(ctx context.Context, ids []bus.LetterID) error {
	var tick <-chan time.Time
	if r.pace > 0 {
		ticker := time.NewTicker(r.pace)
		defer ticker.Stop()
		tick = ticker.C
	}
	for i, id := range ids {
		if i > 0 && tick != nil {
			select {
			case <-tick:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r.tooMany() {
			return errTooManyFailed
		}
		if err := r.one(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// one marks, parks and follows one record. Only what concerns every record is an error.
func (r *replayer) one(ctx context.Context, id bus.LetterID) error {
	if r.watch {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	key, err := r.park(ctx, id)
	if err == nil && r.watch {
		r.wg.Go(func() {
			defer func() { <-r.slots }()
			r.followRun(ctx, id, key)
		})
		return nil
	}
	if r.watch {
		<-r.slots
	}
	var refusal *bus.ReplayRefused
	if errors.As(err, &refusal) || errors.Is(err, bus.ErrNoLetter) {
		return r.told(&r.refused, letterDone{ID: id.String(), State: "refused", Why: err.Error()})
	}
	return err
}

// park marks the record as replaying and parks its next run for now. Between the two it may die: whoever comes later
// carries the mark on.
func (r *replayer) park(ctx context.Context, id bus.LetterID) (bus.RunKey, error) {
	by := r.c.operator()
	grant, err := r.grants(id)
	if err != nil {
		return bus.RunKey{}, err
	}
	letter, err := r.b.MarkReplaying(ctx, id, bus.ReplayOptions{By: by, Why: r.f.why, Force: r.f.force})
	if err != nil {
		return bus.RunKey{}, err
	}
	key := bus.RunKey{Tenant: id.Tenant, Job: id.Job, Run: letter.Run}
	// From here on Ctrl-C must not leave a mark without its run.
	ctx = context.WithoutCancel(ctx)
	now := r.c.now().UTC()
	if err := r.b.ParkReplay(ctx, letter, bus.Replay{At: now, Deadline: now.Add(r.f.deadline), Grant: grant}); err != nil {
		return key, err
	}
	r.c.auditOn(ctx, r.b, audit.Record{Kind: audit.KindReplay, Tenant: id.Tenant, ID: audit.RunID(id.Job, key.Run),
		Action: "dlq replay", Job: id.Job, Run: key.Run, Detail: r.f.why})
	return key, r.told(&r.started, letterDone{ID: id.String(), State: "replaying", Run: key.Run})
}

// followRun waits for the replay's result.
func (r *replayer) followRun(ctx context.Context, id bus.LetterID, key bus.RunKey) {
	done := letterDone{ID: id.String(), State: string(bus.LetterDead), Run: key.Run}
	s := &show{c: &cli{out: io.Discard, err: io.Discard, now: r.c.now}}
	reader, err := r.b.Subscribe(ctx, key.Tenant, key.Job, bus.ReadRun(key.Run), bus.ReadHistory(r.c.history(r.b)))
	if err == nil {
		defer reader.Close()
		err = s.follow(ctx, &withPatience{events: reader, until: r.c.now().Add(r.f.deadline + r.c.grace), now: r.c.now})
	}
	switch {
	case ctx.Err() != nil:
		return // we leave; the replay goes on
	case err != nil:
		done.Why = err.Error()
	case s.result == nil:
		done.Why = "its events ended without a result"
	default:
		done.Outcome, done.Reason = s.result.Outcome, s.result.Reason
		done.State = string(bus.AfterReplay(s.result.Outcome))
	}
	_ = r.told(&r.ended, done) // a closed standard output does not stop a replay
	if s.result != nil {
		r.settle(ctx, id, key.Run)
	}
}

// settle waits until the record says how its replay ended, so that a list that follows the command is true: the worker
// writes that after the result. What was replayed is counted before, so that too many failures stop the rest at once. A worker that died between them is waited for as long as a take-over may need.
func (r *replayer) settle(ctx context.Context, id bus.LetterID, run int) {
	patience := retry.WithMaxDuration(settlePatience, retry.WithCappedDuration(time.Second, retry.NewFibonacci(20*time.Millisecond)))
	_ = retry.Do(ctx, patience, func(ctx context.Context) error {
		letter, err := r.b.Letter(ctx, id)
		if err == nil && letter.State == bus.LetterReplaying && letter.Run == run {
			return retry.RetryableError(errStillReplaying)
		}
		return nil // the result stands, whatever the record says of it
	})
}

// told counts and reports a record.
func (r *replayer) told(counter *int, done letterDone) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	*counter++
	if counter == &r.ended && done.State != string(bus.LetterResolved) {
		r.failed++
	}
	if now := r.c.now(); r.c.person && now.Sub(r.said) >= progressEvery {
		r.said = now
		r.c.say("so far: replayed %d, refused %d, ended %d, not well %d", r.started, r.refused, r.ended, r.failed)
	}
	return r.c.report(done)
}

func (r *replayer) tooMany() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.share >= 0 && r.ended >= leastForShare && float64(r.failed) > r.share*float64(r.ended)
}

func (r *replayer) count(n *int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *n
}
