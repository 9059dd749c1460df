package session

import "context"

// Entry is a stored value and its revision. Revisions only grow; 0 never occurs.
type Entry struct {
	Value    []byte
	Revision uint64
}

// Links is where links are stored: a key-value bucket that compares revisions. Its methods block until the store
// answers or the context ends, and may be called concurrently.
type Links interface {
	// Get returns the entry, or ErrNotFound.
	Get(ctx context.Context, key string) (Entry, error)
	// Create stores a value under a key that has none and returns its revision, or ErrConflict.
	Create(ctx context.Context, key string, value []byte) (uint64, error)
	// Update replaces the value of that revision and returns the new one, or ErrConflict.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Delete removes the value of that revision, or returns ErrConflict.
	Delete(ctx context.Context, key string, revision uint64) error
}

// Lister lists the keys of the store.
type Lister interface {
	// List returns the keys that begin with prefix, in no order. A listing that it could not finish is an error, never
	// a shorter list.
	List(ctx context.Context, prefix string) ([]string, error)
}
