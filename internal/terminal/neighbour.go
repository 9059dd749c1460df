package terminal

import (
	"context"
	"io"
	"time"

	"github.com/wakebus/wakebus/internal/plan"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// Page is what a terminal belongs to. It is comparable and names at most one live shell.
type Page struct{ Tenant, Drive, ID string }

// Role is what a visitor may do.
type Role string

// The closed set of roles: an owner types, a viewer only looks.
const (
	RoleOwner  Role = "owner"
	RoleViewer Role = "viewer"
)

// Visitor is a person as verified from a ticket or a grant. Identity never comes from a frame.
type Visitor struct {
	Page Page
	User string
	Tier plan.Tier
	Role Role
	// Agent is the agent's page when one acts for the user; Origin the web origin that the ticket was bound to.
	Agent, Origin string
	// Grant is the token that terminal.open and later checks carry. It is never logged.
	Grant string
	// Expires is when Grant ends; zero when it does not.
	Expires time.Time
}

// Gatekeeper knows who may use a terminal. Its methods may be called concurrently and touch no sandbox.
type Gatekeeper interface {
	// Admit verifies a ticket once for that origin; page is the one named by the client, which only the development
	// mode believes. Errors: *Refused, else the check could not be made.
	Admit(ctx context.Context, ticket, origin, page string) (Visitor, error)
	// Recheck asks whether an admitted visitor still may. Errors: *Refused when not, else it could not be asked.
	Recheck(ctx context.Context, v Visitor) error
	// Renew exchanges the visitor's grant for a fresh one of the same person and page. Errors as Admit.
	Renew(ctx context.Context, v Visitor, grant string) (Visitor, error)
}

// OpenRequest asks for a slot and an awake sandbox.
type OpenRequest struct {
	ID      string // open_id; one token, never used twice
	Visitor Visitor
	Size    frame.Size
}

// Opened is the answer: the sandbox is awake and the lease waits to be taken until Expires.
type Opened struct {
	Sandbox string
	Lease   string
	Fence   int64
	Expires time.Time
	Fresh   bool // the sandbox was created by this open
}

// Opener publishes terminal.open and waits for its result. It blocks until the result or the end of ctx.
type Opener interface {
	// Open's errors: *Refused for every outcome but opened; else the bus did not answer.
	Open(ctx context.Context, req OpenRequest) (Opened, error)
}

// Shell names a PTY session in a sandbox. Session ids are process ids and come round again, so Created belongs to it.
type Shell struct {
	ID      string
	Created int64
}

// PTY is one attachment to a shell. Read, Write, Resize and Close may each be called concurrently with the others;
// Close unblocks them. Read returns io.EOF once the shell has ended and any other error when only the attachment did.
type PTY interface {
	io.ReadWriteCloser
	Resize(size frame.Size) error
	// Exit is the shell's exit code, and whether it is known.
	Exit() (code int, known bool)
	Shell() Shell
}

// Shells opens PTYs in sandboxes. Errors wrap ErrShellGone when the shell or sandbox is known not to exist.
type Shells interface {
	// Wake brings a sandbox up; it may be asleep.
	Wake(ctx context.Context, sandbox string) error
	// Open starts a shell that outlives its attachments by keep.
	Open(ctx context.Context, v Visitor, sandbox string, size frame.Size, keep time.Duration) (PTY, error)
	// Attach joins a running shell; what the sandbox kept of its output comes first.
	Attach(ctx context.Context, sandbox string, shell Shell) (PTY, error)
	// Kill ends a shell and all it runs. A shell that is gone is success.
	Kill(ctx context.Context, sandbox string, shell Shell) error
}

// Record says which shell a page has and which gateway answers for it.
type Record struct {
	Sandbox string
	Gateway string // the holder; empty when nobody answers for the shell
	Lease   string
	Fence   int64
	Shell   Shell // zero while the holder is still opening it
}

// Records keeps the pages' records; each change is a compare-and-set on the revision that was read.
type Records interface {
	// Load reads a page's record. ErrNoRecord when there is no link; a link without a shell gives an empty Record.
	Load(ctx context.Context, page Page) (Record, uint64, error)
	// Save replaces it and returns the new revision. ErrConflict when rev is not the latest.
	Save(ctx context.Context, page Page, rec Record, rev uint64) (uint64, error)
}

// Lease is a terminal's slot, held and renewed in the background until Release or Forget.
type Lease interface {
	Fence() int64
	// Done ends, with a *LeaseEnded as its cause, when the lease was transferred or revoked; an outage does not end it.
	Done() context.Context
	// Release gives the slot back. It may be called more than once.
	Release(ctx context.Context) error
	// Forget stops renewing and gives nothing back: somebody else holds it now, or will.
	Forget()
}

// Leases counts terminals. Errors are *Refused when it is full, else the counter could not be asked.
type Leases interface {
	// Take acquires the lease id for this gateway, which transfers a live one. With force it may go over its limit by
	// one: the shell runs already, and refusing would not end it.
	Take(ctx context.Context, id string, v Visitor, sandbox string, force bool) (Lease, error)
	// Drop gives a slot back that this gateway never took.
	Drop(ctx context.Context, id string, fence int64) error
	// Live reports whether the lease has not expired.
	Live(ctx context.Context, id string) (bool, error)
	// Renewed reports whether its holder also renews it as due; one who does not is dead or cut off.
	Renewed(ctx context.Context, id string) (bool, error)
}

// Journal is told of what the audit must know. It never fails and does not block for long.
type Journal interface {
	// Terminal records that a person's terminal was opened or closed, and why.
	Terminal(ctx context.Context, kind, id string, v Visitor, sandbox, outcome string)
}
