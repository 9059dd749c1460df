package terminal

import (
	"context"
	"time"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// drain hands every shell over before anybody is sent away, so that who comes back elsewhere finds it free; then the
// viewers are closed with 1012, spread over the window, so that they do not all come at once.
func (g *Gateway) drain() {
	g.mu.Lock()
	g.draining = true
	g.mu.Unlock()
	g.stopIntake()
	sessions := g.all()
	for _, s := range sessions {
		g.checks.Go(func() error { s.handOver(g.ctx); return nil })
	}
	_ = g.checks.Wait() // handing over never fails: what is not handed over is found dead
	var viewers []*viewer
	for _, s := range sessions {
		s.mu.Lock()
		for v := range s.viewers {
			viewers = append(viewers, v)
		}
		s.mu.Unlock()
	}
	step := g.cfg.DrainWindow / time.Duration(max(len(viewers), 1))
	for i, v := range viewers {
		if i > 0 {
			<-time.After(step)
		}
		v.sess.mu.Lock()
		v.closeLocked(frame.ReasonRestarting, time.Duration(g.cfg.Jitter()*float64(time.Second)))
		v.sess.mu.Unlock()
	}
	for _, s := range sessions {
		s.stop(ending{reason: frame.ReasonRestarting})
		<-s.done
	}
	// Each socket's end is bounded by its own time-outs.
	g.edges.Wait()
}

// handOver gives up the holder's part and keeps the attachment for the viewers who are still here.
func (s *session) handOver(ctx context.Context) {
	s.mu.Lock()
	lease, holder, rec, rev := s.lease, s.holder, s.rec, s.rev
	if s.stopWait != nil {
		s.stopWait()
	}
	s.lease, s.holder, s.adoptAt = nil, false, time.Time{}
	s.mu.Unlock()
	if lease != nil {
		lease.Forget()
	}
	if !holder || rec.Shell.ID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.gw.cfg.CallTimeout)
	defer cancel()
	next := rec
	next.Gateway = ""
	if err := s.replace(ctx, rec, next, rev); err != nil {
		s.gw.log.Warn().Err(err).Str("page", s.page.ID).Msg("shell not handed over; the next gateway finds its lease expired")
	}
}
