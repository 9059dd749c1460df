package bus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

// ServerConfig describes an embedded broker. The zero value gives one on a free loopback port with a store of its
// own in a temporary directory, which Close removes.
type ServerConfig struct {
	// Dir is the folder of the store. Defaults to a new temporary folder, removed by Close.
	Dir string
	// Port is the loopback TCP port, 0 for a free one. Defaults to 0.
	Port int
	// User is the only user. Defaults to wakebus. Ignored with ConfigFile.
	User string
	// Password is the user's. Defaults to 128 random bits in hex. Ignored with ConfigFile.
	Password string
	// SyncAlways makes the server write through to the disk before it answers. Defaults to false.
	SyncAlways bool
	// MaxPayload is the largest message in bytes, headers included. Defaults to 1 MiB.
	MaxPayload int32
	// ConfigFile is a server configuration to load; Dir and Port still apply, so that a shipped configuration can
	// be tried on a free port. Defaults to none.
	ConfigFile string
	// ReadyTimeout bounds the start. Defaults to 10 s.
	ReadyTimeout time.Duration
}

// Server is a running embedded broker on loopback.
type Server struct {
	inner    *server.Server
	url      string
	lock     *os.File
	tempDir  string // removed by Close; empty when the folder is the caller's
	closeOne sync.Once
	closeErr error
}

// StartServer starts a broker in this process and waits until it takes connections. It locks the store: two servers
// on one store run without complaint and corrupt it. Errors are ErrStoreLocked and ErrUnreachable. It takes no
// signals; Close ends it.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	s := &Server{}
	dir, err := s.openStore(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start embedded nats: %w", err)
	}
	if err := s.start(ctx, cfg, dir); err != nil {
		return nil, fmt.Errorf("start embedded nats: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

func (s *Server) openStore(dir string) (string, error) {
	if dir == "" {
		temp, err := os.MkdirTemp("", "wakebus-nats-")
		if err != nil {
			return "", fmt.Errorf("make the store: %w", err)
		}
		s.tempDir, dir = temp, temp
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the store %s: %w", dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "wakebus.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("open the lock of store %s: %w", dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		locked := &StoreLockedError{Dir: dir, PID: holderOf(lock)}
		_ = lock.Close()
		return "", fmt.Errorf("%w: %w", locked, err)
	}
	s.lock = lock
	if err := writeHolder(lock); err != nil {
		return "", fmt.Errorf("write the lock of store %s: %w", dir, err)
	}
	return dir, nil
}

// writeHolder leaves our process id in the lock, for whoever finds it taken.
func writeHolder(lock *os.File) error {
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holderOf reads who has a lock; 0 when it does not say.
func holderOf(lock *os.File) int {
	text := make([]byte, 32)
	n, _ := lock.ReadAt(text, 0) // shorter than the buffer, so that it ends with io.EOF
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return 0
	}
	return pid
}

func (s *Server) start(ctx context.Context, cfg ServerConfig, dir string) error {
	opts, err := serverOptions(cfg, dir)
	if err != nil {
		return err
	}
	inner, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	s.inner = inner
	inner.Start() // returns once the listeners are being opened; the server owns its goroutines
	wait := cfg.ReadyTimeout
	if wait == 0 {
		wait = 10 * time.Second
	}
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	if !inner.ReadyForConnections(wait) {
		return fmt.Errorf("not ready within %s: %w", wait, ErrUnreachable)
	}
	u, err := url.Parse(inner.ClientURL())
	if err != nil {
		return fmt.Errorf("read the address: %w", err)
	}
	if opts.Username != "" {
		u.User = url.UserPassword(opts.Username, opts.Password)
	}
	s.url = u.String()
	return nil
}

func serverOptions(cfg ServerConfig, dir string) (*server.Options, error) {
	opts := &server.Options{ServerName: "wakebus-embedded"}
	if cfg.ConfigFile != "" {
		loaded, err := server.ProcessConfigFile(cfg.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", cfg.ConfigFile, err)
		}
		opts = loaded
	} else {
		opts.Username, opts.Password = cfg.User, cfg.Password
		if opts.Username == "" {
			opts.Username = "wakebus"
		}
		if opts.Password == "" {
			opts.Password = randomHex()
		}
	}
	opts.Host = "127.0.0.1"
	opts.Port = cfg.Port
	if cfg.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	opts.JetStream = true
	opts.StoreDir = filepath.Join(dir, "jetstream")
	opts.NoSigs = true
	opts.NoLog = true
	if cfg.SyncAlways {
		opts.SyncAlways = true
	}
	if cfg.MaxPayload != 0 {
		opts.MaxPayload = cfg.MaxPayload
	}
	return opts, nil
}

func randomHex() string {
	var buf [16]byte
	_, _ = rand.Read(buf[:]) // never fails since Go 1.24
	return hex.EncodeToString(buf[:])
}

// URL is the address with user and password inside; it is a secret.
func (s *Server) URL() string { return s.url }

// Close shuts the broker down, waits for it, frees the lock and removes a temporary store. It may be called twice.
func (s *Server) Close() error {
	s.closeOne.Do(func() {
		if s.inner != nil {
			s.inner.Shutdown()
			s.inner.WaitForShutdown()
		}
		if s.lock != nil {
			s.closeErr = s.lock.Close()
		}
		if s.tempDir != "" {
			s.closeErr = errors.Join(s.closeErr, os.RemoveAll(s.tempDir))
		}
	})
	return s.closeErr
}
