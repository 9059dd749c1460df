package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wakebus/wakebus/internal/session"
)

// maxSightings bounds what is remembered; what is beyond it is seen again later.
const maxSightings = 2000

// sightings are when each unused Sprite, by name and instance, was first found so.
type sightings struct {
	seen     map[string]time.Time
	revision uint64
}

type storedSightings struct {
	Seen map[string]time.Time `json:"seen"`
}

// sweepKey is where a deployment's sightings are kept. It is no session's key, which has four parts.
func sweepKey(deployment string) string { return "sweep." + deployment }

func (s *Sweeper) readSightings(ctx context.Context) (sightings, error) {
	entry, err := s.deps.Bus.Links().Get(ctx, sweepKey(s.cfg.DeploymentID))
	if errors.Is(err, session.ErrNotFound) {
		return sightings{}, nil
	}
	if err != nil {
		return sightings{}, fmt.Errorf("read earlier sightings: %w", err)
	}
	var stored storedSightings
	if err := json.Unmarshal(entry.Value, &stored); err != nil {
		s.cfg.Log.Warn().Err(err).Msg("earlier sightings cannot be read; the sweep starts over")
	}
	return sightings{seen: stored.Seen, revision: entry.Revision}, nil
}

// saveSightings keeps what was seen. Of two sweeps at once one gets a conflict, and deletes nothing.
func (s *Sweeper) saveSightings(ctx context.Context, next sightings) error {
	if len(next.seen) > maxSightings {
		for _, id := range slices.Sorted(maps.Keys(next.seen))[maxSightings:] {
			delete(next.seen, id)
		}
	}
	value, err := json.Marshal(storedSightings{Seen: next.seen})
	if err != nil {
		return fmt.Errorf("keep sightings: %w", err)
	}
	key := sweepKey(s.cfg.DeploymentID)
	if next.revision == 0 {
		_, err = s.deps.Bus.Links().Create(ctx, key, value)
	} else {
		_, err = s.deps.Bus.Links().Update(ctx, key, value, next.revision)
	}
	if errors.Is(err, session.ErrConflict) {
		return fmt.Errorf("%w: another sweep runs now", ErrSweepStopped)
	}
	if err != nil {
		return fmt.Errorf("keep sightings: %w", err)
	}
	return nil
}
