package guest

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxEntries bounds one listing or one walk; past it the call fails rather than
// answering with a part.
const maxEntries = 100_000

// open passes the opened file itself to the host: bytes need not cross the
// socket, and rights were checked where the guest stands.
func (d *initd) open(m message) {
	var a OpenArgs
	if err := json.Unmarshal(m.Body, &a); err != nil {
		d.answer(m, nil, err)
		return
	}
	f, err := d.openFile(a)
	if err != nil {
		d.answer(m, nil, err)
		return
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		d.answer(m, nil, err)
		return
	}
	d.answer(m, entryOf(a.Path, st), nil, int(f.Fd()))
}

func (d *initd) openFile(a OpenArgs) (*os.File, error) {
	// O_NONBLOCK: opening a pipe that nobody writes to must not hold a slot.
	flags := os.O_RDONLY | unix.O_NONBLOCK
	if a.Write {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC | unix.O_NONBLOCK
		if a.Parents {
			if err := d.files.mkdirAll(path.Dir(a.Path)); err != nil {
				return nil, err
			}
		}
	}
	f, err := d.files.openFile(a.Path, flags, os.FileMode(a.Mode))
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err == nil && st.IsDir() {
		_ = f.Close()
		return nil, &fs.PathError{Op: "read", Path: a.Path, Err: unix.EISDIR}
	}
	if a.Write {
		if err := f.Chmod(os.FileMode(a.Mode)); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return f, nil
}

func (d *initd) tree(m message) (TreeResult, error) {
	var a TreeArgs
	if err := json.Unmarshal(m.Body, &a); err != nil {
		return TreeResult{}, err
	}
	switch m.Op {
	case opList:
		return d.list(a)
	case opDelete:
		if _, err := d.files.lstat(a.Path); err != nil {
			return TreeResult{}, err
		}
		return TreeResult{Paths: []string{a.Path}}, d.files.remove(a.Path, a.Recursive)
	case opRename:
		return TreeResult{}, d.files.rename(a.Path, a.Dest)
	case opCopy:
		return d.copyTree(a)
	case opChmod:
		return d.change(a, func(p string) error { return d.files.chmod(p, os.FileMode(a.Mode)) })
	case opChown:
		return d.change(a, func(p string) error { return d.chown(p, a) })
	default:
		return TreeResult{}, ErrProtocol
	}
}

// chown can only say "already so": one user is all that the machine has.
func (d *initd) chown(p string, a TreeArgs) error {
	if _, err := d.files.lstat(p); err != nil {
		return err
	}
	if (a.UID != UserID && a.UID != -1) || (a.GID != UserID && a.GID != -1) {
		return &fs.PathError{Op: "chown", Path: p, Err: unix.EPERM}
	}
	return nil
}

func (d *initd) list(a TreeArgs) (TreeResult, error) {
	st, err := d.files.stat(a.Path)
	if err != nil {
		return TreeResult{}, err
	}
	if !st.IsDir() {
		return TreeResult{Entries: []Entry{entryOf(a.Path, st)}}, nil
	}
	res := TreeResult{Entries: []Entry{}}
	err = d.walk(a.Path, a.Recursive, func(p string, st fs.FileInfo) error {
		if len(res.Entries) >= maxEntries {
			return fmt.Errorf("list %s: more than %d entries: %w", a.Path, maxEntries, ErrTooLarge)
		}
		if matches(a.Pattern, a.Path, p) {
			res.Entries = append(res.Entries, entryOf(p, st))
		}
		return nil
	})
	return res, err
}

// matches takes a glob for the name, or, where it holds a slash, for the path
// below the listed folder.
func matches(pattern, base, p string) bool {
	if pattern == "" {
		return true
	}
	subject := path.Base(p)
	if strings.Contains(pattern, "/") {
		subject = strings.TrimPrefix(strings.TrimPrefix(p, base), "/")
	}
	ok, err := path.Match(pattern, subject)
	return ok && err == nil
}

// walk visits what lies below dir in name order, and follows no links.
func (d *initd) walk(dir string, deep bool, visit func(string, fs.FileInfo) error) error {
	entries, err := d.files.readDir(dir)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		st, err := d.files.lstat(p)
		if err != nil {
			continue // gone since the folder was read
		}
		if err := visit(p, st); err != nil {
			return err
		}
		if deep && st.IsDir() {
			if err := d.walk(p, true, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *initd) change(a TreeArgs, f func(string) error) (TreeResult, error) {
	res := TreeResult{Paths: []string{a.Path}}
	if err := f(a.Path); err != nil {
		return TreeResult{}, err
	}
	st, err := d.files.lstat(a.Path)
	if err != nil || !a.Recursive || !st.IsDir() {
		return res, err
	}
	err = d.walk(a.Path, true, func(p string, st fs.FileInfo) error {
		if len(res.Paths) >= maxEntries {
			return fmt.Errorf("change %s: more than %d entries: %w", a.Path, maxEntries, ErrTooLarge)
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			return nil
		}
		res.Paths = append(res.Paths, p)
		return f(p)
	})
	return res, err
}

func (d *initd) copyTree(a TreeArgs) (TreeResult, error) {
	var res TreeResult
	st, err := d.files.stat(a.Path)
	if err != nil {
		return res, err
	}
	if !st.IsDir() {
		return res, d.copyOne(a, a.Path, a.Dest, st, &res)
	}
	if !a.Recursive {
		return res, &fs.PathError{Op: "copy", Path: a.Path, Err: unix.EISDIR}
	}
	if err := d.files.mkdirAll(a.Dest); err != nil {
		return res, err
	}
	if a.Dest == a.Path || strings.HasPrefix(a.Dest, a.Path+"/") {
		return res, &fs.PathError{Op: "copy", Path: a.Dest, Err: unix.EINVAL}
	}
	err = d.walk(a.Path, true, func(p string, st fs.FileInfo) error {
		return d.copyOne(a, p, a.Dest+strings.TrimPrefix(p, a.Path), st, &res)
	})
	return res, err
}

func (d *initd) copyOne(a TreeArgs, from, to string, st fs.FileInfo, res *TreeResult) error {
	if len(res.Paths) >= maxEntries {
		return fmt.Errorf("copy %s: more than %d entries: %w", a.Path, maxEntries, ErrTooLarge)
	}
	res.Paths, res.Dests = append(res.Paths, from), append(res.Dests, to)
	switch {
	case st.IsDir():
		return d.files.mkdirAll(to)
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := d.files.readlink(from)
		if err != nil {
			return err
		}
		return d.files.symlink(target, to)
	case !st.Mode().IsRegular():
		return &fs.PathError{Op: "copy", Path: from, Err: unix.EINVAL}
	}
	n, err := d.copyBytes(from, to, st.Mode().Perm())
	res.Bytes += n
	if err == nil && a.Preserve {
		err = d.files.chtimes(to, st.ModTime())
	}
	return err
}

func (d *initd) copyBytes(from, to string, mode os.FileMode) (int64, error) {
	src, err := d.files.openFile(from, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = src.Close() }()
	dst, err := d.openFile(OpenArgs{Path: to, Write: true, Mode: uint32(mode)})
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(dst, src)
	if closeErr := dst.Close(); err == nil {
		err = closeErr
	}
	return n, err
}

func entryOf(p string, st fs.FileInfo) Entry {
	kind := "file"
	switch {
	case st.IsDir():
		kind = "directory"
	case st.Mode()&fs.ModeSymlink != 0:
		kind = "symlink"
	}
	return Entry{
		Name: path.Base(p), Path: p, Type: kind, Size: st.Size(), IsDir: st.IsDir(),
		Mode: fmt.Sprintf("%04o", st.Mode().Perm()), ModTime: st.ModTime().UTC(),
	}
}
