package emulator

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nameRule is what the live service takes (55 characters at most, by its
// official scripts).
var nameRule = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,53}[a-z0-9])?$`)

const (
	createWindow = time.Minute
	maxList      = 50
)

type createBody struct {
	Name        string            `json:"name"`
	Config      json.RawMessage   `json:"config"`
	Environment map[string]string `json:"environment"`
	Labels      []string          `json:"labels"`
	URLSettings *urlSettings      `json:"url_settings"`
	Wait        bool              `json:"wait_for_capacity"`
}

func (x *exchange) createToken() {
	x.json(http.StatusCreated, map[string]string{"token": x.srv.cfg.Token})
}

func (x *exchange) createSprite() {
	var b createBody
	if err := x.body(&b); err != nil {
		x.fail(http.StatusBadRequest, err.Error())
		return
	}
	if !nameRule.MatchString(b.Name) {
		x.json(http.StatusBadRequest, map[string][]string{"errors": {"invalid sprite name format"}})
		return
	}
	if x.srv.cfg.RunningLimit > 0 && x.srv.running() >= x.srv.cfg.RunningLimit && !b.Wait {
		x.refuse(errRunningLimit)
		return
	}
	sp, retry, err := x.srv.create(b)
	switch {
	case retry > 0:
		x.tooManyCreations(retry)
	case err != nil:
		x.srv.log.Error().Err(err).Str("sprite", b.Name).Msg("cannot create")
		x.fail(http.StatusInternalServerError, "failed to create sprite")
	case sp == nil && x.mutated(MutateCreateStatus):
		x.fail(http.StatusInternalServerError, "failed to create sprite")
	case sp == nil:
		x.fail(http.StatusConflict, fmt.Sprintf("A sprite named '%s' already exists. Choose another name.", b.Name))
	default:
		x.json(http.StatusCreated, sp.object())
	}
}

func (x *exchange) tooManyCreations(retry time.Duration) {
	seconds := int(retry/time.Second) + 1
	h := x.w.Header()
	h.Set("Retry-After", strconv.Itoa(seconds))
	h.Set("X-RateLimit-Limit", strconv.Itoa(x.srv.cfg.CreateLimit))
	h.Set("X-RateLimit-Remaining", "0")
	h.Set("X-RateLimit-Reset", strconv.FormatInt(x.srv.cfg.Clock.Now().Add(retry).Unix(), 10))
	x.json(http.StatusTooManyRequests, limitBody{
		Error: "sprite_creation_rate_limited", Message: "too many sprites created",
		Limit: x.srv.cfg.CreateLimit, WindowSeconds: int(createWindow / time.Second), RetryAfter: seconds,
	})
}

// create gives nil for a name that is taken, and a wait for a rate that is used up.
func (s *Server) create(b createBody) (*sprite, time.Duration, error) {
	now := s.cfg.Clock.Now()
	rec := record{
		ID: newID(), Name: b.Name, Created: now, Updated: now, Auth: "sprite", Access: "admins",
		Config: b.Config, Environment: b.Environment, Labels: b.Labels, Network: networkPolicy{Rules: []networkRule{}},
	}
	rec.apply(b.URLSettings)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, 0, ErrClosed
	}
	if s.sprites[b.Name] != nil {
		return nil, 0, nil
	}
	if retry := s.takeCreation(now); retry > 0 {
		return nil, retry, nil
	}
	sp := newSprite(s, rec)
	if err := os.MkdirAll(sp.folder, 0o700); err != nil {
		return nil, 0, fmt.Errorf("create sprite %s: %w", b.Name, err)
	}
	if err := sp.write(); err != nil {
		return nil, 0, fmt.Errorf("create sprite %s: %w", b.Name, err)
	}
	s.sprites[b.Name] = sp
	s.changes.notify()
	return sp, 0, nil
}

// takeCreation needs the lock.
func (s *Server) takeCreation(now time.Time) time.Duration {
	if s.cfg.CreateLimit == 0 {
		return 0
	}
	s.creations = slices.DeleteFunc(s.creations, func(t time.Time) bool { return now.Sub(t) >= createWindow })
	if len(s.creations) >= s.cfg.CreateLimit {
		return createWindow - now.Sub(s.creations[0])
	}
	s.creations = append(s.creations, now)
	return 0
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("sprite-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (r *record) apply(u *urlSettings) {
	if u == nil {
		return
	}
	if u.Auth != "" {
		r.Auth = u.Auth
	}
	if u.Access != "" {
		r.Access = u.Access
	}
}

func (x *exchange) getSprite() { x.json(http.StatusOK, x.sprite.object()) }

func (x *exchange) updateSprite() {
	var b struct {
		URLSettings *urlSettings `json:"url_settings"`
		Labels      *[]string    `json:"labels"`
		Clear       bool         `json:"clear_labels"`
	}
	if err := x.body(&b); err != nil {
		x.fail(http.StatusBadRequest, err.Error())
		return
	}
	sp := x.sprite
	sp.mu.Lock()
	sp.rec.apply(b.URLSettings)
	if b.Labels != nil {
		sp.rec.Labels = *b.Labels
	}
	if b.Clear {
		sp.rec.Labels = nil
	}
	sp.rec.Updated = x.srv.cfg.Clock.Now()
	sp.save()
	sp.mu.Unlock()
	x.json(http.StatusOK, sp.object())
}

func (x *exchange) deleteSprite() {
	sp, s := x.sprite, x.srv
	s.mu.Lock()
	mine := s.sprites[sp.name] == sp
	if mine {
		delete(s.sprites, sp.name)
	}
	s.mu.Unlock()
	if !mine {
		x.refuse(ErrNoSprite)
		return
	}
	sp.mu.Lock()
	sp.deleted = true
	sp.lose()
	sp.mu.Unlock()
	// The record first: cut off here, the next start clears the rest away.
	_ = os.Remove(sp.folder + "/" + recordFile)
	if err := removeTree(sp.folder); err != nil {
		s.log.Error().Err(err).Str("sprite", sp.name).Msg("cannot remove files")
	}
	s.changes.notify()
	x.w.WriteHeader(http.StatusNoContent)
}

func (x *exchange) upgradeSprite() { x.w.WriteHeader(http.StatusNoContent) }

func (x *exchange) restartSprite() {
	x.sprite.chill()
	if err := x.acquire(); err != nil {
		x.refuse(err)
		return
	}
	x.json(http.StatusOK, map[string]string{
		"sprite_name": x.sprite.name, "machine_id": x.sprite.info().ID, "message": "sprite restarted",
	})
}

func (x *exchange) checkSprite() {
	i := x.sprite.info()
	x.json(http.StatusOK, map[string]any{
		"sprite_name": i.Name, "sprite_id": i.ID, "status": "healthy",
		"checked_at": stamp(x.srv.cfg.Clock.Now()), "elapsed": "1ms",
	})
}

type counters struct {
	Name         string `json:"name"`
	Running      int    `json:"running"`
	Warm         int    `json:"warm"`
	Cold         int    `json:"cold"`
	RunningLimit int    `json:"running_limit"`
	WarmLimit    int    `json:"warm_limit"`
}

func (s *Server) counters() counters {
	c := counters{Name: organisation, RunningLimit: s.cfg.RunningLimit}
	for _, sp := range s.all() {
		switch sp.info().Status {
		case Running:
			c.Running++
		case Warm:
			c.Warm++
		case Cold:
			c.Cold++
		}
	}
	return c
}

// listBody carries the counters twice: js and py read them at the top, go below org.
type listBody struct {
	Sprites []any   `json:"sprites"`
	More    bool    `json:"has_more"`
	Next    *string `json:"next_continuation_token"`
	Next0   string  `json:"-"` // name of the last entry, which Next points to
	counters
	Org counters `json:"org"`
}

func (x *exchange) listSprites() {
	if x.call.Route == "sprite.watch" {
		x.watchSprites()
		return
	}
	q := x.r.URL.Query()
	n, err := strconv.Atoi(q.Get("max_results"))
	if err != nil || n < 1 || n > maxList {
		n = maxList // go and py ask for 100: cut, never refuse
	}
	c := x.srv.counters()
	b := listBody{Sprites: []any{}, counters: c, Org: c}
	for _, sp := range x.srv.all() {
		if !strings.HasPrefix(sp.name, q.Get("prefix")) || sp.name <= q.Get("continuation_token") {
			continue
		}
		if len(b.Sprites) == n {
			b.More, b.Next = true, &b.Next0
			break
		}
		b.Next0 = sp.name
		b.Sprites = append(b.Sprites, listEntry(sp, q.Get("bulk_load") == "true"))
	}
	if x.mutated(MutateListShape) {
		x.json(http.StatusOK, b.Sprites)
		return
	}
	x.json(http.StatusOK, b)
}

func listEntry(sp *sprite, brief bool) any {
	o := sp.object()
	if !brief {
		return o
	}
	return map[string]string{"name": o.Name, "org_slug": o.OrgSlug, "updated_at": o.UpdatedAt}
}
