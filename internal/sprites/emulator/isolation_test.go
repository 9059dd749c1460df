package emulator_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

func mapped(c *emulator.Config) { c.Isolation = emulator.IsolationMapped }

func TestMappedModeKeepsGuestPathsInsideTheSpritesFolder(t *testing.T) {
	t.Parallel()
	b := setup(t, mapped)
	b.create("one")
	q := command("sh", "-c", `pwd; echo "$HOME"; echo made > "$1"; ls "$2"`, "sh", "/workspace/f", "/workspace")
	q.Set("dir", "/workspace")
	q["env"] = []string{"HOME=/home/sprite"}
	r := b.open("one", q).wait()
	folder := b.Sprites()[0].Folder
	want := filepath.Join(folder, "workspace") + "\n" + filepath.Join(folder, "home/sprite") + "\nf\n"
	if r.out.String() != want || r.exit != 0 {
		t.Fatalf("%q, want %q; %s", r.out.String(), want, r.err.String())
	}
	if _, body := b.call("GET", "/v1/sprites/one/fs/read?path=/workspace/f", nil); body != "made\n" {
		t.Fatal(body)
	}
	target := filepath.Join(t.TempDir(), "outside")
	for path, want := range map[string]int{target: 403, "/workspace/../../../.." + target: 403, "/etc/made-by-emulator": 403} {
		if code, body := b.call("PUT", "/v1/sprites/one/fs/write?path="+path, "x"); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("made outside of its folder")
	}
}

func TestNamespacesGiveSessionIDsAgainAfterABoot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	b.sh("one", "true")
	if b.Isolation() != guest.Namespace {
		t.Skip("this host allows no namespaces")
	}
	// The guest's own threads take numbers too, and how many there are by then differs by a few: ids come from a handful.
	seen := map[string]bool{}
	for range 20 {
		if err := b.Cold("one"); err != nil {
			t.Fatal(err)
		}
		r := b.open("one", command("true"))
		id := r.session()
		r.wait()
		if seen[id] {
			return
		}
		seen[id] = true
	}
	t.Fatal("session ids never came round again: ", seen)
}

func TestFaultyWorkspacesAreNotWritable(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{guest.WorkspaceMissing, guest.WorkspaceForeign} {
		b := setup(t, func(c *emulator.Config) { c.Workspace = kind })
		b.create("one")
		r := b.sh("one", `mkdir -p "$1" && touch "$2"`, "/workspace", "/workspace/f")
		if b.Isolation() != guest.Namespace {
			t.Skip("only namespaces can show a faulty workspace")
		}
		if r.exit == 0 {
			t.Errorf("%s: it could be written", kind)
		}
	}
}

func TestConfigReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	_, err := emulator.New(emulator.Config{
		Addr: "0.0.0.0:0", Attach: "sideways", Isolation: "none", Mutation: "odd", RunningLimit: -1,
		Faults: []emulator.Fault{{Do: "explode"}},
	})
	if !errors.Is(err, emulator.ErrConfig) || !errors.Is(err, emulator.ErrFault) {
		t.Fatal(err)
	}
	for _, word := range []string{"loopback", "sideways", "none", "odd", "limits", "explode"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("no word of %s: %v", word, err)
		}
	}
}

// The same tests as an ordinary user: what works for root alone would be no use
// to anybody.
func TestOrdinaryUserCanRunSprites(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("these tests already run as an ordinary user")
	}
	const nobody = 65534
	tmp, err := os.MkdirTemp("", "ordinary-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	if err := os.Chown(tmp, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run",
		"^(TestExecKeepsStreams|TestSleepFreezes|TestColdLoses|TestTerminalHasSize|TestDeleteFrees|TestGoSDKStatuses)", "-test.v")
	cmd.Dir, cmd.Env = tmp, []string{"TMPDIR=" + tmp, "HOME=" + tmp, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS") < 6 {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestIsolationIsKnownOnceAMachineRan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("one")
	if r := b.sh("one", "exit 6"); r.exit != 6 {
		t.Fatal(r.exit)
	}
	t.Logf("isolation=%s", b.Isolation())
}

func TestAutoFallsBackWhereTheHostRefusesNamespaces(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A namespace of its own, in which no further one may be made.
	cmd := exec.Command("sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces && exec "$1" -test.v -test.run '^TestIsolationIsKnown'`, "sh", self)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "isolation_test") {
		t.Skipf("cannot make such a host here: %v %s", err, out)
	}
	if !strings.Contains(string(out), "isolation=mapped") || !strings.Contains(string(out), "refuses user namespaces") {
		t.Fatalf("%s", out)
	}
}
