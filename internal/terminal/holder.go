package terminal

import (
	"context"
	"errors"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// hold makes this session the shell's holder. When the lease ends by transfer another gateway holds the shell now and
// this one stays as a guest; when it is revoked the shell ends.
func (s *session) hold(lease Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holder, s.lease = true, lease
	s.stopWait = context.AfterFunc(lease.Done(), func() { s.leaseEnded(lease) })
}

func (s *session) leaseEnded(lease Lease) {
	var why *LeaseEnded
	transferred := errors.As(context.Cause(lease.Done()), &why) && why.Transferred
	s.mu.Lock()
	if s.lease != lease {
		s.mu.Unlock()
		return
	}
	if transferred {
		s.holder, s.lease = false, nil
		s.adoptAt = s.gw.cfg.Now().Add(s.gw.cfg.AdoptEvery)
	}
	s.mu.Unlock()
	if transferred {
		lease.Forget()
		return
	}
	f := frame.NewError("concurrency_limit", "This terminal's slot was taken back by the operators.", s.page.ID, true)
	s.stop(ending{reason: frame.ReasonRevoked, message: &f, killable: true})
}

// adopt makes a guest the holder once the shell's holder has handed over or is gone. It is called from the gateway's
// tick, never twice at once.
func (s *session) adopt(ctx context.Context) {
	result := s.tryAdopt(ctx)
	if result != "" {
		s.gw.met.adoptions.WithLabelValues(result).Inc()
	}
}

func (s *session) tryAdopt(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, s.gw.cfg.CallTimeout)
	defer cancel()
	rec, rev, err := s.gw.records.Load(ctx, s.page)
	if err != nil {
		return ""
	}
	s.mu.Lock()
	same, shell := rec.Shell == s.rec.Shell, s.rec.Shell
	s.mu.Unlock()
	if !same || shell.ID == "" {
		return "" // another shell stands there now; ours ends by itself
	}
	if rec.Gateway != "" && rec.Gateway != s.gw.cfg.Name {
		if live, err := s.gw.leases.Renewed(ctx, rec.Lease); err != nil || live {
			return ""
		}
	}
	v, ok := s.sustainer()
	if !ok {
		return ""
	}
	rec.Gateway = s.gw.cfg.Name
	if rev, err = s.gw.records.Save(ctx, s.page, rec, rev); err != nil {
		return "lost"
	}
	lease, err := s.gw.leases.Take(ctx, rec.Lease, v, rec.Sandbox, true)
	if err != nil {
		// The record says us, so that no other tries; the next tick takes the lease again.
		s.gw.log.Warn().Err(err).Str("lease", rec.Lease).Msg("lease of an adopted shell not taken yet")
		s.setRecord(rec, rev, false)
		return "no_lease"
	}
	rec.Fence = lease.Fence()
	if next, err := s.gw.records.Save(ctx, s.page, rec, rev); err == nil {
		rev = next
	}
	s.setRecord(rec, rev, true)
	s.hold(lease)
	s.gw.log.Info().Str("sandbox", rec.Sandbox).Str("lease", rec.Lease).Msg("took a shell over")
	return "adopted"
}

// sustainer is somebody for whom the shell is kept.
func (s *session) sustainer() (Visitor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.people {
		if p.visitor.Role == RoleOwner {
			return p.visitor, true
		}
	}
	for _, p := range s.people {
		return p.visitor, true
	}
	return Visitor{}, false
}

// surrender gives back what an ended session held: everything when the shell is gone, only the attachment when it goes
// on without us.
func (s *session) surrender(ctx context.Context, end ending) {
	s.mu.Lock()
	lease, holder, rec, rev := s.lease, s.holder, s.rec, s.rev
	v := s.lastVisitor()
	if s.stopWait != nil {
		s.stopWait()
	}
	s.lease, s.holder = nil, false
	s.mu.Unlock()
	ctx, cancel := s.gw.afterwards(ctx)
	defer cancel()
	if end.killable && rec.Shell.ID != "" {
		s.kill(ctx, rec)
	}
	gone := end.killable || end.reason == frame.ReasonExited || end.reason == frame.ReasonGone
	switch {
	case lease == nil:
	case gone, end.reason == frame.ReasonDetached:
		s.letGo(ctx, lease)
	default:
		lease.Forget() // handed over: the next holder transfers it, or it expires
	}
	if holder && rec.Shell.ID != "" {
		next := Record{Sandbox: rec.Sandbox}
		if !gone {
			next = rec
			next.Gateway = ""
		}
		if err := s.replace(ctx, rec, next, rev); err != nil {
			s.gw.log.Warn().Err(err).Str("page", s.page.ID).Msg("record of an ended shell not updated; who comes next finds it gone")
		}
	}
	if rec.Shell.ID != "" {
		s.tell(v, "close", rec.Sandbox, string(end.reason))
	}
}

// tell writes the audit beside the session's own course: nobody waits for it.
func (s *session) tell(v Visitor, kind, sandbox, outcome string) {
	s.gw.work.Go(func() {
		ctx, cancel := s.gw.afterwards(s.gw.ctx)
		defer cancel()
		s.gw.journal.Terminal(ctx, kind, s.id, v, sandbox, outcome)
	})
}

// replace writes a new record over this session's own. Others change the link too, for what is not about the shell; then
// the record is read again, and left alone if it is another's by now.
func (s *session) replace(ctx context.Context, own, next Record, rev uint64) error {
	for range 3 {
		_, err := s.gw.records.Save(ctx, s.page, next, rev)
		if !errors.Is(err, ErrConflict) {
			return err
		}
		var now Record
		now, rev, err = s.gw.records.Load(ctx, s.page)
		if err != nil {
			return err
		}
		if now.Shell != own.Shell || now.Gateway != own.Gateway {
			return nil
		}
	}
	return ErrConflict
}

// lastVisitor names somebody for the audit. The caller holds mu.
func (s *session) lastVisitor() Visitor {
	for _, p := range s.people {
		return p.visitor
	}
	return Visitor{Page: s.page}
}

// letGo gives a lease back; what fails is left to its expiry.
func (s *session) letGo(ctx context.Context, lease Lease) {
	ctx, cancel := s.gw.afterwards(ctx)
	defer cancel()
	if err := lease.Release(ctx); err != nil {
		s.gw.log.Warn().Err(err).Str("page", s.page.ID).Msg("slot not given back; it expires")
	}
}

// kill ends the shell and all it runs.
func (s *session) kill(ctx context.Context, rec Record) {
	ctx, cancel := s.gw.afterwards(ctx)
	defer cancel()
	if err := s.gw.shells.Kill(ctx, rec.Sandbox, rec.Shell); err != nil && !errors.Is(err, ErrShellGone) {
		s.gw.log.Error().Err(err).Str("sandbox", rec.Sandbox).Msg("shell not ended; it ends by itself after the detach window")
	}
}
