package emulator_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// sdk/run.sh proves each check that mutations.txt names by the mutation beside it.
func TestEveryMutationNamesTheSDKCheckThatItTurnsRed(t *testing.T) {
	t.Parallel()
	checks := ""
	files, err := filepath.Glob("sdk/*.test.mjs")
	if err != nil || len(files) == 0 {
		t.Fatal("no checks: ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		checks += string(text)
	}
	list, err := os.ReadFile("sdk/mutations.txt")
	if err != nil {
		t.Fatal(err)
	}
	var named []emulator.Mutation
	for line := range strings.Lines(string(list)) {
		mutation, check, _ := strings.Cut(strings.TrimSpace(line), " ")
		named = append(named, emulator.Mutation(mutation))
		if !strings.Contains(checks, "check('"+check+"'") {
			t.Errorf("%s: there is no check %q", mutation, check)
		}
	}
	want := emulator.Mutations()
	slices.Sort(named)
	slices.Sort(want)
	if !slices.Equal(named, want) {
		t.Errorf("mutations.txt names %v, the emulator has %v", named, want)
	}
}
