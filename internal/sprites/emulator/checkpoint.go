package emulator

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

// checkpoint is a copy of a Sprite's files.
type checkpoint struct {
	ID      string    `json:"id"`
	Created time.Time `json:"create_time"`
	Comment string    `json:"comment,omitempty"`
	Source  string    `json:"source_id,omitempty"`
	Auto    bool      `json:"is_auto,omitempty"`
}

// maxCheckpoints bounds what one Sprite keeps; the next one is refused.
const maxCheckpoints = 64

func checkpointRoutes() []route {
	return []route{
		{"POST", spritePath + "/checkpoint", "checkpoint.create", true, (*exchange).createCheckpoint},
		{"GET", spritePath + "/checkpoints", "checkpoint.list", true, (*exchange).listCheckpoints},
		{"GET", spritePath + "/checkpoints/{id}", "checkpoint.get", true, (*exchange).getCheckpoint},
		{"POST", spritePath + "/checkpoints/{id}/restore", "checkpoint.restore", true, (*exchange).restoreCheckpoint},
	}
}

type progress struct {
	Type  string `json:"type"`
	Data  string `json:"data,omitempty"`
	Error string `json:"error,omitempty"`
	Time  string `json:"time"`
}

func (x *exchange) progress(out *stream, kind, format string, args ...any) {
	line := progress{Type: kind, Time: x.srv.cfg.Clock.Now().UTC().Format(time.RFC3339Nano)}
	if text := fmt.Sprintf(format, args...); kind == "error" {
		line.Error = text
	} else {
		line.Data = text
	}
	_ = out.send(line) // who left does not stop what was begun
}

func (x *exchange) createCheckpoint() {
	var b struct{ Comment string }
	if err := x.body(&b); err != nil {
		x.text(http.StatusBadRequest, "%v", err)
		return
	}
	out := x.ndjson()
	x.progress(out, "info", "Creating checkpoint...")
	c, err := x.sprite.checkpoint(b.Comment)
	if err != nil {
		x.progress(out, "error", "failed to create checkpoint: %v", err)
		return
	}
	x.progress(out, "info", "Checkpoint created successfully")
	x.progress(out, "info", "  ID: %s", c.ID)
	x.progress(out, "complete", "Checkpoint %s created successfully", c.ID)
}

// checkpoint holds the Sprite's lock for the copy, and its processes still.
func (sp *sprite) checkpoint(comment string) (checkpoint, error) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if len(sp.rec.Checkpoints) >= maxCheckpoints {
		return checkpoint{}, fmt.Errorf("checkpoint %s: there are %d already", sp.name, maxCheckpoints)
	}
	c := checkpoint{Created: sp.srv.cfg.Clock.Now(), Comment: comment, ID: "v1"}
	if n := len(sp.rec.Checkpoints); n > 0 {
		c.Source = sp.rec.Checkpoints[n-1].ID
		c.ID = fmt.Sprintf("v%d", n+1)
	}
	if m := sp.machine; m != nil {
		if err := m.Freeze(); err != nil {
			return c, err
		}
		defer func() { _ = m.Thaw() }()
	}
	dest := sp.checkpointFolder(c.ID)
	if err := sp.copyTrees(sp.machineFolder(), dest); err != nil {
		return c, errors.Join(fmt.Errorf("copy files: %w", err), removeTree(dest))
	}
	sp.rec.Checkpoints = append(sp.rec.Checkpoints, c)
	sp.save()
	return c, nil
}

func (sp *sprite) checkpointFolder(id string) string {
	return filepath.Join(sp.folder, "checkpoints", id)
}

func (sp *sprite) copyTrees(from, to string) error {
	for _, tree := range []string{guest.Workspace, guest.Home} {
		if err := copyTree(filepath.Join(from, tree), filepath.Join(to, tree)); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies folders, files and links with modes and times. Sockets and
// pipes are left out: they mean nothing without their processes.
func copyTree(from, to string) error {
	var folders []func() error // modes and times of folders come last: children change them
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		dest := filepath.Join(to, strings.TrimPrefix(p, from))
		switch {
		case st.IsDir():
			folders = append(folders, func() error {
				return errors.Join(os.Chmod(dest, st.Mode().Perm()), os.Chtimes(dest, st.ModTime(), st.ModTime()))
			})
			return os.MkdirAll(dest, 0o755)
		case st.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return os.Symlink(target, dest)
		case st.Mode().IsRegular():
			return copyFileTo(p, dest, st)
		default:
			return nil
		}
	})
	slices.Reverse(folders)
	for _, f := range folders {
		err = errors.Join(err, f())
	}
	return err
}

func copyFileTo(from, to string, st fs.FileInfo) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Chmod(st.Mode().Perm()), dst.Close(), os.Chtimes(to, st.ModTime(), st.ModTime()))
}

func (sp *sprite) checkpoints() []checkpoint {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return append([]checkpoint{}, sp.rec.Checkpoints...)
}

func (x *exchange) listCheckpoints() {
	list := x.sprite.checkpoints()
	if x.r.URL.Query().Get("history") != "" {
		// Text for people; go takes the type as a refusal.
		lines := make([]string, len(list))
		for i, c := range list {
			lines[i] = c.ID + " " + stamp(c.Created) + " " + c.Comment
		}
		x.text(http.StatusOK, "%s", strings.Join(lines, "\n"))
		return
	}
	x.json(http.StatusOK, list)
}

func (x *exchange) findCheckpoint() (checkpoint, bool) {
	id := x.r.PathValue("id")
	for _, c := range x.sprite.checkpoints() {
		if c.ID == id {
			return c, true
		}
	}
	x.text(http.StatusNotFound, "checkpoint %s not found", id)
	return checkpoint{}, false
}

func (x *exchange) getCheckpoint() {
	if c, ok := x.findCheckpoint(); ok {
		x.json(http.StatusOK, c)
	}
}

func (x *exchange) restoreCheckpoint() {
	c, ok := x.findCheckpoint()
	if !ok {
		return
	}
	out := x.ndjson()
	x.progress(out, "info", "Restoring from checkpoint %s...", c.ID)
	err := x.sprite.restore(c.ID)
	if err == nil {
		x.release()
		err = x.acquire()
	}
	if err != nil {
		x.progress(out, "error", "failed to restore checkpoint: %v", err)
		return
	}
	x.progress(out, "info", "Container components started successfully")
	x.progress(out, "complete", "Restored from checkpoint %s", c.ID)
}

// restore ends every session and puts the files back. The Sprite keeps its id.
func (sp *sprite) restore(id string) error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.lose()
	for _, tree := range []string{guest.Workspace, guest.Home} {
		if err := removeTree(filepath.Join(sp.machineFolder(), tree)); err != nil {
			return fmt.Errorf("clear files: %w", err)
		}
	}
	return sp.copyTrees(sp.checkpointFolder(id), sp.machineFolder())
}
