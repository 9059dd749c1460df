package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/session"
)

// memory is a bucket that compares revisions, as the real one does.
type memory struct {
	mu       sync.Mutex
	entries  map[string]session.Entry
	revision uint64
	writes   int
	fail     error
}

var (
	_ session.Links  = (*memory)(nil)
	_ session.Lister = (*memory)(nil)
)

func newMemory() *memory { return &memory{entries: map[string]session.Entry{}} }

func (m *memory) Get(_ context.Context, key string) (session.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return session.Entry{}, m.fail
	}
	e, ok := m.entries[key]
	if !ok {
		return session.Entry{}, fmt.Errorf("get: %w", session.ErrNotFound)
	}
	return e, nil
}

func (m *memory) Create(_ context.Context, key string, value []byte) (uint64, error) {
	return m.put(key, value, 0)
}

func (m *memory) Update(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return m.put(key, value, revision)
}

func (m *memory) put(key string, value []byte, expected uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return 0, m.fail
	}
	if m.entries[key].Revision != expected {
		return 0, fmt.Errorf("put: %w", session.ErrConflict)
	}
	m.revision++
	m.writes++
	m.entries[key] = session.Entry{Value: value, Revision: m.revision}
	return m.revision, nil
}

func (m *memory) Delete(_ context.Context, key string, revision uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[key].Revision != revision {
		return session.ErrConflict
	}
	delete(m.entries, key)
	return nil
}

func (m *memory) List(_ context.Context, prefix string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for k := range m.entries {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

type clock struct{ now time.Time }

func (c *clock) add(d time.Duration) { c.now = c.now.Add(d) }

type bundle struct {
	links *memory
	clock *clock
	store *session.Store
	key   session.Key
}

func setup(t testing.TB) bundle {
	t.Helper()
	b := bundle{links: newMemory(), clock: &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		key: session.Key{Kind: plan.KindConversation, Tenant: "acme", ID: "c1"}}
	store, err := session.New(b.links, session.Config{Now: func() time.Time { return b.clock.now }})
	if err != nil {
		t.Fatal(err)
	}
	b.store = store
	return b
}

func hold(job string, seq uint64) session.Hold {
	return session.Hold{Run: "acme/" + job + ".0", Seq: seq}
}

func must(t testing.TB) func(session.Snapshot, error) session.Snapshot {
	return func(s session.Snapshot, err error) session.Snapshot {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func (b bundle) load(t testing.TB) session.Snapshot {
	t.Helper()
	return must(t)(b.store.Load(t.Context(), b.key))
}

// live makes the session live by run "first" at sequence 1.
func (b bundle) live(t testing.TB) session.Snapshot {
	t.Helper()
	s := must(t)(b.store.BeginCreate(t.Context(), b.load(t), hold("first", 1), "wb-one", false))
	return must(t)(b.store.Commit(t.Context(), s, hold("first", 1), session.Live{Instance: "i-1", Generation: 1, PolicyHash: "p", SetupDone: true, HasBash: true}))
}
