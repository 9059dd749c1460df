package terminal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// lookEvery is the pause between looks at a record that another gateway is about to fill.
const lookEvery = 250 * time.Millisecond

// errLookAgain says that the record has changed and the open starts over.
var errLookAgain = errors.New("the page's record has changed")

// acquire finds the page's live shell, which needs no new slot, or opens one. Whatever fails on the way gives the slot
// back.
func (s *session) acquire(ctx context.Context) (PTY, error) {
	ctx, cancel := context.WithTimeout(ctx, s.gw.cfg.OpenPatience)
	defer cancel()
	var refused *Refused
	look := context.Context(nil) // ends when a refused open has looked for another's shell for long enough
	for {
		if s.stopping() {
			return nil, ErrStopped
		}
		rec, rev, err := s.load(ctx)
		if err != nil {
			return nil, err
		}
		pty, err := s.follow(ctx, rec, rev)
		if pty != nil {
			return pty, nil
		}
		if err == nil && refused == nil {
			pty, err = s.open(ctx)
			if err == nil {
				return pty, nil
			}
			if errors.As(err, &refused) && refused.Reason == plan.ReasonConcurrencyLimit {
				var done context.CancelFunc
				look, done = context.WithTimeout(ctx, s.gw.cfg.LookPatience)
				defer done() // at most a few: each needs a refused open
				err = nil
			}
		}
		switch {
		case errors.Is(err, errLookAgain):
			refused = nil
		case err != nil:
			return nil, err
		case look.Err() != nil:
			return nil, refused
		}
		if !s.pause(ctx, lookEvery) {
			return nil, fmt.Errorf("open page %s: %w", s.page.ID, context.Cause(ctx))
		}
	}
}

func (s *session) load(ctx context.Context) (Record, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.gw.cfg.CallTimeout)
	defer cancel()
	rec, rev, err := s.gw.records.Load(ctx, s.page)
	if err != nil && !errors.Is(err, ErrNoRecord) {
		return Record{}, 0, fmt.Errorf("read record of page %s: %w", s.page.ID, err)
	}
	return rec, rev, nil
}

// follow attaches to the shell in the record. Neither a PTY nor an error means that there is none to follow;
// errLookAgain that it may be there in a moment.
func (s *session) follow(ctx context.Context, rec Record, rev uint64) (PTY, error) {
	switch {
	case rec.Shell.ID != "":
		s.setRecord(rec, rev, false)
		pty, err := s.attach(ctx, rec)
		if errors.Is(err, ErrShellGone) {
			return nil, s.forgetShell(ctx, rec, rev)
		}
		if err != nil {
			return nil, err
		}
		s.gw.met.opens.WithLabelValues("attached").Inc()
		s.mu.Lock()
		s.adoptAt = s.gw.cfg.Now()
		s.mu.Unlock()
		s.opened(false)
		return pty, nil
	case rec.Gateway != "" && rec.Gateway != s.gw.cfg.Name:
		// Another gateway is opening it. When that one is dead its claim is void.
		live, err := s.gw.live(ctx, rec.Lease)
		if err != nil {
			return nil, err
		}
		if live {
			return nil, errLookAgain
		}
	}
	return nil, nil
}

// forgetShell clears the record of a shell that is gone, and gives its slot back.
func (s *session) forgetShell(ctx context.Context, rec Record, rev uint64) error {
	ctx, cancel := context.WithTimeout(ctx, s.gw.cfg.CallTimeout)
	defer cancel()
	_, err := s.gw.records.Save(ctx, s.page, Record{Sandbox: rec.Sandbox}, rev)
	if errors.Is(err, ErrConflict) {
		return errLookAgain
	}
	if err != nil {
		return fmt.Errorf("clear record of page %s: %w", s.page.ID, err)
	}
	if rec.Lease != "" {
		if err := s.gw.leases.Drop(ctx, rec.Lease, rec.Fence); err != nil {
			s.gw.log.Warn().Err(err).Msg("slot of a shell that is gone not given back; it expires")
		}
	}
	s.setRecord(Record{}, 0, false)
	return errLookAgain
}

// open asks for a slot and an awake sandbox and opens the PTY there. Every failure gives the slot back.
func (s *session) open(ctx context.Context) (pty PTY, err error) {
	v, ok := s.opener()
	if !ok {
		return nil, ErrStopped
	}
	got, err := s.gw.opener.Open(ctx, OpenRequest{ID: s.gw.cfg.ID(), Visitor: v, Size: s.openSize()})
	if err != nil {
		return nil, fmt.Errorf("open page %s: %w", s.page.ID, err)
	}
	kept := false
	defer func() {
		if !kept {
			s.giveBack(ctx, got)
		}
	}()
	rec := Record{Sandbox: got.Sandbox, Gateway: s.gw.cfg.Name, Lease: got.Lease, Fence: got.Fence}
	rev, err := s.claim(ctx, rec)
	if err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, s.gw.cfg.CallTimeout)
	lease, err := s.gw.leases.Take(call, got.Lease, v, got.Sandbox, false)
	cancel()
	if err != nil {
		s.unclaim(ctx, rec, rev)
		return nil, fmt.Errorf("take lease of page %s: %w", s.page.ID, err)
	}
	rec.Fence = lease.Fence()
	pty, rev, err = s.start(ctx, v, rec, rev)
	if err != nil {
		s.letGo(ctx, lease)
		s.unclaim(ctx, rec, rev)
		return nil, err
	}
	kept = true
	s.hold(lease)
	s.gw.met.opens.WithLabelValues("opened").Inc()
	s.tell(v, "open", rec.Sandbox, "opened")
	s.opened(true)
	s.begin(pty, false)
	return pty, nil
}

// start opens the PTY and writes it into the record. A shell that cannot be recorded is ended: nobody would find it.
func (s *session) start(ctx context.Context, v Visitor, rec Record, rev uint64) (PTY, uint64, error) {
	pty, err := s.gw.shells.Open(ctx, v, rec.Sandbox, s.openSize(), s.gw.cfg.DetachWindow)
	if err != nil {
		return nil, rev, fmt.Errorf("open shell in %s: %w", rec.Sandbox, err)
	}
	rec.Shell = pty.Shell()
	call, cancel := context.WithTimeout(ctx, s.gw.cfg.CallTimeout)
	defer cancel()
	next, err := s.gw.records.Save(call, s.page, rec, rev)
	if err != nil {
		pty.Close()
		s.kill(ctx, rec)
		if errors.Is(err, ErrConflict) {
			return nil, rev, errLookAgain
		}
		return nil, rev, fmt.Errorf("record shell of page %s: %w", s.page.ID, err)
	}
	s.setRecord(rec, next, true)
	return pty, next, nil
}

// claim wins the page's record by revision; of two gateways that open for one page the other looks again.
func (s *session) claim(ctx context.Context, rec Record) (uint64, error) {
	old, rev, err := s.load(ctx)
	if err != nil {
		return 0, err
	}
	if old.Shell.ID != "" {
		return 0, errLookAgain
	}
	if old.Gateway != "" && old.Gateway != s.gw.cfg.Name {
		if live, err := s.gw.live(ctx, old.Lease); err != nil || live {
			return 0, errors.Join(err, errLookAgain)
		}
	}
	call, cancel := context.WithTimeout(ctx, s.gw.cfg.CallTimeout)
	defer cancel()
	next, err := s.gw.records.Save(call, s.page, rec, rev)
	if errors.Is(err, ErrConflict) {
		return 0, errLookAgain
	}
	if err != nil {
		return 0, fmt.Errorf("claim page %s: %w", s.page.ID, err)
	}
	s.setRecord(rec, next, false)
	return next, nil
}

// unclaim takes a claim back whose shell did not come to be.
func (s *session) unclaim(ctx context.Context, rec Record, rev uint64) {
	ctx, cancel := s.gw.afterwards(ctx)
	defer cancel()
	if _, err := s.gw.records.Save(ctx, s.page, Record{Sandbox: rec.Sandbox}, rev); err != nil && !errors.Is(err, ErrConflict) {
		s.gw.log.Warn().Err(err).Str("page", s.page.ID).Msg("claim not taken back; it is void once its lease has expired")
	}
}

// giveBack returns a slot that the worker has left for us and that we did not keep.
func (s *session) giveBack(ctx context.Context, got Opened) {
	ctx, cancel := s.gw.afterwards(ctx)
	defer cancel()
	if err := s.gw.leases.Drop(ctx, got.Lease, got.Fence); err != nil {
		s.gw.log.Warn().Err(err).Str("lease", got.Lease).Msg("slot not given back; it expires")
	}
}

// opener is who the open is for: an owner who is here.
func (s *session) opener() (Visitor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.viewers {
		if v.visitor.Role == RoleOwner {
			return v.visitor, true
		}
	}
	for v := range s.viewers {
		return v.visitor, true
	}
	return Visitor{}, false
}

// openSize is the size to open with.
func (s *session) openSize() frame.Size {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size.Valid() {
		return s.size
	}
	return frame.Size{Cols: 80, Rows: 24}
}

func (s *session) setRecord(rec Record, rev uint64, holder bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec, s.rev, s.holder = rec, rev, holder
	for v := range s.viewers {
		v.signal()
	}
}

// opened begins the recording; fresh says that the shell began just now, so that its output is whole.
func (s *session) opened(fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = fresh
	s.cast = s.gw.record(s.page, s.rec.Shell, s.size)
}

// endingOf is how a failed open ends a session.
func (s *session) endingOf(err error) ending {
	var refused *Refused
	reason, end := plan.ReasonProvisionFailed, ending{reason: frame.ReasonFailed, retry: 2 * time.Second}
	message := plan.ReasonProvisionFailed.Sentence()
	switch {
	case errors.Is(err, ErrShellGone):
		return ending{reason: frame.ReasonGone}
	case errors.Is(err, ErrStopped), s.gw.ctx.Err() != nil:
		return ending{reason: frame.ReasonRestarting, retry: time.Second}
	case errors.As(err, &refused):
		reason, message = refused.Reason, refused.Sentence()
		end = ending{reason: frame.ReasonDenied, retry: refused.RetryAfter}
	default:
		s.gw.log.Error().Err(err).Str("tenant", s.page.Tenant).Msg("open terminal failed")
	}
	s.gw.met.opens.WithLabelValues(string(reason)).Inc()
	f := frame.NewError(frame.Code(reason), message, s.page.ID, true)
	end.message = &f
	return end
}
