package sprites

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Status is what the control plane says of a Sprite.
type Status string

// The documented statuses. An unknown one is passed through.
const (
	StatusCold    Status = "cold"    // stopped; processes are lost
	StatusWarm    Status = "warm"    // suspended; processes are frozen
	StatusRunning Status = "running" // awake
)

// Sprite is a sandbox as the control plane knows it.
type Sprite struct {
	// Name is what it is addressed by.
	Name string
	// Instance is the provider's id of this incarnation of the name. It survives a checkpoint restore.
	Instance string
	// Status is how awake it is.
	Status Status
	// Labels are permissions as much as tags: connectors are granted by label.
	Labels []string
	// CreatedAt is when it was created; zero when unknown.
	CreatedAt time.Time
	// LastActive is the latest activity the control plane reports, else zero.
	LastActive time.Time
	// Caps are the resources as requested; zero when not reported.
	Caps Caps
}

// wireSprite is the control plane's JSON. Two generations of field names are alive.
type wireSprite struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"`
	Status        Status          `json:"status"`
	Labels        []string        `json:"labels"`
	CreatedAt     wireTime        `json:"created_at"`
	UpdatedAt     wireTime        `json:"updated_at"`
	LastRunningAt wireTime        `json:"last_running_at"`
	LastWarmingAt wireTime        `json:"last_warming_at"`
	LastStartedAt wireTime        `json:"last_started_at"`
	LastActiveAt  wireTime        `json:"last_active_at"`
	Config        json.RawMessage `json:"config"`
}

// wireTime tolerates null, absence and nonsense: a time that cannot be read is an unknown time, not a failed call.
type wireTime struct{ time.Time }

func (t *wireTime) UnmarshalJSON(b []byte) error {
	parsed, err := time.Parse(time.RFC3339Nano, strings.Trim(string(b), `"`))
	if err == nil {
		t.Time = parsed
	}
	return nil
}

func (w wireSprite) sprite() Sprite {
	s := Sprite{Name: w.Name, Instance: w.ID, Status: w.Status, Labels: w.Labels, CreatedAt: w.CreatedAt.Time}
	for _, t := range []wireTime{w.LastRunningAt, w.LastWarmingAt, w.LastStartedAt, w.LastActiveAt} {
		if t.After(s.LastActive) {
			s.LastActive = t.Time
		}
	}
	_ = json.Unmarshal(w.Config, &s.Caps) // optional, and only reported
	return s
}

// nameShape is a DNS label. The service takes at most 55 characters; listed names of others may be longer.
var nameShape = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ValidName tells whether name can be a Sprite's: a lower-case DNS label of at most 63 characters.
func ValidName(name string) bool { return nameShape.MatchString(name) }

func checkName(op Operation, name string) error {
	if !ValidName(name) {
		return refused(op, "sprite name is not a DNS label")
	}
	return nil
}

// Get reads a Sprite's record. It never wakes the Sprite. The class is ClassNotFound only when the control plane itself
// answers 404 or 410; whatever else went wrong says nothing about whether the Sprite exists.
func (c *Client) Get(ctx context.Context, name string) (Sprite, error) {
	if err := checkName(OpGet, name); err != nil {
		return Sprite{}, fmt.Errorf("get sprite: %w", err)
	}
	var got Sprite
	err := c.retrying(ctx, OpGet, "", func(ctx context.Context, _ int) error {
		var err error
		got, err = c.getOnce(ctx, name)
		return err
	})
	if err != nil {
		return Sprite{}, fmt.Errorf("get sprite %s: %w", name, err)
	}
	return got, nil
}

// getOnce asks once. An answer about another name is no answer.
func (c *Client) getOnce(ctx context.Context, name string) (Sprite, error) {
	got, err := c.once(ctx, call{op: OpGet, method: http.MethodGet, url: c.spriteURL(name, nil), want: []int{http.StatusOK}})
	if err != nil {
		return Sprite{}, err
	}
	w, err := decode[wireSprite](OpGet, got)
	if err == nil && w.Name != name {
		err = &Error{Op: OpGet, Class: ClassUnavailable, Status: got.status, cause: ErrMalformed}
	}
	if err != nil {
		return Sprite{}, err
	}
	return w.sprite(), nil
}

const (
	listPage     = 50  // the documented maximum
	listPagesMax = 400 // 20,000 Sprites; beyond that the listing is incomplete
)

// List returns the Sprites whose names begin with prefix. It never wakes any. complete is false when the listing was cut
// short, by a bound or by an error (then err is set as well): whoever deletes by it must not.
func (c *Client) List(ctx context.Context, prefix string) (sprites []Sprite, complete bool, err error) {
	type page struct {
		Sprites []wireSprite `json:"sprites"`
		HasMore bool         `json:"has_more"`
		Next    string       `json:"next_continuation_token"`
	}
	token, seen := "", map[string]bool{}
	for range listPagesMax {
		query := url.Values{"max_results": {fmt.Sprint(listPage)}}
		if prefix != "" {
			query.Set("prefix", prefix)
		}
		if token != "" {
			query.Set("continuation_token", token)
		}
		p, err := doJSON[page](ctx, c, call{op: OpList, method: http.MethodGet, url: c.spriteURL("", query), want: []int{http.StatusOK}})
		if err == nil && p.Sprites == nil {
			err = &Error{Op: OpList, Class: ClassUnavailable, Status: http.StatusOK, cause: ErrMalformed}
		}
		if err != nil {
			return sprites, false, fmt.Errorf("list sprites: %w", err)
		}
		for _, w := range p.Sprites {
			sprites = append(sprites, w.sprite())
		}
		if !p.HasMore {
			return sprites, true, nil
		}
		if p.Next == "" || seen[p.Next] { // "more" without a way to it was seen live
			return sprites, false, nil
		}
		seen[p.Next] = true
		token = p.Next
	}
	return sprites, false, nil
}

// Delete deletes a Sprite. That it is gone already is success. It is bounded by a few tries of CallTimeout and never held
// up by the gate. The API has no precondition: the caller makes sure that the name is not in use again.
func (c *Client) Delete(ctx context.Context, name string) error {
	if err := checkName(OpDelete, name); err != nil {
		return fmt.Errorf("delete sprite: %w", err)
	}
	_, err := c.do(ctx, call{
		op: OpDelete, method: http.MethodDelete, url: c.spriteURL(name, nil),
		want: []int{http.StatusNoContent, http.StatusOK, http.StatusAccepted, http.StatusNotFound, http.StatusGone},
	})
	if err != nil {
		return fmt.Errorf("delete sprite %s: %w", name, err)
	}
	return nil
}
