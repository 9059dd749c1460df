package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/wakebus/wakebus/internal/instance"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/tests/rig"
)

const (
	fleet   = 3
	ackWait = 2 * time.Second
)

// storm is what happens to the parts while jobs run. Its methods are for one goroutine.
type storm struct {
	rand    *rand.Rand
	broker  *rig.Broker
	redis   *rig.Redis
	inst    *instance.Instance
	dir     string
	workers []*rig.Worker
	started int
	did     map[string]int
}

// add starts a worker process.
func (s *storm) add(ctx context.Context) error {
	s.started++
	w, err := rig.Start(ctx, s.dir, rig.Spec{Env: s.inst.Env(), ID: fmt.Sprintf("w%d", s.started), AckWait: ackWait, LogFile: s.dir + "/worker.log"})
	if err != nil {
		return err
	}
	s.workers = append(s.workers, w)
	return nil
}

// take removes a random worker from the fleet.
func (s *storm) take() *rig.Worker {
	n := s.rand.IntN(len(s.workers))
	w := s.workers[n]
	s.workers = append(s.workers[:n], s.workers[n+1:]...)
	return w
}

// blow does one thing after another until ctx ends.
func (s *storm) blow(ctx, life context.Context) error {
	acts := []struct {
		name string
		do   func(ctx, life context.Context) error
	}{
		{"kill", s.kill}, {"kill", s.kill}, {"freeze", s.freeze}, {"drain", s.drain},
		{"restart broker", s.restartBroker}, {"restart redis", s.restartRedis}, {"fault", s.fault}, {"fault", s.fault},
	}
	for {
		pause(ctx, time.Duration(200+s.rand.IntN(800))*time.Millisecond)
		if ctx.Err() != nil {
			return nil
		}
		act := acts[s.rand.IntN(len(acts))]
		if err := act.do(ctx, life); err != nil {
			return fmt.Errorf("%s: %w", act.name, err)
		}
		s.did[act.name]++
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (s *storm) kill(_, life context.Context) error {
	s.take().Kill()
	return s.add(life)
}

func (s *storm) freeze(ctx, _ context.Context) error {
	w := s.workers[s.rand.IntN(len(s.workers))]
	if err := w.Freeze(); err != nil {
		return err
	}
	pause(ctx, time.Duration(500+s.rand.IntN(2000))*time.Millisecond)
	return w.Thaw()
}

func (s *storm) drain(_, life context.Context) error {
	w := s.take()
	return errors.Join(w.Terminate(life), s.add(life))
}

func (s *storm) restartBroker(ctx, life context.Context) error {
	if err := s.broker.Stop(); err != nil {
		return err
	}
	pause(ctx, time.Duration(100+s.rand.IntN(1500))*time.Millisecond)
	return s.broker.Start(life)
}

func (s *storm) restartRedis(ctx, life context.Context) error {
	if err := s.redis.Stop(); err != nil {
		return err
	}
	pause(ctx, time.Duration(100+s.rand.IntN(1500))*time.Millisecond)
	return s.redis.Start(life)
}

func (s *storm) fault(context.Context, context.Context) error {
	faults := []emulator.Fault{
		{Route: "exec.*", Do: emulator.FaultDrop, Times: 2},
		{Route: "exec.ws", Do: emulator.FaultLost, Times: 1},
		{Route: "exec.ws", Do: emulator.FaultDropAfter, Bytes: 50, Times: 2},
		{Route: "exec.ws", Do: emulator.FaultNoExit, Times: 1},
		{Route: "exec.*", Do: emulator.FaultStatus, Status: 503, Times: 3},
		{Route: "exec.ws", Do: emulator.FaultStatus, Status: 429, Times: 2},
		{Route: "sprite.*", Do: emulator.FaultDelay, Delay: 300 * time.Millisecond, Times: 4},
		{Route: "sprite.get", Do: emulator.FaultStatus, Status: 502, Times: 2},
	}
	return s.inst.Emulator().AddFaults(faults[s.rand.IntN(len(faults))])
}
