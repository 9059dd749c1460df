package lease

import (
	"context"
	"sync"
	"time"
)

// pendingMax bounds what waits to be given back. Beyond it a task is dropped
// and counted: its slot frees by expiry.
const pendingMax = 1024

// task is a release or give-back that could not be finished at once.
type task struct {
	op    op
	id    string
	keys  []string
	args  []any
	until time.Time // by then the lease has expired by itself
	next  time.Time
	tries int
}

// pending holds the tasks; Run works them off.
type pending struct {
	now   func() time.Time
	wake  chan struct{} // never closed
	mu    sync.Mutex    // protects tasks
	tasks []task
}

func newPending(now func() time.Time) *pending {
	return &pending{now: now, wake: make(chan struct{}, 1)}
}

func (p *pending) add(t task) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tasks) >= pendingMax {
		return false
	}
	p.tasks = append(p.tasks, t)
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return true
}

// take removes and returns the tasks that are due, or all.
func (p *pending) take(all bool) (due []task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, rest := p.now(), p.tasks[:0:0]
	for _, t := range p.tasks {
		if all || !now.Before(t.next) {
			due = append(due, t)
		} else {
			rest = append(rest, t)
		}
	}
	p.tasks = rest
	return due
}

// wait is the time until the next task is due; an hour when there is none,
// which add cuts short.
func (p *pending) wait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := time.Hour
	for _, t := range p.tasks {
		wait = min(wait, max(t.next.Sub(p.now()), 0))
	}
	return wait
}

func (m *Manager) later(t task) {
	now := m.cfg.Now()
	t.next, t.until = now, now.Add(m.cfg.TTL+m.cfg.Margin)
	if !m.pending.add(t) {
		m.metrics.dropped.Inc()
		m.log.Warn().Str("lease", t.id).Str("op", string(t.op)).Msg("too many releases wait: left to expiry")
	}
}

// settle works pending tasks off until ctx ends.
func (m *Manager) settle(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.pending.wake:
		case <-timer.C:
		}
		timer.Reset(m.settleDue(ctx, false))
	}
}

// settleDue tries each due task once and returns the time to the next.
func (m *Manager) settleDue(ctx context.Context, all bool) time.Duration {
	for _, t := range m.pending.take(all) {
		reply, _, err := m.call(ctx, m.requests, t.op, t.keys, t.args)
		if err == nil {
			if reply[0] == "released" {
				m.metrics.releasedLate.Inc()
			}
			continue
		}
		now := m.cfg.Now()
		t.tries++
		t.next = now.Add(m.cfg.jitter(min(100*time.Millisecond<<min(t.tries, 5), 2*time.Second), 0.2))
		if t.next.Before(t.until) && !m.pending.add(t) {
			m.metrics.dropped.Inc()
		}
	}
	return m.pending.wait()
}
