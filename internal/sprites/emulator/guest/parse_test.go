package guest_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

func TestListenersAreReadFromProcLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]guest.Port{
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1234 1":                                      {Port: 8080, Address: "127.0.0.1"},
		"   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1235 1":                                      {Port: 80, Address: "0.0.0.0"},
		"   0: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 9 1": {Port: 3000, Address: "::1"},
	} {
		if got, ok := guest.ParseListener(line); !ok || got != want {
			t.Errorf("%q: %+v %v", line, got, ok)
		}
	}
	for _, line := range []string{"", "  sl  local_address rem_address   st", "   0: 0100007F:1F90 0100007F:0050 01 0 0 0 0 0 1 1"} {
		if got, ok := guest.ParseListener(line); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func FuzzParseListener(f *testing.F) {
	f.Add("   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1234 1")
	f.Fuzz(func(t *testing.T, line string) {
		if p, ok := guest.ParseListener(line); ok && (p.Port < 0 || p.Port > 65535 || net.ParseIP(p.Address) == nil) {
			t.Fatalf("%q: %+v", line, p)
		}
	})
}

func FuzzInside(f *testing.F) {
	f.Add("/workspace/../etc/passwd")
	f.Add("/home/sprite//a/./b")
	f.Fuzz(func(t *testing.T, p string) {
		rel, ok := guest.Inside(p)
		if !ok {
			return
		}
		full := filepath.Join("/root-of-sprite", rel)
		if !strings.HasPrefix(full+"/", "/root-of-sprite/workspace/") && !strings.HasPrefix(full+"/", "/root-of-sprite/home/sprite/") {
			t.Fatalf("%q leads to %q", p, full)
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 0, '{', '}'})
	f.Add([]byte{255, 255, 255, 255, 9})
	f.Fuzz(func(t *testing.T, raw []byte) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Skip(err)
		}
		ours, theirs := os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
		defer func() { _ = ours.Close() }()
		c, err := net.FileConn(ours)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if len(raw) > 64<<10 { // what fits without a reader
			return
		}
		_, _ = theirs.Write(raw)
		_ = theirs.Close()
		if n := guest.ReadFrames(c.(*net.UnixConn)); n > len(raw)/5 {
			t.Fatalf("%d frames in %d bytes", n, len(raw))
		}
	})
}
