package emulator

import (
	"encoding/json"
	"net"
	"sync"
	"time"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

// Status is where a Sprite is in its life.
type Status string

// The states.
const (
	Cold    Status = "cold"
	Warm    Status = "warm"
	Running Status = "running"
)

// record is what survives a restart of the emulator.
type record struct {
	ID          string                     `json:"id"`
	Name        string                     `json:"name"`
	Created     time.Time                  `json:"created"`
	Updated     time.Time                  `json:"updated"`
	LastRunning *time.Time                 `json:"last_running,omitempty"`
	LastWarming *time.Time                 `json:"last_warming,omitempty"`
	LastStarted *time.Time                 `json:"last_started,omitempty"`
	Auth        string                     `json:"auth"`
	Access      string                     `json:"access"`
	Config      json.RawMessage            `json:"config,omitempty"`
	Environment map[string]string          `json:"environment,omitempty"`
	Labels      []string                   `json:"labels,omitempty"`
	Network     networkPolicy              `json:"network"`
	Policies    map[string]json.RawMessage `json:"policies,omitempty"`
	Services    []*serviceSpec             `json:"services,omitempty"`
	Checkpoints []checkpoint               `json:"checkpoints,omitempty"`
}

// sprite is one emulated Sprite.
type sprite struct {
	srv    *Server
	name   string
	folder string

	mu       sync.Mutex // protects the rest
	rec      record
	status   Status
	machine  *guest.Machine // nil while cold
	wake     *wakeTry       // nil unless waking
	activity int            // calls and sockets that hold it running
	touched  time.Time      // of the last session output
	idle     Timer          // running -> warm, nil unless armed
	fading   Timer          // warm -> cold, nil unless armed
	deleted  bool
	sessions map[string]*session
	exited   []string // ids of ended sessions of this boot, for 410
	sockets  map[net.Conn]struct{}
	services map[string]*service // those that were started in this boot

	guards instantGuards // of Config.Instant, with its own lock
}

func newSprite(s *Server, rec record) *sprite {
	return &sprite{
		srv: s, name: rec.Name, folder: s.spriteFolder(rec.ID), rec: rec, status: Cold,
		sessions: map[string]*session{}, sockets: map[net.Conn]struct{}{}, services: map[string]*service{},
	}
}

func (sp *sprite) asleep() bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.status != Running
}

func (sp *sprite) info() SpriteInfo {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return SpriteInfo{
		Name: sp.name, ID: sp.rec.ID, Status: sp.status, Labels: append([]string{}, sp.rec.Labels...),
		Sessions: len(sp.sessions), Folder: sp.machineFolder(),
	}
}

type urlSettings struct {
	Auth   string `json:"auth,omitempty"`
	Access string `json:"private_access,omitempty"`
}

// object is a Sprite in the API (Sprites API reference, sprites): both pairs of
// names for the last activity, and both spellings of the organisation, so that
// every SDK finds its own.
type object struct {
	ID                 string            `json:"id"`
	Name               string            `json:"name"`
	Organization       string            `json:"organization"`
	OrgSlug            string            `json:"org_slug"`
	URL                string            `json:"url"`
	URLSettings        urlSettings       `json:"url_settings"`
	Status             Status            `json:"status"`
	CreatedAt          string            `json:"created_at"`
	UpdatedAt          string            `json:"updated_at"`
	Version            *string           `json:"version"`
	EnvironmentVersion *string           `json:"environment_version"`
	Config             json.RawMessage   `json:"config,omitempty"`
	Environment        map[string]string `json:"environment,omitempty"`
	Labels             []string          `json:"labels"`
	BucketName         string            `json:"bucket_name"`
	PrimaryRegion      string            `json:"primary_region"`
	LastRunningAt      *string           `json:"last_running_at"`
	LastWarmingAt      *string           `json:"last_warming_at"`
	LastStartedAt      *string           `json:"last_started_at"`
	LastActiveAt       *string           `json:"last_active_at"`
}

const organisation = "local"

func stampPtr(t *time.Time) *string {
	if t == nil {
		return nil
	}
	s := stamp(*t)
	return &s
}

func (sp *sprite) object() object {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	r := &sp.rec
	o := object{
		ID: r.ID, Name: r.Name, Organization: organisation, OrgSlug: organisation,
		URL:         "https://" + r.Name + "-emu0.localhost",
		URLSettings: urlSettings{Auth: r.Auth, Access: r.Access},
		Status:      sp.status, CreatedAt: stamp(r.Created), UpdatedAt: stamp(r.Updated),
		Config: r.Config, Environment: r.Environment, Labels: append([]string{}, r.Labels...),
		BucketName: "sprite-" + r.Name, PrimaryRegion: "local",
		LastRunningAt: stampPtr(r.LastRunning), LastWarmingAt: stampPtr(r.LastWarming),
		LastStartedAt: stampPtr(r.LastStarted), LastActiveAt: stampPtr(r.LastRunning),
	}
	if r.LastStarted != nil {
		v := apiVersion
		o.Version, o.EnvironmentVersion = &v, &v
	}
	if sp.srv.cfg.Mutation == MutateInvalidTime {
		o.CreatedAt = "yesterday"
	}
	return o
}
