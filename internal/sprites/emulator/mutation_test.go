package emulator_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// sdk/run.sh proves each check that mutations.txt names by the mutation beside it.
func TestEveryMutationNamesTheSDKCheckThatItTurnsRed(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("sdk/mutations.txt")
	if err != nil {
		t.Fatal(err)
	}
	var named []emulator.Mutation
	for line := range strings.Lines(string(list)) {
		mutation, check, _ := strings.Cut(strings.TrimSpace(line), " ")
		named = append(named, emulator.Mutation(mutation))
		if check == "" {
			t.Errorf("%s has no check", mutation)
		}
	}
	want := emulator.Mutations()
	slices.Sort(named)
	slices.Sort(want)
	if !slices.Equal(named, want) {
		t.Errorf("mutations.txt names %v, the emulator has %v", named, want)
	}
}
