package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Intent is what a request wants of a session.
type Intent string

// The closed set of intents.
const (
	IntentRun Intent = "run"
	IntentEnd Intent = "end"
)

// Valid reports whether i is one of the closed set.
func (i Intent) Valid() bool { return i == IntentRun || i == IntentEnd }

// SessionKind is what a session belongs to.
type SessionKind string

// The closed set of session kinds.
const (
	KindConversation SessionKind = "conversation"
	KindTerminal     SessionKind = "terminal"
)

// SessionKinds lists the closed set. The caller may keep the slice.
func SessionKinds() []SessionKind { return []SessionKind{KindConversation, KindTerminal} }

// Valid reports whether k is one of the closed set.
func (k SessionKind) Valid() bool { return k == KindConversation || k == KindTerminal }

// LinkState is the state of the link between a session and its Sprite.
type LinkState string

// The closed set of link states. LinkCreating and LinkTearingDown are held by one run; whoever asks Decide in one of
// them holds it.
const (
	LinkNone        LinkState = "none"
	LinkCreating    LinkState = "creating"
	LinkLive        LinkState = "live"
	LinkTearingDown LinkState = "tearing_down"
	LinkEnded       LinkState = "ended"
)

// LinkStates lists the closed set. The caller may keep the slice.
func LinkStates() []LinkState {
	return []LinkState{LinkNone, LinkCreating, LinkLive, LinkTearingDown, LinkEnded}
}

// Valid reports whether s is one of the closed set.
func (s LinkState) Valid() bool {
	switch s {
	case LinkNone, LinkCreating, LinkLive, LinkTearingDown, LinkEnded:
		return true
	}
	return false
}

// Presence is what the control plane last said about the Sprite's name. Only a definite answer counts: a DNS error,
// 401, 429, 5xx or a timeout leaves it unknown, so that nothing is created or deleted on a guess.
type Presence string

// The closed set of presences.
const (
	PresenceUnknown Presence = "unknown"
	PresencePresent Presence = "present"
	// PresenceGone is a 404 or 410 and nothing else.
	PresenceGone Presence = "gone"
)

// Valid reports whether p is one of the closed set.
func (p Presence) Valid() bool {
	return p == PresenceUnknown || p == PresencePresent || p == PresenceGone
}

// ReconnectAfter is how long a terminal may be idle before returning to it is a reconnect and not a resume.
const ReconnectAfter = 15 * time.Minute

// DefaultHardExpiry is how long a conversation's Sprite may be idle before it is made anew.
const DefaultHardExpiry = 24 * time.Hour

// Facts is all that Decide looks at. Sequences are those of the request queue; zero means "never".
type Facts struct {
	Intent Intent
	Kind   SessionKind
	// Authorised: the actor may run code here, now. Ignored for an end.
	Authorised bool
	// Denial says why not. It is the plan's reason.
	Denial Reason
	// Authentic: the grant's signature, tenant and session are right. It is all that an end needs.
	Authentic bool
	Link      LinkState
	// Idle is the time since the session was last active; below zero (clocks differ) counts as zero.
	Idle time.Duration
	// HardExpiry is when an idle conversation's Sprite is made anew; 0 or less = never.
	HardExpiry time.Duration
	// FreshStart: the request may revive an ended session.
	FreshStart bool
	// Queued is the request's own sequence, kept through parking.
	Queued uint64
	// EndedSeq is the sequence of the latest end of this session.
	EndedSeq uint64
	// RevivedSeq is the sequence of the fresh start that made the present Sprite.
	RevivedSeq uint64
	Presence   Presence
	// Recreated: this run has created under this key once already after finding the Sprite gone.
	Recreated bool
}

// factsJSON is how facts are written for "worker plan --facts".
type factsJSON struct {
	Intent     Intent      `json:"intent"`
	Kind       SessionKind `json:"kind"`
	Authorised bool        `json:"authorised"`
	Denial     Reason      `json:"denial,omitempty"`
	Authentic  *bool       `json:"authentic,omitempty"`
	Link       LinkState   `json:"link"`
	Idle       string      `json:"idle,omitempty"`
	HardExpiry *string     `json:"hard_expiry,omitempty"`
	FreshStart bool        `json:"fresh_start,omitempty"`
	Queued     uint64      `json:"queued,omitempty"`
	EndedSeq   uint64      `json:"ended_seq,omitempty"`
	RevivedSeq uint64      `json:"revived_seq,omitempty"`
	Presence   Presence    `json:"presence,omitempty"`
	Recreated  bool        `json:"recreated,omitempty"`
}

// MaxFacts is the largest facts document that ParseFacts reads, in bytes.
const MaxFacts = 16 << 10

// ParseFacts reads facts from JSON: durations as "20m", unknown fields refused. Absent: kind is conversation, link
// is none, hard_expiry is DefaultHardExpiry, authentic is what authorised says. All problems are reported at once.
func ParseFacts(data []byte) (Facts, error) {
	if len(data) > MaxFacts {
		return Facts{}, fmt.Errorf("facts are larger than %d bytes", MaxFacts)
	}
	in := factsJSON{Kind: KindConversation, Link: LinkNone, Presence: PresenceUnknown}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return Facts{}, fmt.Errorf("read facts: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Facts{}, errors.New("read facts: something follows the object")
	}
	f := Facts{Intent: in.Intent, Kind: in.Kind, Authorised: in.Authorised, Denial: in.Denial, Authentic: in.Authorised,
		Link: in.Link, HardExpiry: DefaultHardExpiry, FreshStart: in.FreshStart, Queued: in.Queued, EndedSeq: in.EndedSeq,
		RevivedSeq: in.RevivedSeq, Presence: in.Presence, Recreated: in.Recreated}
	if in.Authentic != nil {
		f.Authentic = *in.Authentic
	}
	var errs []error
	span := func(field, text string, to *time.Duration) {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			errs = append(errs, fmt.Errorf("%s: %q is no duration such as 20m", field, text))
			return
		}
		*to = d
	}
	if in.Idle != "" {
		span("idle", in.Idle, &f.Idle)
	}
	if in.HardExpiry != nil {
		span("hard_expiry", *in.HardExpiry, &f.HardExpiry)
	}
	if err := f.Validate(); err != nil {
		errs = append(errs, err)
	}
	return f, errors.Join(errs...)
}

// Validate reports every field that is outside its closed set.
func (f Facts) Validate() error {
	var errs []error
	check := func(ok bool, field string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %q is not one of its values", field, value))
		}
	}
	check(f.Intent.Valid(), "intent", f.Intent)
	check(f.Kind.Valid(), "kind", f.Kind)
	check(f.Link.Valid(), "link", f.Link)
	check(f.Presence == "" || f.Presence.Valid(), "presence", f.Presence)
	check(f.Denial == "" || f.Denial.Valid(), "denial", f.Denial)
	return errors.Join(errs...)
}
