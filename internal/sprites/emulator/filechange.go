package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

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
