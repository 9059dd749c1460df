package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

// Server is one emulated Sprites organisation. All methods may be called
// concurrently.
type Server struct {
	cfg    Config
	log    zerolog.Logger
	dir    string
	lock   *os.File
	ln     *listener
	http   *http.Server
	calls  callLog
	faults faultSet

	ctx    context.Context // ends when Close begins
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // every goroutine of the server
	closed chan struct{}  // closed by Close when all is gone
	once   struct{ start, close sync.Once }
	served error

	requests  atomic.Uint64
	isolation atomic.Value // guest.Isolation that machines use
	changes   changeFeed   // wakes the list watchers

	mu        sync.Mutex // protects the rest
	sprites   map[string]*sprite
	creations []time.Time // of the last minute, for CreateLimit
}

// New binds the port and loads what Config.Dir holds; it does not serve before
// Start or Run. It fails with ErrConfig (every problem at once), ErrFault,
// ErrInUse, or guest.ErrNotHooked where MaybeInit was not called. Release it by
// Run or Close.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure emulator: %w", err)
	}
	if !cfg.Instant && !guest.Hooked() {
		return nil, fmt.Errorf("start emulator: %w", guest.ErrNotHooked)
	}
	s := &Server{cfg: cfg, log: cfg.Logger, sprites: map[string]*sprite{}, closed: make(chan struct{})}
	s.calls.counts = map[callKey]int{}
	s.faults.seed = uint64(cfg.Seed)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.isolation.Store(guest.Namespace)
	if cfg.Isolation == IsolationMapped {
		s.isolation.Store(guest.Mapped)
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.releaseDir())
	}
	return s, nil
}

func (s *Server) open() error {
	if err := s.faults.add(s.cfg.Faults); err != nil {
		return err
	}
	if err := s.takeDir(); err != nil {
		return err
	}
	if err := s.load(); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.ln = newListener(ln)
	s.http = &http.Server{
		Handler:           s.router(),
		ReadHeaderTimeout: 30 * time.Second,
		MaxHeaderBytes:    1 << 20,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ConnContext:       withConn,
	}
	return nil
}

// Start serves until Close. It returns at once; ctx only limits the start.
func (s *Server) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.ctx.Err() != nil {
		return ErrClosed
	}
	s.once.start.Do(func() {
		s.goOwned(func() {
			if err := s.http.Serve(s.ln); !errors.Is(err, http.ErrServerClosed) && s.ctx.Err() == nil {
				s.served = fmt.Errorf("serve sprites api: %w", err)
				s.cancel(s.served)
			}
		})
	})
	return nil
}

// Run serves until ctx ends, then closes. It fails only when serving did.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	select {
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	err := s.Close()
	if s.served != nil {
		return s.served
	}
	return err
}

// Close drops every connection, ends every process that the server started and
// returns when all are gone. Sprites in Config.Dir are kept, cold.
func (s *Server) Close() error {
	var err error
	s.once.close.Do(func() {
		s.mu.Lock()
		s.cancel(ErrClosed)
		s.mu.Unlock()
		_ = s.http.Close()
		_ = s.ln.Close() // Serve may never have begun
		s.ln.dropAll()
		s.mu.Lock()
		sprites := make([]*sprite, 0, len(s.sprites))
		for _, sp := range s.sprites {
			sprites = append(sprites, sp)
		}
		s.mu.Unlock()
		for _, sp := range sprites {
			sp.shutdown()
		}
		s.wg.Wait()
		err = s.releaseDir()
		close(s.closed)
	})
	<-s.closed
	return err
}

// enter counts a call in, unless Close has begun: its wait must not miss one.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.wg.Add(1)
	return true
}

// goOwned runs f under the server's wait group. f must end when s.ctx does.
func (s *Server) goOwned(f func()) { s.wg.Go(f) }

// URL is the base URL of the API, without a slash at its end.
func (s *Server) URL() string { return "http://" + s.ln.Addr().String() }

// Token is the bearer token that every call must carry.
func (s *Server) Token() string { return s.cfg.Token }

// Calls gives the log, oldest first: the last 65,536 calls. Admin calls are not in it.
func (s *Server) Calls() []Call { return s.calls.list() }

// Count says how many calls ever matched; both arguments are globs, "" is any.
func (s *Server) Count(route, sprite string) int { return s.calls.count(route, sprite) }

// AddFaults adds rules behind the present ones. It fails with ErrFault, and then adds none.
func (s *Server) AddFaults(faults ...Fault) error { return s.faults.add(faults) }

// ClearFaults removes every rule.
func (s *Server) ClearFaults() { s.faults.clear() }

// Connections says how many WebSockets are open.
func (s *Server) Connections() int { return s.ln.sockets() }

// Isolation says how machines are kept apart: what was configured, or, with
// IsolationAuto, what the host allowed so far.
func (s *Server) Isolation() guest.Isolation { return s.isolation.Load().(guest.Isolation) }

// Sleep makes a running Sprite warm at once and drops its connections; it is
// nothing on one that sleeps. It fails with ErrNoSprite.
func (s *Server) Sleep(name string) error { return s.onSprite(name, (*sprite).sleep) }

// Cold ends a Sprite's processes at once and drops its connections. It fails
// with ErrNoSprite.
func (s *Server) Cold(name string) error { return s.onSprite(name, (*sprite).chill) }

// Kill is a crash of the Sprite's machine: as Cold, without a word to anybody.
func (s *Server) Kill(name string) error { return s.onSprite(name, (*sprite).crash) }

func (s *Server) onSprite(name string, f func(*sprite)) error {
	sp, err := s.sprite(name)
	if err != nil {
		return err
	}
	f(sp)
	return nil
}

func (s *Server) sprite(name string) (*sprite, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp, ok := s.sprites[name]
	if !ok {
		return nil, fmt.Errorf("sprite %s: %w", name, ErrNoSprite)
	}
	return sp, nil
}

// SpriteInfo is a Sprite as tests and the admin routes see it.
type SpriteInfo struct {
	Name     string   `json:"name"`
	ID       string   `json:"id"`
	Status   Status   `json:"status"`
	Labels   []string `json:"labels"`
	Sessions int      `json:"sessions"`
	// Folder on the host holds workspace and home/sprite.
	Folder string `json:"folder"`
}

// Sprites lists them by name.
func (s *Server) Sprites() []SpriteInfo {
	out := []SpriteInfo{}
	for _, sp := range s.all() {
		out = append(out, sp.info())
	}
	return out
}

// all gives the Sprites in name order.
func (s *Server) all() []*sprite {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*sprite, 0, len(s.sprites))
	for _, sp := range s.sprites {
		out = append(out, sp)
	}
	slices.SortFunc(out, func(a, b *sprite) int { return strings.Compare(a.name, b.name) })
	return out
}

func (s *Server) spriteFolder(id string) string { return filepath.Join(s.dir, "sprites", id) }
