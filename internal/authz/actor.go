package authz

import (
	"time"

	"github.com/wakebus/wakebus/internal/plan"
)

// Role is what a terminal's viewer may do.
type Role string

// The closed set of roles. An owner types; a viewer watches.
const (
	RoleOwner  Role = "owner"
	RoleViewer Role = "viewer"
)

// Valid reports whether r is one of the closed set.
func (r Role) Valid() bool { return r == RoleOwner || r == RoleViewer }

// Actor is who a request was verified to come from.
type Actor struct {
	Tenant       string
	User         string
	Tier         plan.Tier
	Drive        string
	AgentPage    string
	Conversation string
	Page         string
	// Origin is the web origin that a ticket is bound to.
	Origin string
	// Role is set for tickets.
	Role Role
	// Operator is who asked for a replay; the other fields are the original actor's.
	Operator string
	// Expires is when the grant ends; zero in dev mode without one.
	Expires time.Time
	// ID is the grant's jti.
	ID string
}

// Action is what is asked for.
type Action string

// The closed set of actions. The first four are also the callout's.
const (
	ActionExec      Action = "exec"
	ActionTerminal  Action = "terminal"
	ActionFileRead  Action = "file_read"
	ActionFileWrite Action = "file_write"
	// ActionEnd needs an authentic grant, neither a valid verdict nor a valid exp nor the kill switch.
	ActionEnd Action = "end"
	// ActionReplay needs an operator's grant; see Replay.
	ActionReplay Action = "replay"
)

// Valid reports whether a is one of the closed set.
func (a Action) Valid() bool {
	switch a {
	case ActionExec, ActionTerminal, ActionFileRead, ActionFileWrite, ActionEnd, ActionReplay:
		return true
	}
	return false
}

// Ask is a request, as far as authorisation looks at it. Tenant comes from the subject; the rest from the body, whose
// word counts only where the grant says the same.
type Ask struct {
	Action Action
	// Tenant is the subject's token; plan.NoTenant when it has none.
	Tenant string
	// Grant is the Sandbox-Grant header.
	Grant string
	// BodySHA is the hex SHA-256 of the body; "" where there is none to bind to.
	BodySHA string
	// Conversation or Page is the session; exactly one is set, except for a replay, which names only its job.
	Conversation, Page string
	Drive              string
	// Job is the job_id, or the open_id of a terminal; "" for files.
	Job string
	// At is the request's stream time at its first dequeue: expiry is compared with it, so that a backlog denies nobody.
	At time.Time
}
