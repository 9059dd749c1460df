package session

import (
	"context"
	"fmt"
)

func wrap(step string, k Key, err error) error {
	return fmt.Errorf("%s session link %s: %w", step, k, err)
}

// Walk calls visit with the links whose stored keys begin with prefix (see Prefix; empty = all), one after another,
// until it returns an error, which Walk returns. Keys that are no sessions and links that vanished meanwhile are
// skipped; a link that cannot be read goes to visit with its error, so that one bad entry hides no others.
func (s *Store) Walk(ctx context.Context, lister Lister, prefix string, visit func(Snapshot, error) error) error {
	keys, err := lister.List(ctx, prefix)
	if err != nil {
		return fmt.Errorf("list session links: %w", err)
	}
	for _, stored := range keys {
		key, err := ParseKey(stored)
		if err != nil {
			continue
		}
		snap, err := s.Load(ctx, key)
		if ctx.Err() != nil {
			return fmt.Errorf("list session links: %w", context.Cause(ctx))
		}
		if err == nil && snap.Revision == 0 {
			continue
		}
		snap.Key = key
		if err := visit(snap, err); err != nil {
			return err
		}
	}
	return nil
}
