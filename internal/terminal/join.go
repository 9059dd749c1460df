package terminal

import (
	"time"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// join brings a viewer to its page's session, which is made when there is none. The error is the reason why it cannot
// be.
func (g *Gateway) join(sock socket, visitor Visitor, hello frame.Client) (*viewer, frame.CloseReason) {
	for {
		s, reason := g.session(visitor, hello)
		if s == nil {
			return nil, reason
		}
		v := &viewer{sess: s, sock: sock, kick: make(chan struct{}, 1), visitor: visitor, hello: hello, size: hello.Size}
		if reason, again := s.admit(v); !again {
			if reason != "" {
				return nil, reason
			}
			return v, ""
		}
	}
}

// session finds or makes the session of a visitor's page. A viewer that comes back to an ended one gets its rest.
func (g *Gateway) session(visitor Visitor, hello frame.Client) (*session, frame.CloseReason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return nil, frame.ReasonRestarting
	}
	if hello.Session != "" {
		for s := range g.ended {
			if s.id == hello.Session && s.page == visitor.Page {
				return s, ""
			}
		}
	}
	s := g.sessions[visitor.Page]
	if s == nil {
		s = newSession(g, visitor.Page, hello.Size)
		g.sessions[visitor.Page] = s
		g.met.sessions.Inc()
	}
	return s, ""
}

// admit adds a viewer; again is true when the session has just ended and a new one is to be made.
func (s *session) admit(v *viewer) (reason frame.CloseReason, again bool) {
	now := s.gw.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil && v.hello.Session != s.id {
		return "", true
	}
	c := s.clients[v.hello.ClientID]
	replaced := c != nil && c.viewer != nil
	if !replaced && len(s.viewers) >= s.gw.cfg.MaxViewers {
		return frame.ReasonTooMany, false
	}
	if c == nil {
		c = s.newClientLocked(v.hello.ClientID)
	}
	if replaced {
		c.viewer.closeLocked(frame.ReasonReplaced, 0)
		delete(s.viewers, c.viewer)
	}
	// What the old socket left in the queue is not settled, so this one will send it again.
	s.queue.purge(c)
	c.viewer, v.client = v, c
	v.active, v.pinged = now, now
	v.ack, v.acked = c.settled, c.settled
	s.viewers[v] = struct{}{}
	s.empty = time.Time{}
	s.joinedLocked(v, now)
	if !v.size.Valid() {
		v.size = s.size
	}
	s.resizeLocked()
	v.sendLocked(frame.NewAck(c.settled))
	s.placeLocked(v)
	if !s.started && s.end == nil {
		s.started = true
		s.gw.work.Go(s.run)
	}
	signal(s.ready)
	s.wakeLocked()
	return "", false
}

// newClientLocked begins a client's count. Beyond the bound the one that has been away for longest is forgotten.
func (s *session) newClientLocked(id string) *client {
	if len(s.clients) >= s.gw.cfg.MaxClients {
		var oldest *client
		for _, c := range s.clients {
			if c.viewer == nil && (oldest == nil || c.left.Before(oldest.left)) {
				oldest = c
			}
		}
		if oldest != nil {
			delete(s.clients, oldest.id)
		}
	}
	c := &client{id: id}
	s.clients[id] = c
	return c
}

// leave removes a viewer, whatever ended it, and may be called again; only the last one's leaving arms the reaper.
func (s *session) leave(v *viewer) {
	now := s.gw.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.left {
		return
	}
	v.left = true
	delete(s.viewers, v)
	if v.client != nil && v.client.viewer == v {
		v.client.viewer, v.client.left = nil, now
	}
	s.leftLocked(v)
	if len(s.viewers) == 0 {
		s.empty = now
	}
	s.resizeLocked()
	signal(s.ready)
	signal(s.drained)
}
