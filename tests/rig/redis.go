package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/alicebob/miniredis/v2"

	"github.com/wakebus/wakebus/internal/lease"
)

// Redis is a Redis server of its own: a real one in its own process where redis-server is on the PATH, else one in this
// process.
type Redis struct {
	// URL is its address, the same over restarts.
	URL string

	port string
	cmd  *exec.Cmd
	mini *miniredis.Miniredis
}

// StartRedis starts one. Stop ends it.
func StartRedis(ctx context.Context) (*Redis, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port for redis: %w", err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	r := &Redis{URL: "redis://127.0.0.1:" + port, port: port}
	return r, errors.Join(l.Close(), r.Start(ctx))
}

// Real reports whether it is a Redis server, not an imitation.
func (r *Redis) Real() bool { return r.mini == nil }

// Start starts it again, empty, after Stop.
func (r *Redis) Start(ctx context.Context) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return r.imitate()
	}
	cmd := exec.Command(path, "--port", r.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	r.cmd = cmd
	unhook := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer unhook()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			return nil // it says nothing more that would fill the pipe
		}
	}
	return errors.Join(fmt.Errorf("redis-server on port %s does not get ready", r.port), r.Stop())
}

func (r *Redis) imitate() error {
	r.mini = miniredis.NewMiniRedis()
	r.mini.ClockTTL(true)
	if err := r.mini.StartAddr("127.0.0.1:" + r.port); err != nil {
		return fmt.Errorf("start redis in memory: %w", err)
	}
	return nil
}

// Stop ends it; what it held is gone.
func (r *Redis) Stop() error {
	if r.mini != nil {
		r.mini.Close()
		return nil
	}
	if r.cmd == nil {
		return nil
	}
	_ = r.cmd.Process.Kill() // fails only when it has ended
	_ = r.cmd.Wait()         // killed, which is no failure here
	r.cmd = nil
	return nil
}

// Leases lists the ids of the rig's tenant that are held now.
func (r *Redis) Leases(ctx context.Context) ([]string, error) {
	m, err := lease.Open(ctx, lease.Config{URL: r.URL, Quarantine: -1})
	if err != nil {
		return nil, err
	}
	records, err := m.List(ctx, lease.Filter{Tenant: Tenant})
	ids := make([]string, 0, len(records))
	for _, rec := range records {
		ids = append(ids, rec.ID)
	}
	return ids, errors.Join(err, m.Close())
}
