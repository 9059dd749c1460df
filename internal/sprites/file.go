package sprites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// FileInfo describes a file of a Sprite.
type FileInfo struct {
	// Path is absolute.
	Path string
	// Size is in bytes.
	Size int64
	// Mode is its permission bits.
	Mode fs.FileMode
	// Truncated tells that a read stopped at its bound.
	Truncated bool
}

// FileMax bounds what one call reads or writes.
const FileMax = 64 << 20

type wireEntry struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Type  string `json:"type"`
	Size  int64  `json:"size"`
	Mode  string `json:"mode"`
	IsDir bool   `json:"isDir"`
}

func parseMode(octal string) fs.FileMode {
	bits, err := strconv.ParseUint(octal, 8, 32)
	if err != nil {
		return 0
	}
	return fs.FileMode(bits) & fs.ModePerm
}

// guestPath makes an absolute path of a file's name: relative ones are taken from the workspace. A path that climbs is
// refused. Where a path may lead at all is the caller's policy; inside, the guest is root and may link what it likes.
func guestPath(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) || len(name) > 4096 {
		return "", refused(OpFiles, "malformed path")
	}
	if !strings.HasPrefix(name, "/") {
		name = guestWorkspace + "/" + name
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", refused(OpFiles, "path climbs")
	}
	return path.Clean(name), nil
}

func fileQuery(file string) url.Values {
	return url.Values{"path": {file}, "workingDir": {"/"}}
}

// ReadFile reads at most limit bytes (1 to FileMax) of a file from offset on. name is absolute or relative to the
// workspace. Each call is bounded by CallTimeout; on the first failure the Sprite is woken by a command and the read tried
// once more: 4 CallTimeouts for two tries of two calls, and 3 for the wake, is the most it blocks. Only a missing file (or Sprite) is ClassNotFound.
func (c *Client) ReadFile(ctx context.Context, sprite, name string, offset, limit int64) ([]byte, FileInfo, error) {
	file, err := guestPath(name)
	if err == nil {
		err = checkName(OpFiles, sprite)
	}
	if err == nil && (offset < 0 || limit < 1 || limit > FileMax) {
		err = refused(OpFiles, "offset or limit out of range")
	}
	if err != nil {
		return nil, FileInfo{}, fmt.Errorf("read file: %w", err)
	}
	var data []byte
	var info FileInfo
	err = c.withWake(ctx, sprite, "", func(ctx context.Context) error {
		var err error
		if info, err = c.statFile(ctx, sprite, file); err == nil {
			data, info.Truncated, err = c.readFile(ctx, sprite, file, offset, limit)
		}
		return err
	})
	if err != nil {
		return nil, FileInfo{}, fmt.Errorf("read file in %s: %w", sprite, err)
	}
	return data, info, nil
}

// statFile looks a file up. There is no stat: the listing of a file is the file itself, that of a folder its children.
func (c *Client) statFile(ctx context.Context, sprite, file string) (FileInfo, error) {
	got, err := c.once(ctx, call{
		op: OpFiles, method: http.MethodGet, url: c.spriteURL(sprite, fileQuery(file), "fs", "list"), want: []int{http.StatusOK},
	})
	if err != nil {
		return FileInfo{}, err
	}
	type listing struct {
		Entries []wireEntry `json:"entries"`
	}
	l, err := decode[listing](OpFiles, got)
	if err != nil {
		return FileInfo{}, err
	}
	if len(l.Entries) != 1 || l.Entries[0].IsDir || path.Clean("/"+l.Entries[0].Path) != file {
		return FileInfo{}, &Error{Op: OpFiles, Class: ClassInvalid, Status: got.status, Code: "EISDIR", cause: errors.New("not a file")}
	}
	entry := l.Entries[0]
	return FileInfo{Path: file, Size: entry.Size, Mode: parseMode(entry.Mode)}, nil
}

// readFile streams the file and stops at its bound; no range parameter is documented.
func (c *Client) readFile(ctx context.Context, sprite, file string, offset, limit int64) (data []byte, truncated bool, err error) {
	req := call{
		op: OpFiles, method: http.MethodGet, url: c.spriteURL(sprite, fileQuery(file), "fs", "read"), want: []int{http.StatusOK},
	}
	err = c.stream(ctx, req, func(resp *http.Response) error {
		if _, err := io.CopyN(io.Discard, resp.Body, offset); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var err error
		if data, err = io.ReadAll(io.LimitReader(resp.Body, limit+1)); err != nil {
			return err
		}
		if truncated = int64(len(data)) > limit; truncated {
			data = data[:limit]
		}
		return nil
	})
	return data, truncated, err
}

// WriteFile writes a file whole, making its parents, and leaves it with mode when that is not 0, also when it existed.
// The size the service reports is compared. Retries and bounds are as ReadFile's. It may be repeated.
func (c *Client) WriteFile(ctx context.Context, sprite, name string, data []byte, mode fs.FileMode) (FileInfo, error) {
	file, err := guestPath(name)
	if err == nil {
		err = checkName(OpFiles, sprite)
	}
	if err == nil && (len(data) > FileMax || mode != mode&fs.ModePerm) {
		err = refused(OpFiles, "more than %d bytes, or a mode beyond permissions", FileMax)
	}
	if err != nil {
		return FileInfo{}, fmt.Errorf("write file: %w", err)
	}
	var info FileInfo
	err = c.withWake(ctx, sprite, path.Dir(file), func(ctx context.Context) error {
		var err error
		if info, err = c.writeFile(ctx, sprite, file, data, mode); err == nil && mode != 0 {
			err = c.chmod(ctx, sprite, file, mode)
			info.Mode = mode
		}
		return err
	})
	if err != nil {
		return FileInfo{}, fmt.Errorf("write file in %s: %w", sprite, err)
	}
	return info, nil
}

func (c *Client) writeFile(ctx context.Context, sprite, file string, data []byte, mode fs.FileMode) (FileInfo, error) {
	query := fileQuery(file)
	query.Set("mkdirParents", "true")
	query.Set("mkdir", "true") // the reference's name for the same
	if mode != 0 {
		query.Set("mode", octal(mode))
	}
	if data == nil {
		data = []byte{}
	}
	got, err := c.once(ctx, call{
		op: OpFiles, method: http.MethodPut, url: c.spriteURL(sprite, query, "fs", "write"), body: data,
		contentType: "application/octet-stream", want: []int{http.StatusOK, http.StatusCreated},
	})
	if err != nil {
		return FileInfo{}, err
	}
	w, err := decode[wireEntry](OpFiles, got)
	if err != nil {
		return FileInfo{}, err
	}
	if w.Size != int64(len(data)) {
		return FileInfo{}, &Error{Op: OpFiles, Class: ClassUnavailable, Status: got.status, cause: ErrShortWrite}
	}
	return FileInfo{Path: file, Size: w.Size, Mode: parseMode(w.Mode)}, nil
}

// chmod sets the mode by a call of its own: write's mode is for new files, and an overwritten secret must not stay
// readable by all.
func (c *Client) chmod(ctx context.Context, sprite, file string, mode fs.FileMode) error {
	body, err := json.Marshal(map[string]any{"path": file, "workingDir": "/", "mode": octal(mode)})
	if err != nil {
		return refused(OpFiles, "encode mode: %w", err)
	}
	_, err = c.once(ctx, call{
		op: OpFiles, method: http.MethodPost, url: c.spriteURL(sprite, nil, "fs", "chmod"), body: body,
		contentType: "application/json", want: []int{http.StatusOK},
	})
	return err
}

func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", mode.Perm()) }

// withWake runs a file operation, and once more after waking the Sprite. parent, unless empty, is made by the same
// command, so that a write whose parent is gone costs no extra round trip while all is well.
func (c *Client) withWake(ctx context.Context, sprite, parent string, op func(context.Context) error) error {
	return c.retrying(ctx, OpFiles, "", func(ctx context.Context, try int) error {
		err := op(ctx)
		var e *Error
		if !errors.As(err, &e) || ctx.Err() != nil || try > 1 {
			return err
		}
		missingParent := parent != "" && e.Class == ClassNotFound
		asleep := e.Class == ClassTimeout || e.Class == ClassTransport || e.Class == ClassUnavailable
		if !missingParent && !asleep {
			return err
		}
		argv := []string{"true"}
		if parent != "" {
			argv = []string{"sh", "-c", `mkdir -p "$1" || sudo -n install -d -o "$(id -u)" "$1"`, "wakebus", parent}
		}
		if werr := c.wake(ctx, sprite, c.cfg.CallTimeout, argv...); werr != nil {
			return errors.Join(err, werr)
		}
		if missingParent {
			return op(ctx)
		}
		return err
	})
}
