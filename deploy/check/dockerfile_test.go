package check_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// stages parses a Dockerfile and returns what the linter had to say.
func stages(t *testing.T, text []byte) ([]instructions.Stage, []string) {
	t.Helper()
	var warnings []string
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) {
		warnings = append(warnings, rule+": "+message)
	}})
	result, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range result.Warnings {
		warnings = append(warnings, w.Short)
	}
	parsed, _, err := instructions.Parse(result.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	return parsed, warnings
}

func dockerfile(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheDockerfileParsesWithoutAWarning(t *testing.T) {
	t.Parallel()
	if _, warnings := stages(t, dockerfile(t)); len(warnings) > 0 {
		t.Errorf("%s", strings.Join(warnings, "\n"))
	}
}

func TestTheLinterWouldWarn(t *testing.T) {
	t.Parallel()
	if _, warnings := stages(t, []byte("from scratch as X\nCOPY a /a\nENTRYPOINT worker\n")); len(warnings) == 0 {
		t.Error("a badly written Dockerfile raises no warning: the check checks nothing")
	}
}

func TestTheImageIsEmptyButForOursAndRunsAsNobody(t *testing.T) {
	t.Parallel()
	all, _ := stages(t, dockerfile(t))
	last := all[len(all)-1]
	if last.BaseName != "scratch" {
		t.Errorf("the image begins from %s", last.BaseName)
	}
	var user string
	names := map[string]bool{}
	for _, s := range all {
		names[s.Name] = true
	}
	for _, c := range last.Commands {
		switch c := c.(type) {
		case *instructions.UserCommand:
			user = c.User
		case *instructions.RunCommand:
			t.Error("the last stage runs something, and has nothing to run it with")
		case *instructions.CopyCommand:
			if !names[c.From] {
				t.Errorf("copies from %q, which is no stage", c.From)
			}
		case *instructions.EntrypointCommand:
			if c.PrependShell {
				t.Error("the entry point needs a shell")
			}
		}
	}
	if user != "65532:65532" {
		t.Errorf("the image runs as %q", user)
	}
}

// The paths that the build stage copies are in the repository, and the ignore file lets them through.
func TestWhatTheDockerfileCopiesIsThere(t *testing.T) {
	t.Parallel()
	ignore, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	all, _ := stages(t, dockerfile(t))
	for _, s := range all {
		for _, c := range s.Commands {
			copied, ok := c.(*instructions.CopyCommand)
			if !ok || copied.From != "" {
				continue
			}
			for _, source := range copied.SourcePaths {
				if _, err := os.Stat(filepath.Join(root, source)); err != nil {
					t.Errorf("%s: %v", source, err)
				}
				top, _, _ := strings.Cut(strings.TrimSuffix(source, "/"), "/")
				if !strings.Contains(string(ignore), "!"+top) {
					t.Errorf("%s is ignored", source)
				}
			}
		}
	}
}
