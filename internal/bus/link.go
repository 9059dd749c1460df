package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wakebus/wakebus/internal/session"
)

// The layout of a key-value bucket in its stream (NATS ADR-8).
const (
	linksSubject  = "$KV." + BucketLinks + "."
	headerKVOp    = "KV-Operation"
	headerRollup  = "Nats-Rollup"
	headerTTL     = "Nats-TTL"
	kvPurge       = "PURGE"
	rollupSubject = "sub"
	maxListed     = 1_000_000 // keys of one listing; more is an error, never a shorter list
	batchMessages = 256
	batchBytes    = 1 << 20
)

// Links stores session links in the bucket SANDBOX_LINKS. Reads are answered by the stream's leader, so that whoever
// wrote reads what it wrote. All methods block until the broker answers, at most Config.PublishTimeout each, and may be
// called concurrently.
type Links struct{ bus *Bus }

var (
	_ session.Links  = (*Links)(nil)
	_ session.Lister = (*Links)(nil)
)

// Links is the bucket of links.
func (b *Bus) Links() *Links { return &Links{bus: b} }

var linkKey = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$`)

func checkLinkKey(key string) error {
	if !linkKey.MatchString(key) {
		return fmt.Errorf("%w: link key %q", ErrInvalid, clip(key))
	}
	return nil
}

// Get returns the entry, or session.ErrNotFound.
func (l *Links) Get(ctx context.Context, key string) (session.Entry, error) {
	if err := checkLinkKey(key); err != nil {
		return session.Entry{}, fmt.Errorf("read link: %w", err)
	}
	entry, _, err := l.get(ctx, key)
	if err != nil {
		return session.Entry{}, fmt.Errorf("read link %s: %w", key, err)
	}
	return entry, nil
}

// get also returns the revision of a deleted entry's marker.
func (l *Links) get(ctx context.Context, key string) (session.Entry, uint64, error) {
	m, err := l.bus.lastOn(ctx, linksStream, linksSubject+key)
	switch {
	case errors.Is(err, errNoMessage):
		return session.Entry{}, 0, session.ErrNotFound
	case err != nil:
		return session.Entry{}, 0, err
	case m.Header.Get(headerKVOp) != "":
		return session.Entry{}, m.Seq, session.ErrNotFound
	}
	return session.Entry{Value: m.Data, Revision: m.Seq}, 0, nil
}

// Create stores a value under a key that has none and returns its revision, or session.ErrConflict.
func (l *Links) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	rev, err := l.put(ctx, key, value, 0)
	if errors.Is(err, session.ErrConflict) {
		// What stands there may be the marker of a deletion.
		if _, marker, getErr := l.get(ctx, key); errors.Is(getErr, session.ErrNotFound) && marker > 0 {
			rev, err = l.put(ctx, key, value, marker)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("create link %s: %w", clip(key), err)
	}
	return rev, nil
}

// Update replaces the value of that revision and returns the new one, or session.ErrConflict.
func (l *Links) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if revision == 0 {
		return 0, fmt.Errorf("update link %s: %w: revision 0", clip(key), ErrInvalid)
	}
	rev, err := l.put(ctx, key, value, revision)
	if err != nil {
		return 0, fmt.Errorf("update link %s: %w", clip(key), err)
	}
	return rev, nil
}

// put publishes once. After a lost answer it looks whether the value is there: links name the run that wrote them, so
// that equal bytes are our own.
func (l *Links) put(ctx context.Context, key string, value []byte, expect uint64) (uint64, error) {
	if err := checkLinkKey(key); err != nil {
		return 0, err
	}
	msg := nats.NewMsg(linksSubject + key)
	msg.Data = value
	rev, err := l.bus.publishAt(ctx, msg, expect)
	switch {
	case err == nil:
		return rev, nil
	case isConflict(err):
		return 0, session.ErrConflict
	case isAmbiguous(err):
		l.bus.met.ambiguous.Inc()
		entry, _, getErr := l.get(ctx, key)
		if getErr == nil && entry.Revision > expect && bytes.Equal(entry.Value, value) {
			return entry.Revision, nil
		}
	}
	return 0, classify(err)
}

// Delete removes the value of that revision, or returns session.ErrConflict. The bucket remembers the deletion for
// TombstoneAge.
func (l *Links) Delete(ctx context.Context, key string, revision uint64) error {
	if err := checkLinkKey(key); err != nil {
		return fmt.Errorf("delete link: %w", err)
	}
	if revision == 0 {
		return fmt.Errorf("delete link %s: %w: revision 0", key, ErrInvalid)
	}
	msg := nats.NewMsg(linksSubject + key)
	msg.Header.Set(headerKVOp, kvPurge)
	msg.Header.Set(headerRollup, rollupSubject)
	msg.Header.Set(headerTTL, strconv.Itoa(int(TombstoneAge/time.Second))+"s")
	_, err := l.bus.publishAt(ctx, msg, revision)
	switch {
	case err == nil:
		return nil
	case isConflict(err):
		return fmt.Errorf("delete link %s: %w", key, session.ErrConflict)
	case isAmbiguous(err):
		l.bus.met.ambiguous.Inc()
		if _, marker, getErr := l.get(ctx, key); errors.Is(getErr, session.ErrNotFound) && marker > revision {
			return nil
		}
	}
	return fmt.Errorf("delete link %s: %w", key, classify(err))
}

// List returns the keys that begin with prefix, in no order. A listing that could not be finished is an error, never a
// shorter list.
func (l *Links) List(ctx context.Context, prefix string) ([]string, error) {
	filter := linksSubject + ">"
	if dot := strings.LastIndexByte(prefix, '.'); dot >= 0 {
		if err := checkLinkKey(prefix[:dot]); err != nil {
			return nil, fmt.Errorf("list links: %w", err)
		}
		filter = linksSubject + prefix[:dot+1] + ">"
	}
	found := map[string]bool{}
	query := batchQuery{Subject: filter, Seq: 1, Batch: batchMessages, MaxBytes: batchBytes}
	err := l.bus.walk(ctx, linksStream, query, func(m *storedMsg) error {
		key := strings.TrimPrefix(m.Subject, linksSubject)
		if m.Header.Get(headerKVOp) != "" {
			delete(found, key) // deleted while we walked
			return nil
		}
		if strings.HasPrefix(key, prefix) {
			found[key] = true
		}
		if len(found) > maxListed {
			return fmt.Errorf("%w: more than %d links", ErrTooLarge, maxListed)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list links %s: %w", clip(prefix), err)
	}
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	return keys, nil
}

// walk reads every message that q asks for, in the stream's order, without a consumer. What is stored while it walks
// is seen too.
func (b *Bus) walk(ctx context.Context, stream string, q batchQuery, see func(*storedMsg) error) error {
	for {
		msgs, more, err := b.batch(ctx, stream, q)
		if err != nil {
			return err
		}
		for _, m := range msgs {
			if err := see(m); err != nil {
				return err
			}
			q.Seq = m.Seq + 1
		}
		if !more || len(msgs) == 0 {
			return nil
		}
	}
}
