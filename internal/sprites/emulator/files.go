package emulator

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"time"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

// maxFile bounds one write; a Sprite's own limit is its disk.
const maxFile = 4 << 30

type fileFailure struct {
	Error string `json:"error"`
	Code  string `json:"code,omitempty"`
	Path  string `json:"path,omitempty"`
}

func (x *exchange) guest() *guest.Machine {
	x.sprite.mu.Lock()
	defer x.sprite.mu.Unlock()
	return x.sprite.machine
}

// machineForFiles answers 503 itself when there is none.
func (x *exchange) machineForFiles() *guest.Machine {
	m := x.guest()
	if m == nil {
		x.json(http.StatusServiceUnavailable, fileFailure{Error: "filesystem is not available"})
	}
	return m
}

// fileError answers a failed call: 404 for what is not there, 400 for what the
// request got wrong, 403 for rights, else 500.
func (x *exchange) fileError(err error, at string) {
	var f *guest.Failure
	if !errors.As(err, &f) {
		x.json(http.StatusInternalServerError, fileFailure{Error: err.Error(), Path: at})
		return
	}
	status := http.StatusInternalServerError
	switch f.Code {
	case "ENOENT":
		status = http.StatusNotFound
	case "EACCES", "EPERM", "EROFS":
		status = http.StatusForbidden
	case "EEXIST", "ENOTDIR", "EISDIR", "ENOTEMPTY", "EINVAL":
		status = http.StatusBadRequest
	}
	x.json(status, fileFailure{Error: f.Message, Code: f.Code, Path: at})
}

// at resolves p against workingDir ("/" where absent).
func at(workingDir, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	if workingDir == "" {
		workingDir = "/"
	}
	return path.Join("/", workingDir, p)
}

func (x *exchange) queryPath() (string, bool) {
	q := x.r.URL.Query()
	if q.Get("path") == "" {
		x.json(http.StatusBadRequest, fileFailure{Error: "path is required", Code: "EINVAL"})
		return "", false
	}
	return at(q.Get("workingDir"), q.Get("path")), true
}

func (x *exchange) readFile() {
	p, ok := x.queryPath()
	if !ok {
		return
	}
	m := x.machineForFiles()
	if m == nil {
		return
	}
	f, e, err := m.Open(guest.OpenArgs{Path: p})
	if err != nil {
		x.fileError(err, p)
		return
	}
	defer func() { _ = f.Close() }()
	x.w.Header().Set("Content-Type", "application/octet-stream")
	if e.Type == "file" && e.Size > 0 {
		x.w.Header().Set("Content-Length", strconv.FormatInt(e.Size, 10))
		_, _ = io.CopyN(x.w, f, e.Size)
		return
	}
	_, _ = io.Copy(x.w, f) // /proc files say size 0
}

func (x *exchange) writeFile() {
	p, ok := x.queryPath()
	if !ok {
		return
	}
	q := x.r.URL.Query()
	mode, err := parseMode(q.Get("mode"), 0o644)
	if err != nil {
		x.json(http.StatusBadRequest, fileFailure{Error: err.Error(), Code: "EINVAL", Path: p})
		return
	}
	m := x.machineForFiles()
	if m == nil {
		return
	}
	// Two names for one flag (docs: mkdir, SDKs: mkdirParents); js leaves it out
	// and means yes.
	parents := q.Get("mkdirParents") != "false" && q.Get("mkdir") != "false"
	f, _, err := m.Open(guest.OpenArgs{Path: p, Write: true, Parents: parents, Mode: mode})
	if err != nil {
		x.fileError(err, p)
		return
	}
	n, err := io.Copy(f, http.MaxBytesReader(x.w, x.r.Body, maxFile))
	if err = errors.Join(err, f.Close()); err != nil {
		x.fileError(err, p)
		return
	}
	x.json(http.StatusOK, map[string]any{"path": p, "size": n, "mode": fmt.Sprintf("%04o", mode)})
}

func parseMode(v string, d uint32) (uint32, error) {
	if v == "" {
		return d, nil
	}
	n, err := strconv.ParseUint(v, 8, 32)
	if err != nil || n > 0o7777 {
		return 0, fmt.Errorf("invalid mode %q", v)
	}
	return uint32(n), nil
}

func (x *exchange) listFiles() {
	p, ok := x.queryPath()
	if !ok {
		return
	}
	m := x.machineForFiles()
	if m == nil {
		return
	}
	q := x.r.URL.Query()
	res, err := m.List(guest.TreeArgs{Path: p, Recursive: q.Get("recursive") == "true", Pattern: q.Get("pattern")})
	if err != nil {
		x.fileError(err, p)
		return
	}
	if res.Entries == nil {
		res.Entries = []guest.Entry{}
	}
	for i := range res.Entries {
		res.Entries[i].ModTime = res.Entries[i].ModTime.Truncate(time.Microsecond)
	}
	x.json(http.StatusOK, map[string]any{"path": p, "entries": res.Entries, "count": len(res.Entries)})
}
