package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// releaseWithin bounds a release: it stands before the caller's result.
const releaseWithin = time.Second

// Release gives the slot back. It stops the heartbeat first, tries once for at
// most 1 s whatever became of ctx, then leaves retries to Run until the lease
// would have expired. released is true when this call freed a live slot; false
// without an error when nothing was held (a second call, expired, transferred).
// A transferred or forgotten lease is left untouched.
func (l *Lease) Release(ctx context.Context) (released bool, err error) {
	l.mu.Lock()
	if l.settled {
		l.mu.Unlock()
		return false, nil
	}
	l.settled = true
	l.detachLocked()
	late := l.unknown || l.inflight > 0
	l.mu.Unlock()
	l.m.drop(l)

	t := l.m.releaseTask(l.req.ID, l.grant, l.scopes, late)
	released, err = l.m.release(ctx, t)
	if err != nil {
		l.m.later(l.m.releaseTask(l.req.ID, l.grant, l.scopes, true))
	}
	return released, err
}

// ReleaseID releases by id and fence (as the journal holds them): for whoever
// repeats what follows a result after its worker died. A lease that a younger
// grant holds is left untouched. Blocks for 1 s at most; no retries.
func (m *Manager) ReleaseID(ctx context.Context, id string, fence int64) (released bool, err error) {
	if !tokenSafe(id, 300) {
		return false, fmt.Errorf("release: id %q is not valid", id)
	}
	held, err := m.record(ctx, id)
	if err != nil {
		return false, fmt.Errorf("release %s: %w", id, err)
	}
	if len(held.Scopes) == 0 {
		return false, nil
	}
	// Its worker may still have a renewal on its way.
	return m.release(ctx, m.releaseTask(id, fence, held.Scopes, true))
}

// record reads one held record; one that is not there names no scopes.
func (m *Manager) record(ctx context.Context, id string) (Record, error) {
	var stored string
	err := m.ask(ctx, opList, func(ctx context.Context) error {
		var err error
		stored, err = m.calls.Get(ctx, m.keys.record(id)).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	return readRecord(id, stored), err
}

func (m *Manager) releaseTask(id string, fence int64, scopes []string, late bool) task {
	var tomb time.Duration
	if late {
		tomb = tombstone
	}
	return task{
		op: opRelease, id: id,
		keys: m.keys.scoped([]string{m.keys.sys(), m.keys.record(id)}, scopes),
		args: []any{id, fence, ms(tomb), ms(m.cfg.GiveWay), m.keys.signals(), len(scopes)},
	}
}

func (m *Manager) release(ctx context.Context, t task) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	reply, _, err := m.call(ctx, m.requests, t.op, t.keys, t.args)
	if err != nil {
		return false, fmt.Errorf("release %s: %w", t.id, err)
	}
	return reply[0] == "released", nil
}
