package emulator

import (
	"errors"
	"fmt"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

// bringUp needs the lock.
func (sp *sprite) bringUp() error {
	if sp.srv.cfg.Instant {
		return nil
	}
	if sp.machine != nil {
		if err := sp.machine.Thaw(); err == nil {
			return nil
		}
		sp.lose() // it died while frozen: boot a new one
	}
	m, err := sp.srv.boot(sp)
	if err != nil {
		return err
	}
	sp.machine = m
	sp.srv.goOwned(func() {
		<-m.Done()
		sp.machineGone(m)
	})
	return nil
}

// boot starts a machine; with IsolationAuto it falls back, once and loudly.
func (s *Server) boot(sp *sprite) (*guest.Machine, error) {
	for {
		iso := s.Isolation()
		m, err := guest.Start(guest.Config{
			Isolation: iso, Folder: sp.machineFolder(), Hostname: sp.name, Workspace: s.cfg.Workspace,
			Stderr: logWriter{s.log, sp.name},
		})
		if err == nil {
			return m, nil
		}
		if s.cfg.Isolation != IsolationAuto || iso != guest.Namespace || !errors.Is(err, guest.ErrNamespaces) {
			return nil, fmt.Errorf("boot sprite %s: %w", sp.name, err)
		}
		if s.isolation.CompareAndSwap(guest.Namespace, guest.Mapped) {
			s.log.Warn().Err(err).Msg("this host refuses user namespaces: commands run as plain processes of this user, " +
				"with its network and its files; only paths under /workspace and /home/sprite are mapped")
		}
	}
}

// admit applies RunningLimit.
func (s *Server) admit() error {
	if s.cfg.RunningLimit > 0 && s.running() >= s.cfg.RunningLimit {
		return errRunningLimit
	}
	return nil
}

func (s *Server) running() int {
	n := 0
	for _, sp := range s.all() {
		if !sp.asleep() {
			n++
		}
	}
	return n
}
