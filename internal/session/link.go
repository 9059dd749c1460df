package session

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// Link is what is stored for a session.
type Link struct {
	V     int            `json:"v"`
	State plan.LinkState `json:"state"`
	// Sandbox is the Sprite's name. It is stored, so that a rotated secret renames nobody.
	Sandbox string `json:"sandbox,omitempty"`
	// Instance is the provider's id of the Sprite.
	Instance string `json:"instance,omitempty"`
	// Generation counts restores; with Instance and PolicyHash it is the proof of the egress lockdown.
	Generation int    `json:"generation,omitempty"`
	PolicyHash string `json:"policy_hash,omitempty"`
	SetupDone  bool   `json:"setup_done,omitempty"`
	HasBash    bool   `json:"has_bash,omitempty"`

	Kind   plan.SessionKind `json:"kind"`
	Tenant string           `json:"tenant"`
	Drive  string           `json:"drive,omitempty"`
	// ID is the conversation or the page.
	ID string `json:"id"`

	CreatedAt  time.Time `json:"created_at,omitzero"`
	LastActive time.Time `json:"last_active,omitzero"`
	// Holder is the run that holds creating or tearing_down, "tenant/job.run"; HolderSeq its queue sequence; HeldAt when
	// it took hold.
	Holder    string    `json:"holder,omitempty"`
	HolderSeq uint64    `json:"holder_seq,omitempty"`
	HeldAt    time.Time `json:"held_at,omitzero"`
	// EndedSeq is the queue sequence of the latest end. In tearing_down it says that the session is ending.
	EndedSeq uint64    `json:"ended_seq,omitempty"`
	EndedAt  time.Time `json:"ended_at,omitzero"`
	// RevivedSeq is the queue sequence of the fresh start that made the present Sprite; an older end is too late.
	RevivedSeq uint64     `json:"revived_seq,omitempty"`
	PTY        *PTYRecord `json:"pty,omitempty"`
	// Reclaim is set while a tear-down is not confirmed.
	Reclaim *Reclaim `json:"reclaim,omitempty"`
}

// PTYRecord is a terminal's live session: enough for any gateway to attach to it.
type PTYRecord struct {
	Gateway string `json:"gateway"`
	Lease   string `json:"lease"`
	Fence   int64  `json:"fence"`
	// Session is the provider's session id. Ids come round again, so Created tells one from the next.
	Session string `json:"session,omitempty"`
	Created int64  `json:"created,omitempty"`
	// Open is the open_id that made it; User whose it is.
	Open string `json:"open,omitempty"`
	User string `json:"user,omitempty"`
	Cols int    `json:"cols,omitempty"`
	Rows int    `json:"rows,omitempty"`
	// URL is where its gateway answers its peers, if it does.
	URL       string    `json:"url,omitempty"`
	OpenedAt  time.Time `json:"opened_at,omitzero"`
	RenewedAt time.Time `json:"renewed_at,omitzero"`
}

// Reclaim is the record of a tear-down that was tried and not confirmed.
type Reclaim struct {
	Tries int       `json:"tries"`
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	// Class is the last failure's class, never its text, which may hold secrets.
	Class string `json:"class,omitempty"`
}

// MaxLink is the largest stored link that is read, in bytes.
const MaxLink = 16 << 10

const linkVersion = 1

// ParseLink reads a stored link. Fields that it does not know are skipped, so that a newer worker's links can be read.
func ParseLink(data []byte) (Link, error) {
	var l Link
	if len(data) > MaxLink {
		return Link{}, fmt.Errorf("read session link: it is larger than %d bytes", MaxLink)
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return Link{}, fmt.Errorf("read session link: %w", err)
	}
	switch {
	case l.V != linkVersion:
		return Link{}, fmt.Errorf("read session link: version %d is not known", l.V)
	case !l.State.Valid() || l.State == plan.LinkNone:
		return Link{}, fmt.Errorf("read session link: state %q is not known", l.State)
	case held(l.State) && l.Holder == "":
		return Link{}, fmt.Errorf("read session link: it is %s by nobody", l.State)
	}
	return l, nil
}

// Key is the session that the link belongs to.
func (l Link) Key() Key { return Key{Kind: l.Kind, Tenant: l.Tenant, Drive: l.Drive, ID: l.ID} }
