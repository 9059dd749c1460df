package guest

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Errors of this package.
var (
	// ErrNotHooked says that the running binary never called MaybeInit, so it
	// cannot be started again as an init.
	ErrNotHooked = errors.New("the binary does not call MaybeInit first thing in main or TestMain")
	// ErrGone says that the init has ended; nothing of the machine lives on.
	ErrGone = errors.New("machine is gone")
	// ErrProtocol says that host and init disagree; it is a defect of ours.
	ErrProtocol = errors.New("unexpected message between host and init")
	// ErrTooLarge says that a message or a listing passed its bound.
	ErrTooLarge = errors.New("too large")
	// ErrNamespaces says that the host refused the namespaces or a mount.
	ErrNamespaces = errors.New("host refuses namespaces")
	// ErrOutside says that a path is outside the folders a mapped machine owns.
	ErrOutside = errors.New("path is outside of /workspace and /home/sprite")
)

// Failure is an error that happened inside the machine, as it crosses to the
// host. Code is the errno name ("ENOENT"), or "" where there was none.
type Failure struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
	Path    string `json:"path,omitempty"`
}

// Error is the message alone; Code is for programs.
func (f *Failure) Error() string { return f.Message }

// Is makes errors.Is(err, fs.ErrNotExist) and its siblings hold for failures
// that crossed the socket.
func (f *Failure) Is(target error) bool {
	switch f.Code {
	case "ENOENT":
		return target == fs.ErrNotExist
	case "EEXIST":
		return target == fs.ErrExist
	case "EACCES", "EPERM":
		return target == fs.ErrPermission
	}
	return false
}

func failure(err error) *Failure {
	if err == nil {
		return nil
	}
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	f = &Failure{Message: err.Error()}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		f.Path = pe.Path
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		f.Path = le.Old
	}
	var no syscall.Errno
	switch {
	case errors.As(err, &no):
		f.Code = unix.ErrnoName(no)
	case errors.Is(err, ErrOutside):
		f.Code = "EACCES"
	case errors.Is(err, fs.ErrNotExist):
		f.Code = "ENOENT"
	case errors.Is(err, fs.ErrPermission):
		f.Code = "EACCES"
	}
	return f
}
