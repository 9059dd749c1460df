package sprites

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// SessionInfo is a listed session. The command is the current one of its process, so it is no identity.
type SessionInfo struct {
	Session
	// TTY tells a terminal from a plain command.
	TTY bool
	// Command is for people to read.
	Command string
}

type wireSession struct {
	ID      json.RawMessage `json:"id"`
	Created json.RawMessage `json:"created"`
	TTY     bool            `json:"tty"`
	Command string          `json:"command"`
}

// Sessions lists a Sprite's running sessions; finished ones vanish at once.
func (c *Client) Sessions(ctx context.Context, sprite string) ([]SessionInfo, error) {
	if err := checkName(OpSessions, sprite); err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	var infos []SessionInfo
	err := c.retrying(ctx, OpSessions, "", func(ctx context.Context, _ int) error {
		var err error
		infos, err = c.sessionsOnce(ctx, OpSessions, sprite)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions of %s: %w", sprite, err)
	}
	return infos, nil
}

// sessionsOnce asks once, on behalf of op.
func (c *Client) sessionsOnce(ctx context.Context, op Operation, sprite string) ([]SessionInfo, error) {
	got, err := c.once(ctx, call{op: op, method: http.MethodGet, url: c.spriteURL(sprite, nil, "exec"), want: []int{http.StatusOK}})
	if err != nil {
		return nil, err
	}
	type listing struct {
		Sessions *[]wireSession `json:"sessions"`
	}
	l, err := decode[listing](op, got)
	if err == nil && l.Sessions == nil { // an empty list is [], not absence
		err = &Error{Op: op, Class: ClassUnavailable, Status: got.status, cause: ErrMalformed}
	}
	if err != nil {
		return nil, err
	}
	infos := make([]SessionInfo, 0, len(*l.Sessions))
	for _, w := range *l.Sessions {
		id := strings.Trim(string(w.ID), `"`)
		if !validSessionID(id) {
			continue
		}
		infos = append(infos, SessionInfo{Session: Session{ID: id, Created: unixTime(w.Created)}, TTY: w.TTY, Command: w.Command})
	}
	return infos, nil
}

// unixTime reads the list's RFC 3339 time, or the number that session_info has. 0 is unknown.
func unixTime(raw json.RawMessage) int64 {
	var seconds int64
	if json.Unmarshal(raw, &seconds) == nil {
		return seconds
	}
	t, err := time.Parse(time.RFC3339Nano, strings.Trim(string(raw), `"`))
	if err != nil {
		return 0
	}
	return t.Unix()
}

// same tells whether two names with one id mean one process. The clock that stamps the list may round the other way than
// the one that stamps session_info, hence a second's tolerance; an unknown time cannot tell them apart.
func (s Session) same(other Session) bool {
	if s.ID != other.ID {
		return false
	}
	d := s.Created - other.Created
	return s.Created == 0 || other.Created == 0 || d >= -1 && d <= 1
}

// listed tells whether s still runs, asking once.
func (c *Client) listed(ctx context.Context, sprite string, s Session) (bool, error) {
	infos, err := c.sessionsOnce(ctx, OpKill, sprite)
	return slices.ContainsFunc(infos, func(info SessionInfo) bool { return s.same(info.Session) }), err
}
