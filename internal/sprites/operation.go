package sprites

// Operation names what is asked of the Sprites API. Retries, back-pressure and metrics are kept per operation.
type Operation string

// The operations. The set is closed: each has a row in the retry table.
const (
	OpGet         Operation = "get"         // read one Sprite's record; never wakes it
	OpList        Operation = "list"        // list Sprites; never wakes any
	OpCreate      Operation = "create"      // create a Sprite
	OpDelete      Operation = "delete"      // delete a Sprite
	OpExec        Operation = "exec"        // open a command's or terminal's socket
	OpProbe       Operation = "probe"       // our own repeatable commands: wake, warm-up, reading a guard file
	OpAttach      Operation = "attach"      // re-open a session's socket
	OpKill        Operation = "kill"        // signal a session
	OpSessions    Operation = "sessions"    // list a Sprite's sessions
	OpFiles       Operation = "files"       // read, write, chmod
	OpPolicy      Operation = "policy"      // read or replace the network policy
	OpCheckpoint  Operation = "checkpoint"  // create or restore a checkpoint
	OpCheckpoints Operation = "checkpoints" // list checkpoints
)

// Operations returns every operation, in the order they are declared.
func Operations() []Operation {
	return []Operation{
		OpGet, OpList, OpCreate, OpDelete, OpExec, OpProbe, OpAttach, OpKill, OpSessions, OpFiles, OpPolicy,
		OpCheckpoint, OpCheckpoints,
	}
}

// gated tells whether the gate may hold the operation up. Ending things is never held up: a closed gate must not keep a
// command running or a sandbox billed.
func (o Operation) gated() bool {
	switch o {
	case OpDelete, OpKill:
		return false
	case OpGet, OpList, OpCreate, OpExec, OpProbe, OpAttach, OpSessions, OpFiles, OpPolicy, OpCheckpoint, OpCheckpoints:
		return true
	}
	return true
}
