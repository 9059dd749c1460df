package lease

import (
	"context"
	"errors"
	"time"
)

// beat renews until the lease is detached or the Manager closes. It belongs to
// this one lease: a process that lives does not keep a dead run's slot.
func (l *Lease) beat() {
	timer := time.NewTimer(l.pause(false))
	defer timer.Stop()
	for {
		select {
		case <-l.quit:
			return
		case <-l.m.closing:
			l.mu.Lock()
			l.detachLocked()
			l.mu.Unlock()
			l.m.drop(l)
			return
		case <-l.poked:
		case <-timer.C:
		}
		if l.overdue() {
			l.m.drop(l)
			return
		}
		err := l.renew(context.Background(), l.m.renewals, l.m.cfg.TTL)
		if l.State() == Detached {
			l.m.drop(l)
			return
		}
		timer.Reset(l.pause(err != nil))
	}
}

// overdue ends a lease whose longest hold, or for Strict whose confirmation,
// is over by our own clock, whether Redis answers or not.
func (l *Lease) overdue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.m.cfg.Now()
	switch {
	case l.detached:
		return true
	case !now.Before(l.until):
		l.loseLocked(&Lost{ID: l.req.ID, Reason: MaxHold})
		l.m.log.Warn().Str("lease", l.req.ID).Int64("fence", l.fence).Msg("lease held for its longest time")
		return true
	case l.req.Strict && l.stateLocked(now) == Unconfirmed:
		l.loseLocked(&Lost{ID: l.req.ID, Reason: Expired})
		return true
	default:
		return false
	}
}

// pause is the time to the next beat: sooner after a failure, and never beyond
// what overdue judges.
func (l *Lease) pause(failed bool) time.Duration {
	d := l.m.cfg.jitter(l.m.cfg.Renew, 0.1)
	if failed {
		d = l.m.cfg.jitter(l.m.cfg.Renew/8, 0.2)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.m.cfg.Now()
	d = min(d, l.until.Sub(now))
	if l.req.Strict {
		d = min(d, l.deadlineLocked().Sub(now))
	}
	return max(d, 0)
}

// renew sends one renewal that sets ttl, and takes the answer in.
func (l *Lease) renew(ctx context.Context, by *courier, ttl time.Duration) error {
	l.mu.Lock()
	if l.settled {
		l.mu.Unlock()
		return nil // no renewal after a release (case 44)
	}
	l.inflight++
	sent := l.m.cfg.Now()
	args := l.renewArgs(ttl, l.until.Sub(sent))
	l.mu.Unlock()

	keys := []string{l.m.keys.sys(), l.m.keys.record(l.req.ID)}
	for _, s := range l.scopes {
		keys = append(keys, l.m.keys.scope(s))
	}
	reply, ran, err := l.m.call(ctx, by, opRenew, keys, args)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.inflight--
	l.unknown = l.unknown || ran
	if err != nil {
		return err
	}
	if l.settled {
		return nil // released or forgotten meanwhile: the answer is nobody's
	}
	return l.renewedLocked(reply, sent, ttl)
}

func (l *Lease) renewArgs(ttl, remain time.Duration) []any {
	args := []any{
		l.req.ID, l.grant, l.req.Owner, ms(ttl), l.m.keyTTL(), ms(l.req.MaxHold), ms(max(remain, 0)),
		flag(l.req.Strict), len(l.req.Scopes),
	}
	for _, s := range l.req.Scopes {
		args = append(args, s.Limit)
	}
	return append(args, about(l.req, l.scopes))
}

func (l *Lease) renewedLocked(reply []string, sent time.Time, ttl time.Duration) error {
	lost := &Lost{ID: l.req.ID}
	switch reply[0] {
	case "held", "reattached", "reattached_over":
		if reply[0] != "held" {
			l.m.metrics.reattached.WithLabelValues(flag(reply[0] == "reattached_over")).Inc()
			l.m.log.Warn().Str("lease", l.req.ID).Str("fence", field(reply, 1)).Str("how", reply[0]).Msg("lease reattached")
		}
		l.fence = max(l.fence, number(field(reply, 1)))
		l.confirmed, l.ttl = sent, ttl
		l.until = sent.Add(span(field(reply, 2)))
		l.mark(field(reply, 3))
		return nil
	case "transferred", "released":
		lost.Reason = Transferred
	case "revoked":
		lost = revokedBy(l.req.ID, field(reply, 1))
	case "max_hold":
		lost.Reason = MaxHold
	case "expired":
		lost.Reason = Expired
	default:
		return errors.New("unknown verdict " + reply[0])
	}
	l.loseLocked(lost)
	return lost
}
