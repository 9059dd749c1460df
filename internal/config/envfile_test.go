package config_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/config"
	"pgregory.net/rapid"
)

func TestWhatIsWrittenIntoAnEnvFileIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.MapOf(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,12}`), rapid.StringMatching(`[^\x00\r\n]{0,40}`)).Draw(t, "values")
		data, err := config.FormatEnv(values)
		if err != nil {
			t.Fatal(err)
		}
		back, err := config.ParseEnv(data)
		if err != nil || !maps.Equal(back, values) {
			t.Fatalf("%v became %v: %v\n%s", values, back, err, data)
		}
	})
}

func TestAShellReadsAnEnvFileAsWeDoAndRunsNothingInIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nasty := `it's $(touch pwned) "x" ` + "`touch pwned`" + ` ; touch pwned & \`
	path := filepath.Join(dir, "env")
	if err := config.WriteDevFile(path, map[string]string{"NASTY": nasty, "PLAIN": "nats://u:p@127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	sh := exec.Command("sh", "-c", `. ./env; printf '%s|%s' "$NASTY" "$PLAIN"`)
	sh.Dir = dir
	out, err := sh.Output()
	if err != nil || string(out) != nasty+"|nats://u:p@127.0.0.1:1" {
		t.Errorf("sh read %q: %v", out, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
		t.Error("sourcing the file ran a command")
	}
}

func TestAnEnvFileThatIsNotPlainIsRefusedWithItsLineAndWithoutItsValue(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"NAME", "1A=x", "A=sentinel$B", "A='sentinel", `A="$sentinel"`, "A=sentinel B", "A=1\nA=sentinel", "A=sentinel;x", "A=x\\sentinel"} {
		_, err := config.ParseEnv([]byte("# first\n" + text + "\n"))
		if err == nil || !strings.Contains(err.Error(), "line ") || strings.Contains(err.Error(), "sentinel") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, bad := range []map[string]string{{"A B": "x"}, {"A": "x\ny"}, {"": "x"}} {
		if _, err := config.FormatEnv(bad); err == nil {
			t.Errorf("%v is written", bad)
		}
	}
}

func FuzzParseEnvKeepsWhatItReads(f *testing.F) {
	for _, seed := range []string{"A=1\n", "export A='it'\\''s'", "# c\n\nB=\"x y\"", "A=$B", "=\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		values, err := config.ParseEnv(data)
		if err != nil {
			return
		}
		written, err := config.FormatEnv(values)
		if err != nil {
			return // a NUL inside quotes can be read and not be written
		}
		back, err := config.ParseEnv(written)
		if err != nil || !maps.Equal(values, back) {
			t.Fatalf("%q became %v, then %v: %v", data, values, back, err)
		}
	})
}

func FuzzParseSizeAndDurationNeverGuess(f *testing.F) {
	for _, seed := range []string{"8MiB", "0", "9223372036854775807", "1h1h", "-1s", "5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if size, err := config.ParseSize(text); err == nil {
			again, err := config.ParseSize(size.String())
			if err != nil || again != size || size < 0 {
				t.Fatalf("size %q is %d, written %s, read %d: %v", text, size, size, again, err)
			}
		}
		if _, err := config.ParseDuration(text); err == nil && strings.Trim(text, "+-.0123456789") == "" {
			t.Fatalf("duration %q has no unit", text)
		}
		if limits, err := config.ParseTierLimits(text); err == nil && len(limits) != 4 {
			t.Fatalf("limits %q name %d tiers", text, len(limits))
		}
	})
}

// devTree makes root/.wakebus/env and root/a/b, and returns root and the file.
func devTree(t *testing.T, values map[string]string) (root, file string) {
	t.Helper()
	root = t.TempDir()
	file = filepath.Join(root, config.DevDir, config.EnvName)
	err := errors.Join(os.MkdirAll(filepath.Join(root, "a", "b"), 0o755), os.Mkdir(filepath.Dir(file), 0o755), config.WriteDevFile(file, values))
	if err != nil {
		t.Fatal(err)
	}
	return root, file
}

func TestAClientFindsTheDevInstanceOfTheNearestParent(t *testing.T) {
	t.Parallel()
	root, file := devTree(t, map[string]string{"NATS_URL": "nats://u:p@127.0.0.1:1", "REDIS_URL": "redis://127.0.0.1:2", "AUTHZ_MODE": "dev"})
	c, _, err := config.LoadClient(nil, lookup(nil), nil, filepath.Join(root, "a", "b"))
	if err != nil || c.File == nil || c.File.Path != file || c.NATSURL.Reveal() != "nats://u:p@127.0.0.1:1" || c.AuthzMode != config.AuthDev {
		t.Fatalf("%+v %v", c, err)
	}
	gone := c.File.Gone(errors.New("connection refused"))
	if want := "the dev instance of " + filepath.Join(root, ".wakebus") + " is not running"; gone.Error() != want {
		t.Errorf("says %q", gone)
	}
}

func TestAFlagWinsOverTheEnvironmentAndThatOverTheFile(t *testing.T) {
	t.Parallel()
	root, _ := devTree(t, map[string]string{"NATS_URL": "nats://127.0.0.1:1", "REDIS_URL": "redis://127.0.0.1:1", "SPRITES_API_TOKEN": "file"})
	env := lookup(map[string]string{"REDIS_URL": "redis://127.0.0.1:2"})
	c, _, err := config.LoadClient(map[string]string{"SPRITES_API_TOKEN": "flag"}, env, nil, root)
	if err != nil || c.NATSURL != "nats://127.0.0.1:1" || c.RedisURL != "redis://127.0.0.1:2" || c.SpritesAPIToken != "flag" {
		t.Errorf("%v %v %v %v", c.NATSURL, c.RedisURL, c.SpritesAPIToken.Reveal(), err)
	}
	c, _, err = config.LoadClient(map[string]string{"NATS_URL": "nats://127.0.0.1:9"}, env, nil, root)
	if err != nil || c.File != nil || c.SpritesAPIToken != "" {
		t.Errorf("with NATS_URL given the file is still read: %+v %v", c.File, err)
	}
}

func TestAFileThatOthersCouldWriteOrReadIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(file string) error{
		"readable by others": func(file string) error { return os.Chmod(file, 0o644) },
		"writable by group":  func(file string) error { return os.Chmod(file, 0o620) },
		"a link": func(file string) error {
			return errors.Join(os.Rename(file, file+"2"), os.Symlink(file+"2", file))
		},
		"a folder": func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
		"garbage":  func(file string) error { return os.WriteFile(file, []byte("NATS_URL"), 0o600) },
	} {
		root, file := devTree(t, map[string]string{"NATS_URL": "nats://127.0.0.1:1"})
		if err := spoil(file); err != nil {
			t.Fatal(err)
		}
		_, _, err := config.LoadClient(nil, lookup(nil), nil, root)
		var refused *config.DevFileError
		if !errors.As(err, &refused) || refused.Path != file {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	root, file := devTree(t, map[string]string{"NATS_URL": "nats://127.0.0.1:1"})
	if err := os.Chown(file, 1, 1); err != nil {
		t.Fatal(err)
	}
	var refused *config.DevFileError
	if _, err := config.FindDevFile(root); !errors.As(err, &refused) || refused.Why != "belongs to another user" {
		t.Errorf("%v", err)
	}
}

func TestWithoutADevInstanceTheSearchEndsAtTheRoot(t *testing.T) {
	t.Parallel()
	if _, err := config.FindDevFile(t.TempDir()); !errors.Is(err, config.ErrNoDevFile) {
		t.Errorf("%v", err)
	}
}

func TestTheEnvironmentWinsOverAnEnvFileGivenByHand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("NATS_URL=nats://127.0.0.1:1\nREDIS_URL=redis://127.0.0.1:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	values, err := config.ReadEnvFile(path)
	if err != nil {
		t.Fatal(err)
	}
	both := config.First(lookup(map[string]string{"NATS_URL": "nats://10.0.0.1:1"}), config.In(values))
	nats, _ := both("NATS_URL")
	redis, _ := both("REDIS_URL")
	if _, found := both("OTHER"); nats != "nats://10.0.0.1:1" || redis != "redis://127.0.0.1:1" || found {
		t.Errorf("got %s and %s, other: %v", nats, redis, found)
	}
}
