package plan_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/plan"
)

func TestPathsInsideTheWorkspaceAreCleaned(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ cwd, path, want string }{
		{"", "", "/workspace"},
		{"", ".", "/workspace"},
		{"", "a/b", "/workspace/a/b"},
		{"", "/workspace", "/workspace"},
		{"", "/workspace/", "/workspace"},
		{"", "/workspace/a", "/workspace/a"},
		{"", "//workspace//a", "/workspace/a"},
		{"src", "a", "/workspace/src/a"},
		{"/workspace/src", "a/../b", "/workspace/src/b"},
		{"/workspace/src", "..", "/workspace"},
		{"/workspace/src", "/workspace/x", "/workspace/x"},
		{"", "workspace/a", "/workspace/workspace/a"},
		{"", "100%", "/workspace/100%"},
		{"", "a%20b", "/workspace/a%20b"},
		{"", "...", "/workspace/..."},
		{"", "..a", "/workspace/..a"},
		{"", "a\\b", "/workspace/a\\b"},
		{"", "~/x", "/workspace/~/x"},
		{"", "é/☕", "/workspace/é/☕"},
	} {
		got, err := plan.ConfinePath(tt.cwd, tt.path)
		if err != nil || got != tt.want {
			t.Errorf("%q, %q: %q, %v; want %q", tt.cwd, tt.path, got, err, tt.want)
		}
	}
}

func TestPathsOutOfTheWorkspaceAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ cwd, path string }{
		"parent":                 {"", ".."},
		"parent behind a folder": {"", "a/../.."},
		"out and in again":       {"", "../workspace/a"},
		"absolute":               {"", "/etc/passwd"},
		"absolute, two slashes":  {"", "//etc/passwd"},
		"a sibling":              {"", "/workspace2/a"},
		"absolute and back":      {"", "/workspace/../etc"},
		"root":                   {"", "/"},
		"encoded dots":           {"", "%2e%2e/a"},
		"encoded slash":          {"", "..%2fa"},
		"encoded twice":          {"", "%252e%252e%252fa"},
		"encoded absolute":       {"", "%2fetc%2fpasswd"},
		"backslashes":            {"", "..\\..\\a"},
		"cwd outside":            {"/tmp", "a"},
		"cwd that climbs":        {"..", "workspace"},
		"more climbs than depth": {"a/b", "../../../x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := plan.ConfinePath(tt.cwd, tt.path)
			var v *plan.Violation
			if !errors.As(err, &v) || v.Reason != plan.ReasonPathEscape || got != "" {
				t.Fatalf("%q, %v", got, err)
			}
		})
	}
}

// What is no path at all is told apart from what leads out, and says what is wrong with it.
func TestWhatIsNoPathSaysWhy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ cwd, path, why string }{
		"NUL":                     {"", "a\x00b", "control character"},
		"encoded NUL":             {"", "a%00b", "control character"},
		"line end":                {"", "a\nb", "control character"},
		"not UTF-8":               {"", "a\xff", "not UTF-8"},
		"not UTF-8 once":          {"", "a\ufffd", "not UTF-8"},
		"overlong encoding":       {"", "%c0%ae%c0%ae/a", "not UTF-8"},
		"a part that is too long": {"", strings.Repeat("a", 256), "longer than 255 bytes"},
		"too long":                {"", strings.Repeat("a/", 2049), "longer than 4096 bytes"},
		"too long together":       {strings.Repeat("a/", 1500), strings.Repeat("a/", 1500), "longer than 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := plan.ConfinePath(tt.cwd, tt.path)
			var v *plan.Violation
			if !errors.As(err, &v) || v.Reason != plan.ReasonInvalidRequest || !strings.Contains(v.Detail, tt.why) || got != "" {
				t.Fatalf("%q, %v", got, err)
			}
		})
	}
	_, err := plan.ConfinePath("", "%2e%2e/a")
	var v *plan.Violation
	if !errors.As(err, &v) || !strings.Contains(v.Detail, "percent-decoded") {
		t.Errorf("encoded dots: %v", err)
	}
}

func inside(path string) bool {
	if path != plan.Workspace && !strings.HasPrefix(path, plan.Workspace+"/") {
		return false
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return !strings.ContainsAny(path, "\x00\n")
}

func TestAConfinedPathIsInsideAndStaysWhatItIs(t *testing.T) {
	t.Parallel()
	part := rapid.SampledFrom([]string{"a", "..", ".", "/", "//", "%2e", "%2f", "%", "\\", "/workspace", "workspace", "b c", "\x00", "25"})
	rapid.Check(t, func(t *rapid.T) {
		path := strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "path"), "")
		cwd := strings.Join(rapid.SliceOfN(part, 0, 4).Draw(t, "cwd"), "/")
		got, err := plan.ConfinePath(cwd, path)
		if err != nil {
			return
		}
		if !inside(got) {
			t.Fatalf("%q, %q: %q is not inside", cwd, path, got)
		}
		if again, err := plan.ConfinePath("", got); err != nil || again != got {
			t.Fatalf("%q became %q, %v", got, again, err)
		}
	})
}

func FuzzConfinePath(f *testing.F) {
	for _, seed := range []string{"a", "../a", "%2e%2e", "/workspace/../x", "\\..\\", "%25%32%65"} {
		f.Add("", seed)
		f.Add(seed, "x")
	}
	f.Fuzz(func(t *testing.T, cwd, path string) {
		if got, err := plan.ConfinePath(cwd, path); err == nil && !inside(got) {
			t.Fatalf("%q, %q: %q is not inside", cwd, path, got)
		}
	})
}
