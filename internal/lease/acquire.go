package lease

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// retryCap bounds the hint of a denial: a slot is usually freed by a release
// long before the holder's lease would expire.
const retryCap = 5 * time.Second

// Acquire takes every scope or none, in one round trip. An acquire of a live id
// transfers it with a new fence and no new slot, whatever the limits say.
//
// Errors: *Denied; *Lost for an id that was revoked or held for its longest
// time; an ErrUnavailable (also ErrWarmingUp, ErrUnconfirmed), after which
// nothing is held: an answer that comes late is taken back; ErrAbandoned;
// ErrClosed; ctx's cause. It blocks for at most Config.CallTimeout.
func (m *Manager) Acquire(ctx context.Context, req Request) (*Lease, error) {
	or(&req.Owner, m.cfg.Owner)
	or(&req.MaxHold, m.cfg.MaxHold)
	if err := req.validate(); err != nil {
		return nil, err
	}
	if !req.Force && m.unconfirmed() > 0 {
		return nil, fmt.Errorf("acquire %s: %w", req.ID, ErrUnconfirmed)
	}
	nonce, names := m.cfg.NewID(), scopeKeys(req.Scopes)
	head := []string{m.keys.sys(), m.keys.record(req.ID), m.keys.nonce(nonce), m.keys.parked(req.Tenant)}
	sent, touch := m.cfg.Now(), m.touched.due(m.elapsed(), names)
	reply, ran, err := m.call(ctx, m.requests, opAcquire, m.keys.scoped(head, names), m.acquireArgs(req, nonce, names, touch))
	if err != nil {
		if ran {
			m.giveBack(req.ID, nonce, names)
		}
		return nil, fmt.Errorf("acquire %s: %w", req.ID, err)
	}
	l, err := m.granted(req, nonce, sent, reply)
	if err == nil && touch {
		m.touched.done(names)
	}
	return l, err
}

func scopeKeys(scopes []Scope) []string {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = s.key()
	}
	return names
}

func (m *Manager) acquireArgs(r Request, nonce string, names []string, touch bool) []any {
	order, waits := "-1", make([]byte, len(r.Scopes)) // not waiting
	for i, s := range r.Scopes {
		waits[i] = '0'
		if s.Wait {
			waits[i], order = '1', "-2" // the server's time
		}
	}
	if order != "-1" && r.Queued > 0 {
		order = strconv.FormatInt(r.Queued, 10)
	}
	args := make([]any, 0, 14+len(r.Scopes))
	args = append(args, r.ID, nonce, r.Owner, ms(m.cfg.TTL), m.keyTTL(), ms(r.MaxHold), ms(max(m.cfg.Quarantine, 0)),
		flag(r.Force), order, waits, m.lineArgs, about(r, names), len(r.Scopes), flag(touch))
	for _, s := range r.Scopes {
		args = append(args, s.Limit)
	}
	return args
}

// granted reads the script's verdict.
func (m *Manager) granted(req Request, nonce string, sent time.Time, reply []string) (*Lease, error) {
	wrap := func(err error) error { return fmt.Errorf("acquire %s: %w", req.ID, err) }
	switch reply[0] {
	case "granted", "granted_over", "held", "transferred":
		m.metrics.granted.WithLabelValues(string(req.Kind), reply[0]).Inc()
		l := newLease(m, req, sent, reply)
		if err := m.adopt(l); err != nil {
			m.giveBack(req.ID, nonce, l.scopes)
			return nil, wrap(err)
		}
		return l, nil
	case "denied":
		return nil, wrap(m.denied(req, reply))
	case "warming_up":
		m.metrics.unavailable.WithLabelValues(string(opAcquire), "warming_up").Inc()
		return nil, wrap(ErrWarmingUp)
	case "revoked":
		return nil, wrap(revokedBy(req.ID, field(reply, 1)))
	case "max_hold":
		return nil, wrap(&Lost{ID: req.ID, Reason: MaxHold})
	case "abandoned":
		return nil, wrap(ErrAbandoned)
	default:
		return nil, wrap(fmt.Errorf("unknown verdict %q", reply[0]))
	}
}

func (m *Manager) denied(req Request, reply []string) *Denied {
	d := &Denied{
		InUse: int(number(field(reply, 2))), Limit: int(number(field(reply, 3))),
		Expires: span(field(reply, 4)), Standing: Standing(field(reply, 5)),
	}
	if i := int(number(field(reply, 1))); i >= 1 && i <= len(req.Scopes) {
		d.Scope = req.Scopes[i-1]
	}
	if len(reply) > 6 {
		d.Holders = reply[6:]
	}
	hint := min(d.Expires, retryCap)
	if hint <= 0 {
		hint = retryCap
	}
	d.RetryAfter = m.cfg.jitter(hint, 0.2)
	m.metrics.denied.WithLabelValues(string(req.Kind), d.Scope.label()).Inc()
	return d
}

// giveBack lets Run take an acquire back whose answer never came. Its bytes
// may even arrive later, so a tombstone waits for them.
func (m *Manager) giveBack(id, nonce string, scopes []string) {
	m.later(task{
		op: opAbandon, id: id,
		keys: m.keys.scoped([]string{m.keys.nonce(nonce), m.keys.record(id)}, scopes),
		args: []any{id, nonce, ms(tombstone), ms(m.cfg.GiveWay), m.keys.signals(), len(scopes)},
	})
}

// Leave takes a parked request out of every line: canceled, expired, denied.
// It is harmless for one that stands in none. Blocks for one call at most.
func (m *Manager) Leave(ctx context.Context, req Request) error {
	head := []string{m.keys.parked(req.Tenant)}
	for _, s := range scopeKeys(req.Scopes) {
		head = append(head, m.keys.line(s))
	}
	if _, _, err := m.call(ctx, m.requests, opLeave, head, []any{req.ID, ms(m.cfg.GiveWay), m.keys.signals()}); err != nil {
		return fmt.Errorf("leave the line %s: %w", req.ID, err)
	}
	return nil
}

// With runs fn under a lease and gives the lease back when fn returns, fails or
// panics. fn's context ends with ctx or, by cause, with the lease.
func (m *Manager) With(ctx context.Context, req Request, fn func(ctx context.Context, l *Lease) error) error {
	l, err := m.Acquire(ctx, req)
	if err != nil {
		return err
	}
	defer func() {
		if _, err := l.Release(ctx); err != nil {
			m.log.Warn().Err(err).Str("lease", req.ID).Msg("release is left to the background")
		}
	}()
	held, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })
	defer stop()
	return fn(held, l)
}
