package terminal

import (
	"context"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// maxPending bounds the control frames that wait for a viewer.
const maxPending = 32

// socket is the viewer's side of a WebSocket.
type socket interface {
	// Write sends one message, a text frame or a binary one.
	Write(ctx context.Context, text bool, p []byte) error
	// Ping returns once the peer has answered.
	Ping(ctx context.Context) error
	// Close ends it with a code and a reason.
	Close(code int, reason string)
}

// viewer is one socket that looks at a session. Its session's lock protects all fields but sock and kick.
type viewer struct {
	sess    *session
	sock    socket
	kick    chan struct{} // one pending signal: something is to be sent
	visitor Visitor
	hello   frame.Client
	client  *client
	person  *person
	size    frame.Size
	active  time.Time // when it last typed or changed its size
	pinged  time.Time // owned by the gateway's tick

	placed  bool   // cursor is set
	preface []byte // goes before the byte at cursor
	cursor  int64  // number of the next byte to send
	flow    flow   // of a flow-controlled client
	marked  int64  // marks up to here have been said
	bracket bool   // replaying was said and live was not
	liveAt  int64  // where the replay that it is in ends
	urgent  bool   // a key was written since its last output: the echo does not wait
	stalled bool   // it held the shell up once and has not caught up since

	renewing    bool // a fresh grant is being checked
	grants      int  // taken since grantsSince
	grantsSince time.Time

	pending []frame.Server
	said    frame.Phase // the last phase of an opening that was sent
	ack     int64
	acked   int64
	closing *ending
	left    bool
}

func (v *viewer) signal() { signal(v.kick) }

// sendLocked queues a control frame; who has too many of them is closed.
func (v *viewer) sendLocked(f frame.Server) {
	if len(v.pending) >= maxPending {
		v.closeLocked(frame.ReasonTooMany, 0)
		return
	}
	v.pending = append(v.pending, f)
	v.signal()
}

// closeLocked ends this viewer only. The first reason stands.
func (v *viewer) closeLocked(reason frame.CloseReason, retry time.Duration) {
	if v.closing == nil {
		v.closing = &ending{reason: reason, retry: retry}
	}
	v.signal()
}

// parcel is what goes over the socket in one turn of the writer.
type parcel struct {
	control []frame.Server
	data    []byte
	end     *ending
	wait    bool // more output is there but waits to be coalesced
}

// write sends everything there is for the viewer until it is closed, the socket breaks or ctx ends.
func (v *viewer) write(ctx context.Context) *ending {
	cfg := v.sess.gw.cfg
	var buf []byte // taken when there is output: an idle viewer holds none
	var flushed time.Time
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	for {
		due := cfg.Coalesce - time.Since(flushed)
		p := v.next(&buf, due <= 0)
		for _, f := range p.control {
			if err := v.put(ctx, true, f.Encode()); err != nil {
				return v.broken(err)
			}
		}
		if len(p.data) > 0 {
			if err := v.put(ctx, false, p.data); err != nil {
				return v.broken(err)
			}
			flushed = time.Now()
			v.progressed()
			continue
		}
		if p.end != nil {
			return p.end
		}
		buf = nil
		var tick <-chan time.Time
		if p.wait {
			timer.Reset(max(due, time.Millisecond))
			tick = timer.C
		}
		select {
		case <-v.kick:
		case <-tick:
		case <-ctx.Done():
			return &ending{reason: frame.ReasonDetached}
		}
	}
}

// ping proves that the socket is open at both ends; a half-open one is closed, which its reader finds.
func (v *viewer) ping(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, v.sess.gw.cfg.PingEvery/2)
	defer cancel()
	if err := v.sock.Ping(ctx); err != nil && ctx.Err() != nil {
		v.sess.leave(v) // before the close, which waits for a peer that may be gone
		v.sock.Close(frame.StatusSlow, string(frame.ReasonSlow))
	}
}

func (v *viewer) put(ctx context.Context, text bool, p []byte) error {
	ctx, cancel := context.WithTimeout(ctx, v.sess.gw.cfg.WriteTimeout)
	defer cancel()
	if err := v.sock.Write(ctx, text, p); err != nil {
		return fmt.Errorf("write to viewer: %w", err)
	}
	return nil
}

// broken says why a write failed: too slow, or the socket is gone.
func (v *viewer) broken(err error) *ending {
	if isTimeout(err) {
		return &ending{reason: frame.ReasonSlow}
	}
	return &ending{reason: frame.ReasonDetached}
}

// progressed tells the shell's reader that this viewer has read on.
func (v *viewer) progressed() {
	v.sess.mu.Lock()
	if v.cursor == v.sess.ring.End() { // by reading: a jump to near the end is no catching up
		v.stalled = false
	}
	v.sess.mu.Unlock()
	signal(v.sess.drained)
}

// next gathers what is to be sent now. Output comes in order with the marks in it; due says that output has been held
// back for long enough.
func (v *viewer) next(buf *[]byte, due bool) parcel {
	s := v.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	var p parcel
	p.control, v.pending = v.pending, nil
	if v.closing != nil {
		p.end = v.closing
		return p
	}
	if !v.placed {
		v.phaseLocked(&p)
	}
	if v.placed {
		v.outputLocked(&p, buf, due)
	}
	if v.ack > v.acked && (due || len(p.data) > 0) {
		v.acked = v.ack
		p.control = append(p.control, frame.NewAck(v.ack))
	} else if v.ack > v.acked {
		p.wait = true
	}
	if s.state == stateEnded && len(p.data) == 0 && (!v.placed || v.cursor >= s.ring.End()) {
		p.end = s.end
	}
	return p
}

// phaseLocked tells a waiting viewer how far the open is.
func (v *viewer) phaseLocked(p *parcel) {
	now := frame.PhaseWaking
	if v.sess.rec.Sandbox != "" {
		now = frame.PhaseAttaching
	}
	if v.said != now && v.sess.state != stateEnded {
		v.said = now
		p.control = append(p.control, frame.Server{Type: frame.TypePhase, Phase: now})
	}
}
