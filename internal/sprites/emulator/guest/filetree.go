package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// fileTree is the guest's view of its files. In mapped isolation every name is
// resolved below the Sprite's folder by os.Root, which refuses links that lead
// out; in namespace isolation the init already sees what the guest sees.
type fileTree struct {
	root *os.Root
}

func newFileTree(a bootArgs) (fileTree, error) {
	if a.Isolation != Mapped {
		return fileTree{}, nil
	}
	root, err := os.OpenRoot(a.Folder)
	if err != nil {
		return fileTree{}, fmt.Errorf("open folder: %w", err)
	}
	return fileTree{root: root}, nil
}

// rel gives the name that os.Root takes for p.
func (t fileTree) rel(op, p string) (string, error) {
	rel, ok := inside(p)
	if !ok {
		return "", &fs.PathError{Op: op, Path: p, Err: ErrOutside}
	}
	return rel, nil
}

func (t fileTree) openFile(p string, flag int, mode os.FileMode) (*os.File, error) {
	if t.root == nil {
		return os.OpenFile(p, flag, mode)
	}
	rel, err := t.rel("open", p)
	if err != nil {
		return nil, err
	}
	return t.root.OpenFile(rel, flag, mode)
}

func (t fileTree) stat(p string) (fs.FileInfo, error) {
	if t.root == nil {
		return os.Stat(p)
	}
	rel, err := t.rel("stat", p)
	if err != nil {
		return nil, err
	}
	return t.root.Stat(rel)
}

func (t fileTree) lstat(p string) (fs.FileInfo, error) {
	if t.root == nil {
		return os.Lstat(p)
	}
	rel, err := t.rel("lstat", p)
	if err != nil {
		return nil, err
	}
	return t.root.Lstat(rel)
}

func (t fileTree) readDir(p string) ([]fs.DirEntry, error) {
	f, err := t.openFile(p, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.ReadDir(-1)
}

func (t fileTree) mkdirAll(p string) error {
	if t.root == nil {
		return os.MkdirAll(p, 0o755)
	}
	rel, err := t.rel("mkdir", p)
	if err != nil {
		return err
	}
	err = t.root.MkdirAll(rel, 0o755)
	if errors.Is(err, fs.ErrExist) {
		// A file in the way is ENOTDIR from the kernel, EEXIST from os.Root.
		return &fs.PathError{Op: "mkdir", Path: p, Err: unix.ENOTDIR}
	}
	return err
}

func (t fileTree) remove(p string, all bool) error {
	if t.root == nil {
		if all {
			return os.RemoveAll(p)
		}
		return os.Remove(p)
	}
	rel, err := t.rel("remove", p)
	if err != nil {
		return err
	}
	if all {
		return t.root.RemoveAll(rel)
	}
	return t.root.Remove(rel)
}

func (t fileTree) rename(from, to string) error {
	if t.root == nil {
		return os.Rename(from, to)
	}
	relFrom, err := t.rel("rename", from)
	if err != nil {
		return err
	}
	relTo, err := t.rel("rename", to)
	if err != nil {
		return err
	}
	return t.root.Rename(relFrom, relTo)
}

func (t fileTree) chmod(p string, mode os.FileMode) error {
	if t.root == nil {
		return os.Chmod(p, mode)
	}
	rel, err := t.rel("chmod", p)
	if err != nil {
		return err
	}
	return t.root.Chmod(rel, mode)
}

func (t fileTree) symlink(target, p string) error {
	if t.root == nil {
		return os.Symlink(target, p)
	}
	rel, err := t.rel("symlink", p)
	if err != nil {
		return err
	}
	return t.root.Symlink(target, rel)
}

func (t fileTree) readlink(p string) (string, error) {
	if t.root == nil {
		return os.Readlink(p)
	}
	rel, err := t.rel("readlink", p)
	if err != nil {
		return "", err
	}
	return t.root.Readlink(rel)
}

func (t fileTree) chtimes(p string, at time.Time) error {
	if t.root == nil {
		return os.Chtimes(p, at, at)
	}
	rel, err := t.rel("chtimes", p)
	if err != nil {
		return err
	}
	return t.root.Chtimes(rel, at, at)
}
