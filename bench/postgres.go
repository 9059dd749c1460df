package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/sethvargo/go-retry"

	"github.com/wakebus/wakebus/internal/bench"
)

// nobody is the user that PostgreSQL runs as where we are root, which it refuses to be (Debian, base-passwd).
const nobody = 65534

// postgres is a server of our own on loopback.
type postgres struct {
	cmd *exec.Cmd
	dir string
	url string
}

// startPostgres makes a cluster in a temporary folder and starts it. Without sync a commit does not wait for the disk.
func startPostgres(ctx context.Context, sync bool) (*postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	port, err := bench.FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "wakebus-pg-")
	if err != nil {
		return nil, err
	}
	p := &postgres{dir: dir, url: fmt.Sprintf("postgres://bench@127.0.0.1:%d/postgres?sslmode=disable&pool_max_conns=40", port)}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	data := filepath.Join(dir, "data")
	if out, err := p.command(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "bench", "-A", "trust", "-N").CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w: %s", err, out), p.Close())
	}
	commit := "off"
	if sync {
		commit = "on"
	}
	p.cmd = p.command(context.WithoutCancel(ctx), filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port), "-k", dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=on", "-c", "synchronous_commit="+commit, "-c", "max_connections=200", "-c", "log_min_messages=fatal")
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return nil, errors.Join(fmt.Errorf("start postgres: %w", err), p.Close())
	}
	err = retry.Do(ctx, retry.WithMaxDuration(20*time.Second, retry.NewConstant(50*time.Millisecond)), func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, p.url[:len(p.url)-len("&pool_max_conns=40")])
		if err != nil {
			return retry.RetryableError(err)
		}
		return conn.Close(ctx)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgres does not answer: %w", err), p.Close())
	}
	return p, nil
}

// command runs as an ordinary user.
func (p *postgres) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = p.dir
	if os.Getuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return c
}

// Close ends the server at once and removes its cluster.
func (p *postgres) Close() error {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(syscall.SIGINT) // PostgreSQL's fast shutdown
		_ = p.cmd.Wait()                         // nothing is asked of it any more
	}
	return os.RemoveAll(p.dir)
}

// postgresBin is the newest installed server's folder; Debian keeps it off the PATH.
func postgresBin() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		path, err := exec.LookPath("initdb")
		if err != nil {
			return "", errors.New("no PostgreSQL server is installed (Debian: postgresql)")
		}
		return filepath.Dir(path), nil
	}
	return filepath.Dir(slices.Max(found)), nil
}
