package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ErrNoRedis says that there is no redis-server on the PATH.
var ErrNoRedis = errors.New("redis-server is not on the PATH")

// Redis is a redis-server process of our own, on loopback.
type Redis struct {
	cmd  *exec.Cmd
	dir  string
	addr string
	// drained is closed when the server's output has ended.
	drained chan struct{}
}

// StartRedis starts a redis-server on a free loopback port and returns once it takes connections, at most 10 s later.
// syncAlways makes it write through to the disk before it answers; else it writes nothing. ErrNoRedis when there is none.
func StartRedis(ctx context.Context, syncAlways bool) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoRedis
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "wakebus-redis-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for redis: %w", err)
	}
	args := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", dir, "--maxmemory-policy", "noeviction"}
	if syncAlways {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	r := &Redis{cmd: exec.Command(path, args...), dir: dir, addr: "127.0.0.1:" + strconv.Itoa(port), drained: make(chan struct{})}
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start redis-server: %w", err), os.RemoveAll(dir))
	}
	ready := make(chan struct{})
	go func() {
		defer close(r.drained)
		said := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if !said && strings.Contains(lines.Text(), "Ready to accept connections") {
				said = true
				close(ready)
			}
		}
	}()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-ready:
		return r, nil
	case <-r.drained:
		return nil, errors.Join(errors.New("redis-server ended at its start"), r.Close())
	case <-timer.C:
		return nil, errors.Join(errors.New("redis-server was not ready within 10s"), r.Close())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), r.Close())
	}
}

// FreePort is a loopback port that was free a moment ago.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// URL is where it listens.
func (r *Redis) URL() string { return "redis://" + r.addr }

// Addr is host and port.
func (r *Redis) Addr() string { return r.addr }

// PID is the server's process.
func (r *Redis) PID() int { return r.cmd.Process.Pid }

// Close ends the server and removes its folder.
func (r *Redis) Close() error {
	_ = r.cmd.Process.Kill() // it may have ended by itself
	<-r.drained
	_ = r.cmd.Wait() // it was killed, and says so
	return os.RemoveAll(r.dir)
}

// redisScripts asks a Redis how many scripts were run, which is how many calls of the lease reached it; false when it
// does not tell (Redis, INFO commandstats).
func redisScripts(ctx context.Context, address string) (int64, bool) {
	u, err := url.Parse(address)
	if err != nil {
		return 0, false
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return 0, false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second)) // a socket that cannot have one fails below
	if password, ok := u.User.Password(); ok {
		fmt.Fprintf(conn, "AUTH %s\r\n", password)
	}
	fmt.Fprint(conn, "INFO commandstats\r\nQUIT\r\n")
	var n int64
	found := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		name, rest, ok := strings.Cut(lines.Text(), ":calls=")
		if !ok || name != "cmdstat_evalsha" && name != "cmdstat_eval" && name != "cmdstat_fcall" {
			continue
		}
		count, _, _ := strings.Cut(rest, ",")
		calls, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			return 0, false
		}
		n, found = n+calls, true
	}
	return n, found
}
