package emulator

import (
	"encoding/json"
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

// fileBody is the body of the mutators; each reads what it needs.
type fileBody struct {
	Path       string          `json:"path"`
	Source     string          `json:"source"`
	Dest       string          `json:"dest"`
	WorkingDir string          `json:"workingDir"`
	Mode       json.RawMessage `json:"mode"`
	UID        json.RawMessage `json:"uid"`
	GID        json.RawMessage `json:"gid"`
	Recursive  bool            `json:"recursive"`
	Preserve   bool            `json:"preserveAttrs"`
}

func (x *exchange) deleteFile() {
	var b fileBody
	if err := x.body(&b); err != nil {
		x.json(http.StatusBadRequest, fileFailure{Error: err.Error(), Code: "EINVAL"})
		return
	}
	// SDKs put the keys into the query, the reference into the body.
	if q := x.r.URL.Query(); q.Get("path") != "" {
		b.Path, b.WorkingDir, b.Recursive = q.Get("path"), q.Get("workingDir"), q.Get("recursive") == "true"
	}
	p := at(b.WorkingDir, b.Path)
	m, ok := x.mutator(b.Path)
	if !ok {
		return
	}
	res, err := m.Delete(guest.TreeArgs{Path: p, Recursive: b.Recursive})
	if err != nil {
		x.fileError(err, p)
		return
	}
	x.json(http.StatusOK, map[string]any{"deleted": res.Paths, "count": len(res.Paths)})
}

// mutator answers itself when it gives false.
func (x *exchange) mutator(required ...string) (*guest.Machine, bool) {
	for _, v := range required {
		if v == "" {
			x.json(http.StatusBadRequest, fileFailure{Error: "path is required", Code: "EINVAL"})
			return nil, false
		}
	}
	m := x.machineForFiles()
	return m, m != nil
}

// decodeFile answers itself when it gives false.
func (x *exchange) decodeFile(b *fileBody) bool {
	if err := x.body(b); err != nil {
		x.json(http.StatusBadRequest, fileFailure{Error: err.Error(), Code: "EINVAL"})
		return false
	}
	return true
}

func (x *exchange) renameFile() {
	var b fileBody
	if !x.decodeFile(&b) {
		return
	}
	m, ok := x.mutator(b.Source, b.Dest)
	if !ok {
		return
	}
	from, to := at(b.WorkingDir, b.Source), at(b.WorkingDir, b.Dest)
	if _, err := m.Rename(guest.TreeArgs{Path: from, Dest: to}); err != nil {
		x.fileError(err, from)
		return
	}
	x.json(http.StatusOK, map[string]string{"source": from, "dest": to})
}

func (x *exchange) copyFile() {
	var b fileBody
	if !x.decodeFile(&b) {
		return
	}
	m, ok := x.mutator(b.Source, b.Dest)
	if !ok {
		return
	}
	from, to := at(b.WorkingDir, b.Source), at(b.WorkingDir, b.Dest)
	res, err := m.Copy(guest.TreeArgs{Path: from, Dest: to, Recursive: b.Recursive, Preserve: b.Preserve})
	if err != nil {
		x.fileError(err, from)
		return
	}
	copied := []map[string]string{}
	for i := range res.Paths {
		copied = append(copied, map[string]string{"source": res.Paths[i], "dest": res.Dests[i]})
	}
	x.json(http.StatusOK, map[string]any{"copied": copied, "count": len(copied), "totalBytes": res.Bytes})
}

func (x *exchange) chmodFile() {
	var b fileBody
	if !x.decodeFile(&b) {
		return
	}
	mode, err := modeOf(b.Mode)
	if err != nil {
		x.json(http.StatusBadRequest, fileFailure{Error: err.Error(), Code: "EINVAL", Path: b.Path})
		return
	}
	m, ok := x.mutator(b.Path)
	if !ok {
		return
	}
	p := at(b.WorkingDir, b.Path)
	res, err := m.Chmod(guest.TreeArgs{Path: p, Mode: mode, Recursive: b.Recursive})
	if err != nil {
		x.fileError(err, p)
		return
	}
	affected := []map[string]string{}
	for _, a := range res.Paths {
		affected = append(affected, map[string]string{"path": a, "mode": fmt.Sprintf("%04o", mode)})
	}
	x.json(http.StatusOK, map[string]any{"affected": affected, "count": len(affected)})
}

// modeOf takes octal text, and a plain number as ex sends it.
func modeOf(raw json.RawMessage) (uint32, error) {
	var n uint32
	if json.Unmarshal(raw, &n) == nil && n <= 0o7777 {
		return n, nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil || s == "" {
		return 0, fmt.Errorf("invalid mode %s", raw)
	}
	return parseMode(s, 0)
}

func (x *exchange) chownFile() {
	var b fileBody
	if !x.decodeFile(&b) {
		return
	}
	uid, errU := idOf(b.UID)
	gid, errG := idOf(b.GID)
	if err := errors.Join(errU, errG); err != nil {
		x.json(http.StatusBadRequest, fileFailure{Error: err.Error(), Code: "EINVAL", Path: b.Path})
		return
	}
	m, ok := x.mutator(b.Path)
	if !ok {
		return
	}
	p := at(b.WorkingDir, b.Path)
	res, err := m.Chown(guest.TreeArgs{Path: p, UID: uid, GID: gid, Recursive: b.Recursive})
	if err != nil {
		x.fileError(err, p)
		return
	}
	affected := []map[string]any{}
	for _, a := range res.Paths {
		affected = append(affected, map[string]any{"path": a, "uid": uid, "gid": gid})
	}
	x.json(http.StatusOK, map[string]any{"affected": affected, "count": len(affected)})
}

// idOf takes a number, the name of the machine's user, or nothing (-1).
func idOf(raw json.RawMessage) (int, error) {
	var n int
	var s string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return -1, nil
	case json.Unmarshal(raw, &n) == nil:
		return n, nil
	case json.Unmarshal(raw, &s) == nil && s == guest.User:
		return guest.UserID, nil
	case s == "root":
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("unknown user or group %s", raw)
	}
	return n, nil
}
