package guest

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a file as the guest would and hands it over with its description;
// the caller closes it.
func (m *Machine) Open(o OpenArgs) (*os.File, Entry, error) {
	a, err := m.call(opOpen, o)
	if err != nil {
		return nil, Entry{}, err
	}
	var e Entry
	if err := json.Unmarshal(a.msg.Body, &e); err != nil || len(a.files) != 1 {
		closeAll(a.files)
		return nil, Entry{}, ErrProtocol
	}
	return a.files[0], e, nil
}

func (m *Machine) tree(op string, t TreeArgs) (TreeResult, error) {
	a, err := m.call(op, t)
	if err != nil {
		return TreeResult{}, err
	}
	var r TreeResult
	return r, json.Unmarshal(a.msg.Body, &r)
}

// List gives a folder's children, or a file's own entry.
func (m *Machine) List(t TreeArgs) (TreeResult, error) { return m.tree(opList, t) }

// Delete removes a file or, when Recursive, a tree.
func (m *Machine) Delete(t TreeArgs) (TreeResult, error) { return m.tree(opDelete, t) }

// Rename moves Path to Dest.
func (m *Machine) Rename(t TreeArgs) (TreeResult, error) { return m.tree(opRename, t) }

// Copy copies Path to Dest.
func (m *Machine) Copy(t TreeArgs) (TreeResult, error) { return m.tree(opCopy, t) }

// Chmod sets Mode.
func (m *Machine) Chmod(t TreeArgs) (TreeResult, error) { return m.tree(opChmod, t) }

// Chown sets UID and GID; -1 leaves one as it is.
func (m *Machine) Chown(t TreeArgs) (TreeResult, error) { return m.tree(opChown, t) }

// Watch returns once the paths are watched. The file yields one JSON WatchEvent
// a line; closing it ends the watch.
func (m *Machine) Watch(w WatchArgs) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make watch socket: %w", err)
	}
	defer func() { _ = unix.Close(fds[1]) }()
	if _, err := m.call(opWatch, w, fds[1]); err != nil {
		_ = unix.Close(fds[0])
		return nil, err
	}
	_ = unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "watch"), nil
}
