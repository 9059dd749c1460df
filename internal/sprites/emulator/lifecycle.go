package emulator

import (
	"context"
	"net"
	"time"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

// wakeTry is one attempt to wake, shared by all who wait for it.
type wakeTry struct {
	done chan struct{} // closed by the attempt
	err  error         // written before
}

// acquire holds the Sprite running until release, waking it where needed. It
// blocks for the wake.
func (sp *sprite) acquire(ctx context.Context) error {
	for {
		try, err := sp.tryAcquire()
		if try == nil || err != nil {
			return err
		}
		select {
		case <-try.done:
			if try.err != nil {
				return try.err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (sp *sprite) tryAcquire() (*wakeTry, error) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.deleted {
		return nil, ErrNoSprite
	}
	if sp.srv.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if sp.status == Running {
		sp.activity++
		stop(&sp.idle)
		return nil, nil
	}
	return sp.startWake(), nil
}

// rouse begins to wake without waiting.
func (sp *sprite) rouse() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if !sp.deleted && sp.status != Running && sp.srv.ctx.Err() == nil {
		sp.startWake()
	}
}

// startWake needs the lock.
func (sp *sprite) startWake() *wakeTry {
	if sp.wake == nil {
		try := &wakeTry{done: make(chan struct{})}
		sp.wake = try
		stop(&sp.fading)
		sp.srv.goOwned(func() {
			try.err = sp.doWake()
			close(try.done)
		})
	}
	return sp.wake
}

func (sp *sprite) doWake() error {
	sp.mu.Lock()
	from := sp.status
	sp.mu.Unlock()
	delay := sp.srv.cfg.WarmWake
	if from == Cold {
		delay = sp.srv.cfg.ColdWake
	}
	err := sp.srv.admit()
	if err == nil {
		err = pause(sp.srv.ctx, sp.srv.cfg.Clock, delay)
	}
	sp.mu.Lock()
	sp.wake = nil
	if err == nil && sp.deleted {
		err = ErrNoSprite
	}
	if err == nil {
		err = sp.bringUp()
		if sp.status == Cold {
			from = Cold // what was frozen turned out to be dead
		}
	}
	var start []*service
	if err == nil {
		start = sp.markRunning(from)
	}
	sp.mu.Unlock()
	sp.srv.changes.notify()
	for _, svc := range start {
		svc.begin()
	}
	return err
}

// markRunning needs the lock. It gives the services that a cold boot starts.
func (sp *sprite) markRunning(from Status) []*service {
	now := sp.srv.cfg.Clock.Now()
	sp.status, sp.touched = Running, now
	sp.rec.LastRunning = &now
	var start []*service
	if from == Cold {
		sp.rec.LastStarted = &now
		start = sp.bootServices()
	}
	sp.save()
	sp.armIdle(sp.window())
	return start
}

func (sp *sprite) release() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.activity--
	if sp.activity == 0 && sp.status == Running {
		sp.armIdle(sp.window())
	}
}

// window needs the lock. A running service was seen to double the idle window
// (live service: 60 to 80 s instead of 30).
func (sp *sprite) window() time.Duration {
	for _, svc := range sp.services {
		if !sp.srv.cfg.Documented && svc.running() {
			return 2 * sp.srv.cfg.Idle
		}
	}
	return sp.srv.cfg.Idle
}

// armIdle needs the lock.
func (sp *sprite) armIdle(d time.Duration) {
	stop(&sp.idle)
	if sp.activity > 0 || sp.deleted || sp.srv.ctx.Err() != nil {
		return
	}
	sp.idle = sp.srv.cfg.Clock.AfterFunc(d, sp.fallAsleep)
}

// fallAsleep is the idle window's end. Output of a session nobody watches moves it.
func (sp *sprite) fallAsleep() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.activity > 0 || sp.status != Running || sp.deleted {
		return
	}
	if left := sp.window() - sp.srv.cfg.Clock.Now().Sub(sp.touched); left > 0 {
		sp.armIdle(left)
		return
	}
	sp.suspend()
}

// sleep is Server.Sleep.
func (sp *sprite) sleep() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.status == Running {
		sp.suspend()
	}
}

// suspend needs the lock.
func (sp *sprite) suspend() {
	stop(&sp.idle)
	if sp.machine != nil {
		if err := sp.machine.Freeze(); err != nil {
			sp.lose()
			return
		}
	}
	now := sp.srv.cfg.Clock.Now()
	sp.status = Warm
	sp.rec.LastWarming = &now
	sp.save()
	sp.dropSockets()
	if sp.srv.ctx.Err() == nil {
		sp.fading = sp.srv.cfg.Clock.AfterFunc(sp.srv.cfg.ColdAfter, sp.fade)
	}
	sp.srv.changes.notify()
}

// fade is the end of the warm time.
func (sp *sprite) fade() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.status == Warm && sp.wake == nil {
		sp.lose()
	}
}

// chill is Server.Cold.
func (sp *sprite) chill() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.lose()
}

// crash is Server.Kill.
func (sp *sprite) crash() {
	sp.mu.Lock()
	m := sp.machine
	sp.mu.Unlock()
	if m != nil {
		m.Kill()
		sp.machineGone(m)
	}
}

func (sp *sprite) machineGone(m *guest.Machine) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.machine == m {
		sp.lose()
	}
}

// lose ends every process and makes the Sprite cold. It needs the lock.
func (sp *sprite) lose() {
	stop(&sp.idle)
	stop(&sp.fading)
	sp.dropSockets()
	if m := sp.machine; m != nil {
		sp.machine = nil
		m.Close()
	}
	for id, s := range sp.sessions {
		delete(sp.sessions, id)
		s.abandon()
	}
	sp.exited = nil
	for name, svc := range sp.services {
		delete(sp.services, name)
		svc.lost()
	}
	sp.status = Cold
	if !sp.deleted {
		sp.save()
	}
	sp.srv.changes.notify()
}

// shutdown is Server.Close for one Sprite.
func (sp *sprite) shutdown() { sp.chill() }

// hold registers a connection that a sleeping Sprite drops. One that needs a
// running Sprite is closed when a pause came between its wake and this. The
// function it gives forgets the connection.
func (sp *sprite) hold(c net.Conn, running bool) func() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if running && sp.status != Running {
		_ = c.Close()
	}
	sp.sockets[c] = struct{}{}
	return func() {
		sp.mu.Lock()
		defer sp.mu.Unlock()
		delete(sp.sockets, c)
	}
}

// dropSockets needs the lock.
func (sp *sprite) dropSockets() {
	for c := range sp.sockets {
		_ = c.Close()
		delete(sp.sockets, c)
	}
}

// touch notes output of a session, which keeps the Sprite awake.
func (sp *sprite) touch() {
	now := sp.srv.cfg.Clock.Now()
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.touched = now
}

func stop(t *Timer) {
	if *t != nil {
		(*t).Stop()
		*t = nil
	}
}
