package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Record is one live lease as Redis knows it; times are of the server's clock.
type Record struct {
	ID      string   `json:"id"`
	Kind    Kind     `json:"kind"`
	Tenant  string   `json:"tenant"`
	User    string   `json:"user"`
	Job     string   `json:"job"`
	Sandbox string   `json:"sandbox"`
	Owner   string   `json:"owner"`
	Fence   int64    `json:"fence"`
	Scopes  []string `json:"scopes"`
	// Since is the id's first grant, Expires its expiry if not renewed, and
	// Until the end of its longest hold.
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires"`
	Until   time.Time `json:"until"`
	// Why and By are set once an operator has marked it.
	Why string `json:"why,omitempty"`
	By  string `json:"by,omitempty"`
}

// Filter selects records; an empty field matches all.
type Filter struct {
	ID, Tenant, User, Sandbox string
	Kind                      Kind
	// Max bounds the records returned. Defaults to 1000.
	Max int
}

func (f Filter) matches(r Record) bool {
	return (f.ID == "" || f.ID == r.ID) && (f.Tenant == "" || f.Tenant == r.Tenant) && (f.User == "" || f.User == r.User) &&
		(f.Sandbox == "" || f.Sandbox == r.Sandbox) && (f.Kind == "" || f.Kind == r.Kind)
}

// ErrPartial says that List stopped at Filter.Max or at its own bound: what it
// returned is true, and not all.
var ErrPartial = errors.New("lease list is not complete")

// scanMax bounds the keys one List looks at.
const scanMax = 200_000

// List reads the live leases, oldest first. It walks the keys beside live
// traffic: a lease that comes or goes meanwhile may be missed or shown.
// Errors: ErrPartial with what was found; an ErrUnavailable with none. It
// blocks for one bounded call per 500 keys.
func (m *Manager) List(ctx context.Context, f Filter) ([]Record, error) {
	or(&f.Max, 1000)
	node, err := m.node(ctx)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	head, cursor, seen := m.keys.record(""), uint64(0), 0
	pattern := globEscape(head) + "*"
	if f.ID != "" {
		pattern = globEscape(m.keys.record(f.ID))
	}
	found := map[string]Record{} // SCAN may show a key twice
	var partial bool
	for {
		var ids []string
		err := m.ask(ctx, opList, func(ctx context.Context) error {
			var err error
			ids, cursor, err = node.Scan(ctx, cursor, pattern, 500).Result()
			return err
		})
		if err == nil {
			_, err = m.readRecords(ctx, ids, head, f, found)
		}
		if err != nil {
			return nil, fmt.Errorf("list leases: %w", err)
		}
		seen += len(ids)
		partial = len(found) > f.Max || seen > scanMax
		if cursor == 0 || partial {
			break
		}
	}
	records := make([]Record, 0, len(found))
	for _, r := range found {
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b Record) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	if partial {
		return records[:min(len(records), f.Max)], ErrPartial
	}
	return records, nil
}

// readRecords adds the live ones among ids, and returns the server's time. What is live is what the sets say.
func (m *Manager) readRecords(ctx context.Context, names []string, head string, f Filter, found map[string]Record) (time.Time, error) {
	if len(names) == 0 {
		return time.Time{}, nil
	}
	var values *redis.SliceCmd
	var clock *redis.TimeCmd
	err := m.ask(ctx, opList, func(ctx context.Context) error {
		p := m.calls.Pipeline()
		clock, values = p.Time(ctx), p.MGet(ctx, names...)
		_, err := p.Exec(ctx)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	var records []Record
	for i, v := range values.Val() {
		stored, _ := v.(string) // nil for one that went meanwhile
		if r := readRecord(strings.TrimPrefix(names[i], head), stored); len(r.Scopes) > 0 && f.matches(r) {
			records = append(records, r)
		}
	}
	return clock.Val(), m.readExpiries(ctx, records, clock.Val(), found)
}

// about is what only the request knows: one opaque field to the scripts.
func about(r Request, scopes []string) string {
	parts := append([]string{escape(string(r.Kind)), escape(r.Tenant), escape(r.User), escape(r.Job), escape(r.Sandbox)}, scopes...)
	return strings.Join(parts, " ")
}

// aboutAt is where it begins among the record's fields, aboutScopes where the
// scopes begin in it; see read_record of the scripts.
const aboutAt, aboutScopes = 9, 5

// readRecord reads a held record; any other, and what is not ours, names no
// scopes.
func readRecord(id, stored string) Record {
	v := strings.Split(stored, " ")
	if len(v) <= aboutAt+aboutScopes || v[0] != "A" {
		return Record{ID: id}
	}
	a := v[aboutAt:]
	r := Record{
		ID: id, Kind: Kind(unescape(a[0])), Tenant: unescape(a[1]), User: unescape(a[2]), Job: unescape(a[3]), Sandbox: unescape(a[4]),
		Owner: v[3], Fence: number(v[1]), Scopes: a[aboutScopes:], Since: time.UnixMilli(number(v[4])), Until: time.UnixMilli(number(v[5])),
	}
	if v[8] != noMark {
		lost := revokedBy(id, v[8])
		r.Why, r.By = lost.Why, lost.By
	}
	return r
}

func (m *Manager) readExpiries(ctx context.Context, records []Record, now time.Time, found map[string]Record) error {
	if len(records) == 0 {
		return nil
	}
	var scores []*redis.FloatCmd
	err := m.ask(ctx, opList, func(ctx context.Context) error {
		p := m.calls.Pipeline()
		scores = nil
		for _, r := range records {
			scores = append(scores, p.ZScore(ctx, m.keys.scope(r.Scopes[0]), r.ID))
		}
		_, err := p.Exec(ctx)
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, r := range records {
		r.Expires = time.UnixMilli(int64(scores[i].Val()))
		if scores[i].Err() == nil && r.Expires.After(now) {
			found[r.ID] = r
		}
	}
	return nil
}

// Alive is how long the lease of that id still holds without another renewal, by the server's clock; zero when there is
// none. A holder renews every third of Config.TTL, so one that has half of it left has missed a renewal. Blocks for two
// bounded calls. Errors: an ErrUnavailable.
func (m *Manager) Alive(ctx context.Context, id string) (time.Duration, error) {
	if !tokenSafe(id, 300) {
		return 0, fmt.Errorf("ask for lease: id %q is not valid", id)
	}
	found := map[string]Record{}
	now, err := m.readRecords(ctx, []string{m.keys.record(id)}, m.keys.record(""), Filter{ID: id}, found)
	if err != nil {
		return 0, fmt.Errorf("ask for lease %s: %w", id, err)
	}
	if r, ok := found[id]; ok {
		return r.Expires.Sub(now), nil
	}
	return 0, nil
}

// InUse counts the live leases of a scope, by the server's clock.
func (m *Manager) InUse(ctx context.Context, s Scope) (int, error) {
	var n int64
	err := m.ask(ctx, opList, func(ctx context.Context) error {
		now, err := m.calls.Time(ctx).Result()
		if err != nil {
			return err
		}
		n, err = m.calls.ZCount(ctx, m.keys.scope(s.key()), fmt.Sprintf("(%d", now.UnixMilli()), "+inf").Result()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count scope %s: %w", s.key(), err)
	}
	return int(n), nil
}

func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(s)
}
