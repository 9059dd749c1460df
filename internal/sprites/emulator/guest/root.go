package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// etcEntries are what programs need of the host's /etc. A list of what is let
// in rather than of what is kept out: an emulator run by root must not show its
// host's keys to a guest.
var etcEntries = []string{
	"alternatives", "ca-certificates", "ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "ld.so.cache", "ld.so.conf",
	"ld.so.conf.d", "localtime", "nsswitch.conf", "profile", "profile.d", "bash.bashrc", "inputrc", "terminfo",
	"mime.types", "protocols", "services", "host.conf", "gai.conf",
}

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nsprite:x:1000:1000:sprite:/home/sprite:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
	groups = "root:x:0:\ntty:x:5:\nsprite:x:1000:\nnogroup:x:65534:\n"
)

// enterRoot builds a root of read-only mounts in a tmpfs and moves into it. A
// new root, because an ordinary user cannot make /workspace on the host's.
func enterRoot(a bootArgs) error {
	r := rootBuilder{root: filepath.Join(a.Folder, ".root"), folder: a.Folder}
	r.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	r.hostDir(r.root)
	r.mount("tmpfs", r.root, "tmpfs", unix.MS_NOSUID, "mode=755,size=4m")
	r.system()
	r.etc(a.Hostname)
	r.devices()
	r.scratch()
	r.folders(a.Workspace)
	r.proc()
	r.pivot()
	r.do("name host", func() error { return unix.Sethostname([]byte(a.Hostname)) })
	r.do("bring up loopback", loopbackUp)
	return r.err
}

// rootBuilder stops at its first error; each step is a no-op after it.
type rootBuilder struct {
	root, folder string
	err          error
}

func (r *rootBuilder) do(what string, f func() error) {
	if r.err != nil {
		return
	}
	if err := f(); err != nil {
		r.err = fmt.Errorf("%s: %w: %w", what, ErrNamespaces, err)
	}
}

func (r *rootBuilder) mount(src, dst, kind string, flags uintptr, data string) {
	r.do("mount "+dst, func() error { return unix.Mount(src, dst, kind, flags, data) })
}

func (r *rootBuilder) hostDir(p string) {
	r.do("make "+p, func() error { return os.MkdirAll(p, 0o755) })
}

func (r *rootBuilder) dir(p string) { r.hostDir(filepath.Join(r.root, p)) }

func (r *rootBuilder) file(p, text string) {
	r.do("write "+p, func() error {
		full := filepath.Join(r.root, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		return os.WriteFile(full, []byte(text), 0o644)
	})
}

func (r *rootBuilder) link(target, p string) {
	r.do("link "+p, func() error { return os.Symlink(target, filepath.Join(r.root, p)) })
}

// bind shows src at dst, a file or a folder, with what lies below it.
func (r *rootBuilder) bind(src, dst string, attrs uint64) {
	r.do("bind "+dst, func() error {
		full := filepath.Join(r.root, dst)
		st, err := os.Stat(src)
		if err != nil {
			return err
		}
		if st.IsDir() {
			err = os.MkdirAll(full, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(full), 0o755); err == nil {
			err = os.WriteFile(full, nil, 0o644)
		}
		if err != nil {
			return err
		}
		if err := unix.Mount(src, full, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		return unix.MountSetattr(-1, full, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attrs})
	})
}

const readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID

// system shows the host's programs. /bin and its like are links on most hosts,
// and stay what they are.
func (r *rootBuilder) system() {
	r.bind("/usr", "usr", readOnly|unix.MOUNT_ATTR_NODEV)
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix/store"} {
		st, err := os.Lstat("/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && st.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink("/" + name)
			r.do("read link "+name, func() error { return err })
			r.link(target, name)
			continue
		}
		r.bind("/"+name, name, readOnly|unix.MOUNT_ATTR_NODEV)
	}
}

func (r *rootBuilder) etc(hostname string) {
	for _, name := range etcEntries {
		// Resolved here: a link such as localtime's would dangle or lead out.
		src, err := filepath.EvalSymlinks("/etc/" + name)
		if err == nil {
			r.bind(src, "etc/"+name, readOnly|unix.MOUNT_ATTR_NODEV)
		}
	}
	r.file("etc/passwd", passwd)
	r.file("etc/group", groups)
	r.file("etc/hostname", hostname+"\n")
	r.file("etc/hosts", "127.0.0.1 localhost "+hostname+"\n::1 localhost\n")
	r.file("etc/resolv.conf", "")
}

func (r *rootBuilder) devices() {
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		r.bind("/dev/"+name, "dev/"+name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	}
	r.dir("dev/pts")
	r.mount("devpts", filepath.Join(r.root, "dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
	r.link("pts/ptmx", "dev/ptmx")
	r.link("/proc/self/fd", "dev/fd")
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		r.link(fmt.Sprintf("/proc/self/fd/%d", i), "dev/"+name)
	}
}

// scratch holds what a cold boot empties. The sizes bound the host's memory.
func (r *rootBuilder) scratch() {
	for _, m := range []struct{ at, opts string }{
		{"tmp", "mode=1777,size=512m"}, {"dev/shm", "mode=1777,size=64m"}, {"run", "mode=755,size=16m"},
	} {
		r.dir(m.at)
		r.mount("tmpfs", filepath.Join(r.root, m.at), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, m.opts)
	}
	r.dir("var")
	r.link("/tmp", "var/tmp")
	r.link("/run", "var/run")
}

func (r *rootBuilder) folders(workspace string) {
	const writable = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	r.bind(filepath.Join(r.folder, Home), Home[1:], writable)
	r.bind(filepath.Join(r.folder, ".sprite"), ".sprite", readOnly|unix.MOUNT_ATTR_NODEV)
	switch workspace {
	case WorkspaceMissing:
	case WorkspaceForeign:
		// One uid is all an ordinary user can map, so "owned by somebody else"
		// is shown as what it means to a guest: not writable.
		r.bind(filepath.Join(r.folder, Workspace), Workspace[1:], readOnly|unix.MOUNT_ATTR_NODEV)
	default:
		r.bind(filepath.Join(r.folder, Workspace), Workspace[1:], writable)
	}
}

// proc is a fresh one for the new pid namespace. Its settings are the host's,
// and a guest whose uid is the host's root could write them: read-only, after
// the pid counter was set so that session ids begin alike after every boot.
func (r *rootBuilder) proc() {
	r.dir("proc")
	at := filepath.Join(r.root, "proc")
	r.mount("proc", at, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	r.do("set first pid", func() error {
		// Best effort: without checkpoint support in the kernel ids start low anyway.
		_ = os.WriteFile(filepath.Join(at, "sys/kernel/ns_last_pid"), fmt.Appendf(nil, "%d", firstProcess-1), 0o644)
		return nil
	})
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs"} {
		if _, err := os.Stat(filepath.Join(at, name)); err == nil {
			r.bind(filepath.Join(at, name), "proc/"+name, readOnly)
		}
	}
}

func (r *rootBuilder) pivot() {
	r.dir("old")
	r.do("pivot root", func() error { return unix.PivotRoot(r.root, filepath.Join(r.root, "old")) })
	r.do("enter root", func() error { return os.Chdir("/") })
	r.do("leave host", func() error { return unix.Unmount("/old", unix.MNT_DETACH) })
	r.do("remove mount point", func() error { return os.Remove("/old") })
	r.do("close root", func() error {
		return unix.MountSetattr(-1, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	})
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
