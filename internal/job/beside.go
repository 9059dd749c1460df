package job

import (
	"context"
	"fmt"
	"sync"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/session"
)

// beside begins a read whose answer is needed later, so that its round trip goes on beside others. The returned function
// waits for it and may be called again. The read must be bounded; the worker's end waits for it.
func beside[T any](w *Worker, read func() (T, error)) func() (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	w.group.Go(func() {
		var a answer
		defer func() {
			if p := recover(); p != nil {
				a.err = fmt.Errorf("panic: %v", p)
			}
			done <- a
		}()
		a.value, a.err = read()
	})
	return sync.OnceValues(func() (T, error) {
		a := <-done
		return a.value, a.err
	})
}

// readings are what an exec reads while it takes its lease.
type readings struct {
	mark func() (*bus.CancelMark, error)  // nil where it was not begun
	link func() (session.Snapshot, error) // nil before the actor is known
}

// readMark begins to look for a cancel's mark that was made before this worker began to listen for the run; later ones
// reach it by its stops.
func (r *run) readMark(ctx context.Context) {
	r.ahead.mark = beside(r.w, func() (*bus.CancelMark, error) { return r.mark(ctx) })
}

// readLink begins to read the session's link. Whatever is decided by it is written by its revision.
func (r *run) readLink(ctx context.Context) {
	id := r.req.sessionKey(r.actor)
	r.ahead.link = beside(r.w, func() (session.Snapshot, error) { return r.w.links.Load(ctx, id) })
}

// firstLink is the link as it was read beside the lease, once; later looks read it anew.
func (r *run) firstLink(ctx context.Context) (session.Snapshot, error) {
	if read := r.ahead.link; read != nil {
		r.ahead.link = nil
		return read()
	}
	return r.w.links.Load(ctx, r.id)
}

// unlessMarked waits for the cancel's mark, if it is being read. It is e, unless the run was canceled before it was taken:
// that outranks whatever else forbids its start.
func (r *run) unlessMarked(e *ending) *ending {
	if r.ahead.mark == nil {
		return e
	}
	mark, err := r.ahead.mark()
	if err != nil {
		return r.journal("read cancel mark", err)
	}
	if mark != nil {
		return canceled(mark.By, mark.Why)
	}
	return e
}
