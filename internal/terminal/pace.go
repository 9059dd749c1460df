package terminal

import (
	"bytes"
	"context"
	"time"
)

// hurryFor is how long after an interrupt a flood is drained without waiting for viewers.
const hurryFor = time.Second

// interrupts tells keys that stop a program from what else is typed: Ctrl-C, Ctrl-\ and Ctrl-Z.
func interrupts(keys []byte) bool { return bytes.ContainsAny(keys, "\x03\x1c\x1a") }

// hurried is true shortly after an interrupt.
func (s *session) hurried() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.hurry.IsZero() && s.gw.cfg.Now().Before(s.hurry)
}

// maxLent bounds what is read beyond the rate, in bytes: what the buffers between us and a shell may hold.
const maxLent = 8 << 20

// pacer bounds the rate of one shell's output. It belongs to one goroutine.
type pacer struct {
	rate  int // bytes a second
	now   func() time.Time
	since time.Time // when the present window began
	spent int       // in it
	lent  int       // read beyond the rate and not paid back
	paid  time.Time // when lent was last reduced
}

// lend lets n bytes through beyond the rate; false when maxLent is owed already. It is paid back at a quarter
// of the rate, so that who interrupts all the time gains little.
func (p *pacer) lend(n int) bool {
	now := p.now()
	if p.lent > 0 {
		p.lent = max(0, p.lent-int(now.Sub(p.paid).Seconds()*float64(p.rate)/4))
	}
	p.paid = now
	if p.lent+n > maxLent {
		return false
	}
	p.lent += n
	return true
}

// wait accounts for n bytes and waits when the window's share is spent; false when ctx ended.
func (p *pacer) wait(ctx context.Context, n int) bool {
	const window = 10 * time.Millisecond // short, so that a flood comes in bursts too small to hold others up
	p.spent += n
	now := p.now()
	if now.Sub(p.since) >= window {
		p.since, p.spent = now, n
	}
	if p.spent < p.rate/int(time.Second/window) {
		return true
	}
	rest := time.NewTimer(window - now.Sub(p.since))
	defer rest.Stop()
	select {
	case <-rest.C:
		return true
	case <-ctx.Done():
		return false
	}
}
