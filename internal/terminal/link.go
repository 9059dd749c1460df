package terminal

import (
	"context"
	"errors"
	"fmt"

	"github.com/wakebus/wakebus/internal/plan"
	links "github.com/wakebus/wakebus/internal/session"
)

// linkRecords keeps a page's record in its session link.
type linkRecords struct{ store *links.Store }

var _ Records = linkRecords{}

func keyOfPage(p Page) links.Key {
	return links.Key{Kind: plan.KindTerminal, Tenant: p.Tenant, Drive: p.Drive, ID: p.ID}
}

func (r linkRecords) Load(ctx context.Context, page Page) (Record, uint64, error) {
	snap, err := r.store.Load(ctx, keyOfPage(page))
	if err != nil {
		return Record{}, 0, fmt.Errorf("read link: %w", err)
	}
	if snap.Revision == 0 {
		return Record{}, 0, ErrNoRecord
	}
	rec := Record{Sandbox: snap.Link.Sandbox}
	if p := snap.Link.PTY; p != nil && snap.State() == plan.LinkLive {
		rec.Gateway, rec.Lease, rec.Fence = p.Gateway, p.Lease, p.Fence
		rec.Shell = Shell{ID: p.Session, Created: p.Created}
	}
	return rec, snap.Revision, nil
}

// Save changes the link only if it is still at rev, and still live: a session that is being torn down takes no shell.
func (r linkRecords) Save(ctx context.Context, page Page, rec Record, rev uint64) (uint64, error) {
	snap, err := r.store.Load(ctx, keyOfPage(page))
	if err != nil {
		return 0, fmt.Errorf("read link: %w", err)
	}
	if snap.Revision != rev {
		return 0, ErrConflict
	}
	if rec.Lease == "" {
		if snap.Link.PTY != nil {
			snap, err = r.store.ClearPTY(ctx, snap, snap.Link.PTY.Lease, snap.Link.PTY.Session)
		}
	} else {
		next := links.PTYRecord{Gateway: rec.Gateway, Lease: rec.Lease, Fence: rec.Fence, Session: rec.Shell.ID, Created: rec.Shell.Created}
		if old := snap.Link.PTY; old != nil && old.Session == next.Session {
			next.OpenedAt = old.OpenedAt
		}
		snap, err = r.store.SetPTY(ctx, snap, next)
	}
	var forbidden *links.Forbidden
	switch {
	case errors.Is(err, links.ErrConflict), errors.As(err, &forbidden):
		return 0, ErrConflict
	case err != nil:
		return 0, fmt.Errorf("write link: %w", err)
	}
	return snap.Revision, nil
}
