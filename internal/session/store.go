package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// Config configures a Store.
type Config struct {
	// TombstoneAge is how long an ended session is remembered. Defaults to 30 days.
	TombstoneAge time.Duration
	// TouchEvery is the least time between two stored touches of a session. Defaults to 1 minute.
	TouchEvery time.Duration
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.TombstoneAge == 0 {
		c.TombstoneAge = 30 * 24 * time.Hour
	}
	if c.TouchEvery == 0 {
		c.TouchEvery = time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.TombstoneAge < 0 {
		errs = append(errs, fmt.Errorf("tombstone age %s is below zero", c.TombstoneAge))
	}
	if c.TouchEvery < 0 {
		errs = append(errs, fmt.Errorf("touch interval %s is below zero", c.TouchEvery))
	}
	return errors.Join(errs...)
}

// Store moves links through their states. It keeps nothing itself and may be used concurrently. Each method makes at
// most one read or one write and blocks for it. Of two writers with the same snapshot one gets ErrConflict.
type Store struct {
	links Links
	cfg   Config
}

// New makes a Store over links.
func New(links Links, cfg Config) (*Store, error) {
	if links == nil {
		return nil, errors.New("session store: no links given")
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("session store: %w", err)
	}
	return &Store{links: links, cfg: cfg.withDefaults()}, nil
}

// Hold is a run that holds a link, or wants to.
type Hold struct {
	// Run is "tenant/job.run".
	Run string
	// Seq is the run's queue sequence, kept through parking; it orders requests and ends.
	Seq uint64
}

// Snapshot is a link as it was read or written. It is a value: a change returns a new one.
type Snapshot struct {
	Key  Key
	Link Link
	// Revision is 0 when nothing is stored.
	Revision uint64
}

// State is the link's state; none when nothing is stored or the tombstone has run out.
func (s Snapshot) State() plan.LinkState {
	if s.Link.State == "" {
		return plan.LinkNone
	}
	return s.Link.State
}

// Idle is how long the session has been inactive by now; 0 when that is not known.
func (s Snapshot) Idle(now time.Time) time.Duration {
	if s.Link.LastActive.IsZero() {
		return 0
	}
	return max(now.Sub(s.Link.LastActive), 0)
}

// Facts is what the link says to plan.Decide; the caller adds intent, authorisation, presence and its own sequence.
func (s Snapshot) Facts(now time.Time) plan.Facts {
	return plan.Facts{Kind: s.Key.Kind, Link: s.State(), Idle: s.Idle(now), Presence: plan.PresenceUnknown,
		EndedSeq: s.Link.EndedSeq, RevivedSeq: s.Link.RevivedSeq}
}

// HeldBy reports whether run holds the link.
func (s Snapshot) HeldBy(run string) bool { return held(s.State()) && s.Link.Holder == run }

// Busy returns a *Busy when another run than this holds the link, else nil.
func (s Snapshot) Busy(run string) error {
	if held(s.State()) && s.Link.Holder != run {
		return &Busy{State: s.State(), Holder: s.Link.Holder}
	}
	return nil
}

func held(s plan.LinkState) bool { return s == plan.LinkCreating || s == plan.LinkTearingDown }

// Load reads a session's link. A session without one is no error: its snapshot has the state none.
func (s *Store) Load(ctx context.Context, k Key) (Snapshot, error) {
	if err := k.Validate(); err != nil {
		return Snapshot{}, err
	}
	entry, err := s.links.Get(ctx, k.String())
	if errors.Is(err, ErrNotFound) {
		return Snapshot{Key: k}, nil
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("read session link %s: %w", k, err)
	}
	link, err := ParseLink(entry.Value)
	if err != nil {
		return Snapshot{}, fmt.Errorf("session %s: %w", k, err)
	}
	if link.Key() != k {
		return Snapshot{}, fmt.Errorf("session %s: the link belongs to %s", k, link.Key())
	}
	snap := Snapshot{Key: k, Link: link, Revision: entry.Revision}
	if s.forgotten(link) {
		snap.Link = Link{}
	}
	return snap, nil
}

func (s *Store) forgotten(l Link) bool {
	return l.State == plan.LinkEnded && s.cfg.Now().Sub(l.EndedAt) >= s.cfg.TombstoneAge
}

// save writes next over snap, or creates it.
func (s *Store) save(ctx context.Context, change string, snap Snapshot, next Link) (Snapshot, error) {
	next.V, next.Kind, next.Tenant, next.Drive, next.ID = linkVersion, snap.Key.Kind, snap.Key.Tenant, snap.Key.Drive, snap.Key.ID
	value, err := json.Marshal(next)
	if err != nil {
		return snap, fmt.Errorf("%s session link %s: %w", change, snap.Key, err)
	}
	if len(value) > MaxLink {
		return snap, fmt.Errorf("%s session link %s: it would be larger than %d bytes", change, snap.Key, MaxLink)
	}
	var revision uint64
	if snap.Revision == 0 {
		revision, err = s.links.Create(ctx, snap.Key.String(), value)
	} else {
		revision, err = s.links.Update(ctx, snap.Key.String(), value, snap.Revision)
	}
	if err != nil {
		return snap, fmt.Errorf("%s session link %s: %w", change, snap.Key, err)
	}
	return Snapshot{Key: snap.Key, Link: next, Revision: revision}, nil
}
