package guest

import "time"

// Isolation says how the machine is kept apart from its host.
type Isolation string

// The two ways to keep a machine apart.
const (
	Namespace Isolation = "namespace"
	Mapped    Isolation = "mapped"
)

// Paths that every machine has, as seen from inside.
const (
	Home      = "/home/sprite"
	Workspace = "/workspace"
	User      = "sprite"
	UserID    = 1000
)

type bootArgs struct {
	Isolation Isolation `json:"isolation"`
	Folder    string    `json:"folder"`
	Hostname  string    `json:"hostname"`
	Workspace string    `json:"workspace,omitempty"`
}

// Command is what Exec starts.
type Command struct {
	// Path is the executable, looked up in the PATH of Env where it has no
	// slash. Defaults to Argv[0].
	Path string `json:"path"`
	// Argv is the argument vector including argv[0]; at least one item.
	Argv []string `json:"argv"`
	// Env is the whole environment, KEY=VALUE. Defaults to an empty one.
	Env []string `json:"env"`
	// Dir is the working directory. Defaults to /home/sprite.
	Dir string `json:"dir"`
	// TTY gives the command a pseudo terminal. Defaults to pipes.
	TTY bool `json:"tty"`
	// Rows and Cols are the terminal's size in characters. Default to 24 and 80.
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

type execReply struct {
	PID int `json:"pid"`
}

type exitBody struct {
	PID  int `json:"pid"`
	Code int `json:"code"`
}

type signalArgs struct {
	PID   int  `json:"pid"`
	Sig   int  `json:"sig"`
	Group bool `json:"group"`
}

type dialArgs struct {
	Address string        `json:"address"`
	Timeout time.Duration `json:"timeout"`
}

// Port is one listening TCP socket inside the machine.
type Port struct {
	Port    int    `json:"port"`
	Address string `json:"address"`
	PID     int    `json:"pid"`
}

// Entry describes one file as the filesystem API lists it.
type Entry struct {
	Name    string    `json:"name"`
	Path    string    `json:"path"`
	Type    string    `json:"type"`
	Size    int64     `json:"size"`
	Mode    string    `json:"mode"`
	ModTime time.Time `json:"modTime"`
	IsDir   bool      `json:"isDir"`
}

// OpenArgs says which file Open opens and how.
type OpenArgs struct {
	Path string `json:"path"`
	// Write truncates or creates the file; else it is opened for reading.
	Write bool `json:"write,omitempty"`
	// Mode is set on the file when writing, whether or not it existed.
	Mode uint32 `json:"mode,omitempty"`
	// Parents makes missing parent directories when writing.
	Parents bool `json:"parents,omitempty"`
}

// TreeArgs name a path and how far an operation reaches below it.
type TreeArgs struct {
	Path      string `json:"path"`
	Dest      string `json:"dest,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
	Pattern   string `json:"pattern,omitempty"`
	Mode      uint32 `json:"mode,omitempty"`
	UID       int    `json:"uid,omitempty"`
	GID       int    `json:"gid,omitempty"`
	Preserve  bool   `json:"preserve,omitempty"`
}

// TreeResult lists what an operation touched. Pairs of a copy are Paths[i] to Dests[i].
type TreeResult struct {
	Entries []Entry  `json:"entries,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	Dests   []string `json:"dests,omitempty"`
	Bytes   int64    `json:"bytes,omitempty"`
}

// WatchArgs say what Watch looks at.
type WatchArgs struct {
	Paths     []string `json:"paths"`
	Recursive bool     `json:"recursive,omitempty"`
}

// WatchEvent is one change below a watched path. Event is write, create,
// remove, rename or chmod.
type WatchEvent struct {
	Path  string    `json:"path"`
	Event string    `json:"event"`
	Time  time.Time `json:"timestamp"`
	Size  int64     `json:"size"`
	IsDir bool      `json:"isDir"`
}

// What can be wrong with /workspace, as a fault; "" is a folder of the user.
const (
	WorkspaceMissing = "missing"
	WorkspaceForeign = "foreign"
)
