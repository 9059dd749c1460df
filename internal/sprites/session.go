package sprites

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
	type listing struct {
		Sessions *[]wireSession `json:"sessions"`
	}
	l, err := doJSON[listing](ctx, c, call{
		op: OpSessions, method: http.MethodGet, url: c.spriteURL(sprite, nil, "exec"), want: []int{http.StatusOK},
	})
	if err == nil && l.Sessions == nil { // an empty list is [], not absence
		err = &Error{Op: OpSessions, Class: ClassUnavailable, Status: http.StatusOK, cause: ErrMalformed}
	}
	if err != nil {
		return nil, fmt.Errorf("list sessions of %s: %w", sprite, err)
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

// find returns the listed session which is s, if it still runs.
func (c *Client) find(ctx context.Context, sprite string, s Session) (SessionInfo, bool, error) {
	infos, err := c.Sessions(ctx, sprite)
	if err != nil {
		return SessionInfo{}, false, err
	}
	for _, info := range infos {
		if s.same(info.Session) {
			return info, true, nil
		}
	}
	return SessionInfo{}, false, nil
}
