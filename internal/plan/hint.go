package plan

import "bytes"

// Hint is a best-effort word on why a command failed.
type Hint string

// The closed set of hints.
const (
	HintNone        Hint = ""
	HintOutOfMemory Hint = "out of memory"
	// HintMayBeMemory: something killed it, and nobody has announced that: the kernel, for want of memory, or the command.
	HintMayBeMemory Hint = "killed, may be out of memory"
	HintDiskFull    Hint = "disk full"
)

var (
	diskFullMarks  = [][]byte{[]byte("no space left on device"), []byte("enospc"), []byte("disk quota exceeded")}
	outOfMemMarks  = [][]byte{[]byte("cannot allocate memory"), []byte("out of memory"), []byte("enomem"), []byte("memoryerror"), []byte("std::bad_alloc")}
	hintTailLength = 4 << 10
)

// OutcomeHint guesses from a command's exit code (0 to 255) and the end of its stderr whether it ran out of memory
// or disk. It reads at most the last 4 KiB. A command that succeeded gets no hint.
func OutcomeHint(exitCode int, stderrTail []byte) Hint {
	if exitCode == 0 {
		return HintNone
	}
	if len(stderrTail) > hintTailLength {
		stderrTail = stderrTail[len(stderrTail)-hintTailLength:]
	}
	text := bytes.ToLower(stderrTail)
	for _, mark := range diskFullMarks {
		if bytes.Contains(text, mark) {
			return HintDiskFull
		}
	}
	for _, mark := range outOfMemMarks {
		if bytes.Contains(text, mark) {
			return HintOutOfMemory
		}
	}
	if exitCode == 137 {
		return HintMayBeMemory // 128 + KILL
	}
	return HintNone
}
