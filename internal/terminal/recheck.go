package terminal

import (
	"context"
	"errors"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// personKey tells people apart; one may look with one socket and type with another.
type personKey struct {
	user string
	role Role
}

// person is somebody for whom a shell is kept, there or away. The session's lock protects it.
type person struct {
	visitor Visitor
	sockets int
	asked   time.Time // when the last check began
	sure    time.Time // when one last said yes
}

func keyOf(v Visitor) personKey { return personKey{user: v.User, role: v.Role} }

// joinedLocked counts a socket of a person who was admitted just now.
func (s *session) joinedLocked(v *viewer, now time.Time) {
	k := keyOf(v.visitor)
	p := s.people[k]
	if p == nil {
		p = &person{}
		s.people[k] = p
	}
	p.visitor, p.asked, p.sure = v.visitor, now, now
	p.sockets++
	v.person = p
}

// leftLocked counts a socket less. The person stays: the shell is theirs while they are away.
func (s *session) leftLocked(v *viewer) {
	if v.person != nil {
		v.person.sockets--
		v.person = nil
	}
}

// dueLocked picks the people whose right is to be asked for again, there or away.
func (s *session) dueLocked(now time.Time) []personKey {
	var due []personKey
	for k, p := range s.people {
		if now.Sub(p.asked) >= s.gw.cfg.RecheckEvery && s.end == nil {
			p.asked = now
			due = append(due, k)
		}
	}
	return due
}

// recheck asks for one person's right. It makes no call to a sandbox unless the shell must end.
func (s *session) recheck(ctx context.Context, k personKey) {
	s.mu.Lock()
	p := s.people[k]
	if p == nil {
		s.mu.Unlock()
		return
	}
	visitor := p.visitor
	s.mu.Unlock()
	call, cancel := context.WithTimeout(ctx, s.gw.cfg.CallTimeout)
	err := s.gw.keeper.Recheck(call, visitor)
	cancel()
	if ctx.Err() != nil {
		return
	}
	now := s.gw.cfg.Now()
	s.mu.Lock()
	p = s.people[k]
	if p == nil || p.visitor.Grant != visitor.Grant {
		s.mu.Unlock() // a fresh grant came meanwhile
		return
	}
	reason, cut := s.verdictLocked(p, err, now)
	if cut {
		s.cutLocked(k, reason)
	}
	alone := len(s.people) == 0
	s.mu.Unlock()
	if cut && alone {
		// Nobody is left who may use it: it must not go on until the detach window has passed.
		s.stop(ending{reason: frame.ReasonRevoked, killable: true})
	}
}

// verdictLocked judges a check's answer. One that could not be made, or a grant that ran out while its owner was away
// and could send no fresh one, keeps the person for RecheckGrace.
func (s *session) verdictLocked(p *person, err error, now time.Time) (plan.Reason, bool) {
	var refused *Refused
	reason := plan.ReasonWorkerUnavailable
	switch {
	case err == nil:
		p.sure = now
		s.gw.met.rechecks.WithLabelValues("allowed").Inc()
		return "", false
	case errors.As(err, &refused):
		reason = refused.Reason
		if reason != plan.ReasonAuthorizationExpired || p.sockets > 0 {
			s.gw.met.rechecks.WithLabelValues("refused").Inc()
			return reason, true
		}
	}
	s.gw.met.rechecks.WithLabelValues("unknown").Inc()
	return reason, now.Sub(p.sure) >= s.gw.cfg.RecheckGrace
}

// cutLocked ends all sockets of a person and forgets them.
func (s *session) cutLocked(k personKey, reason plan.Reason) {
	for v := range s.viewers {
		if keyOf(v.visitor) == k {
			v.sendLocked(frame.NewError(frame.Code(reason), reason.Sentence(), s.page.ID, true))
			v.closeLocked(frame.ReasonRevoked, 0)
		}
	}
	delete(s.people, k)
	s.gw.log.Info().Str("user", k.user).Str("reason", string(reason)).Msg("terminal revoked")
}

// maxGrants bounds the grants of one viewer within RecheckEvery: each may cost a question to the web app.
const maxGrants = 4

// granted takes a fresh grant that a client sent before its old one ends. The check goes on beside the viewer's reader:
// keys do not wait for it. One at a time is checked.
func (s *session) granted(ctx context.Context, v *viewer, grant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.gw.cfg.Now()
	if now.Sub(v.grantsSince) >= s.gw.cfg.RecheckEvery {
		v.grantsSince, v.grants = now, 0
	}
	if v.renewing || v.grants >= maxGrants || v.left {
		v.sendLocked(frame.NewError(frame.CodeGrantRefused, "Too many grants came at once; the old one still counts until it ends.", s.page.ID, false))
		return
	}
	v.grants++
	v.renewing = true
	visitor := v.visitor
	s.gw.work.Go(func() { s.renew(ctx, v, visitor, grant) })
}

// renew lets a grant that holds take the place of the visitor's own.
func (s *session) renew(ctx context.Context, v *viewer, visitor Visitor, grant string) {
	call, cancel := context.WithTimeout(ctx, s.gw.cfg.CallTimeout)
	defer cancel()
	next, err := s.gw.keeper.Renew(call, visitor, grant)
	s.mu.Lock()
	defer s.mu.Unlock()
	v.renewing = false
	if err != nil || keyOf(next) != keyOf(visitor) || next.Page != visitor.Page {
		v.sendLocked(frame.NewError(frame.CodeGrantRefused, "The new grant was refused; the old one still counts until it ends.", s.page.ID, false))
		return
	}
	s.gw.met.rechecks.WithLabelValues("renewed").Inc()
	v.visitor = next
	if p := s.people[keyOf(next)]; p != nil {
		p.visitor, p.sure, p.asked = next, s.gw.cfg.Now(), s.gw.cfg.Now()
	}
}
