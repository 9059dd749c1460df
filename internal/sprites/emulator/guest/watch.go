package guest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	watchMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB |
		unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF
	maxWatches = 4096 // folders per watcher; deeper trees are refused, not half watched
)

// watcher writes one JSON line per change into the socket that the host gave,
// until the host closes its end.
type watcher struct {
	d     *initd
	fd    int
	out   *os.File
	names map[int]string // guest path by watch descriptor
	deep  bool
}

// watch returns once the watch stands, so that the host's "subscribed" is true.
func (d *initd) watch(m message, files []*os.File) error {
	var a WatchArgs
	if err := json.Unmarshal(m.Body, &a); err != nil {
		return err
	}
	if len(files) != 1 {
		return ErrProtocol
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("start watch: %w", err)
	}
	outFD, err := unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("start watch: %w", err)
	}
	_ = unix.SetNonblock(outFD, true)
	w := &watcher{d: d, fd: fd, out: os.NewFile(uintptr(outFD), "watch"), names: map[int]string{}, deep: a.Recursive}
	for _, p := range a.Paths {
		if err := w.add(p); err != nil {
			_ = unix.Close(fd)
			_ = w.out.Close()
			return err
		}
	}
	in := os.NewFile(uintptr(fd), "inotify")
	go func() { // ends, and ends run, when the host closes its end
		_, _ = io.Copy(io.Discard, w.out)
		_ = in.Close()
	}()
	go w.run(in)
	return nil
}

func (w *watcher) add(p string) error {
	if len(w.names) >= maxWatches {
		return fmt.Errorf("watch %s: %w", p, ErrTooLarge)
	}
	st, err := w.d.files.stat(p)
	if err != nil {
		return err
	}
	wd, err := unix.InotifyAddWatch(w.fd, w.d.paths.host(p), watchMask)
	if err != nil {
		return &fs.PathError{Op: "watch", Path: p, Err: err}
	}
	w.names[wd] = p
	if !w.deep || !st.IsDir() {
		return nil
	}
	entries, err := w.d.files.readDir(p)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := w.add(path.Join(p, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *watcher) run(in *os.File) {
	defer func() { _ = w.out.Close() }()
	buf := make([]byte, 64<<10)
	enc := json.NewEncoder(w.out)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int(int32(binary.NativeEndian.Uint32(rest)))
			mask := binary.NativeEndian.Uint32(rest[4:])
			size := int(binary.NativeEndian.Uint32(rest[12:]))
			name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
			rest = rest[unix.SizeofInotifyEvent+size:]
			if ev, ok := w.event(wd, mask, name); ok && enc.Encode(ev) != nil {
				return
			}
		}
	}
}

func (w *watcher) event(wd int, mask uint32, name string) (WatchEvent, bool) {
	base, ok := w.names[wd]
	if !ok {
		return WatchEvent{}, false
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(w.names, wd)
		return WatchEvent{}, false
	}
	ev := WatchEvent{Path: path.Join(base, name), Time: time.Now().UTC(), IsDir: mask&unix.IN_ISDIR != 0}
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		ev.Event = "create"
		if ev.IsDir && w.deep {
			_ = w.add(ev.Path) // gone again, or too many: its parent is still watched
		}
	case mask&unix.IN_MODIFY != 0:
		ev.Event = "write"
	case mask&unix.IN_ATTRIB != 0:
		ev.Event = "chmod"
	case mask&unix.IN_MOVED_FROM != 0:
		ev.Event = "rename"
	case mask&(unix.IN_DELETE|unix.IN_DELETE_SELF) != 0:
		ev.Event = "remove"
	default:
		return WatchEvent{}, false
	}
	if st, err := w.d.files.lstat(ev.Path); err == nil {
		ev.Size, ev.IsDir = st.Size(), st.IsDir()
	}
	return ev, true
}
