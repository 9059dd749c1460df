package terminal_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/wakebus/wakebus/internal/terminal"
)

// Whatever was printed and however a replay is cut at its front: an answer is the true one, or there is none.
func TestAnAlignmentIsTrueOrNone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		letter := rapid.SampledFrom([]byte("ab\n")) // few letters make many false matches
		history := rapid.SliceOfN(letter, 0, 400).Draw(t, "history")
		fresh := rapid.SliceOfN(letter, 0, 100).Draw(t, "fresh")
		known := history[max(0, len(history)-rapid.IntRange(1, 300).Draw(t, "known")):]
		all := append(bytes.Clone(history), fresh...)
		cut := rapid.IntRange(0, len(history)).Draw(t, "cut")
		replay := all[cut:]
		whole := len(known) == len(history) && cut == 0
		next, ok := terminal.Align(known, whole, replay)
		if ok && len(known) >= 64 && len(history)-cut >= 64 && !bytes.Equal(replay[next:], fresh) && unique(known, all) {
			t.Fatalf("known %q in %q gave %q, want %q", known, replay, replay[next:], fresh)
		}
		if whole && len(known) > 0 && (!ok || !bytes.Equal(replay[next:], fresh)) {
			t.Fatalf("a whole history was not recognised")
		}
	})
}

// unique is true when known and every end of it of the least length that counts stand in all but once.
func unique(known, all []byte) bool {
	end := known[len(known)-64:]
	return bytes.Index(all, end) == bytes.LastIndex(all, end)
}

func TestAnAmbiguousReplayIsNotGuessedAt(t *testing.T) {
	t.Parallel()
	flood := bytes.Repeat([]byte("y\r\n"), 1000)
	if _, ok := terminal.Align(flood[:300], false, flood); ok {
		t.Error("a place was guessed in a flood")
	}
	if next, ok := terminal.Align([]byte("$ "), true, []byte("$ ls\r\n$ ")); !ok || next != 2 {
		t.Errorf("a known beginning gave %d, %v", next, ok)
	}
}
