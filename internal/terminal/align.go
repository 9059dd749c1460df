package terminal

import "bytes"

// minOverlap is the shortest overlap of a known tail with the beginning of a replay that is taken for proof.
const minOverlap = 64

// align finds where the unseen begins in a replay of output whose last seen bytes are known. whole says that known is
// everything since the shell began. A replay is raw history cut anywhere at its front, or a screen drawn anew, which
// proves nothing; ok is false then, and also when more than one place would do: no byte is shown twice on a guess.
func align(known []byte, whole bool, replay []byte) (next int, ok bool) {
	if len(known) == 0 {
		return 0, whole
	}
	if whole && bytes.HasPrefix(replay, known) {
		return len(known), true
	}
	if at := bytes.Index(replay, known); at >= 0 {
		if bytes.Contains(replay[at+1:], known) {
			return 0, false
		}
		return at + len(known), true
	}
	return overlap(known, replay)
}

// overlap finds the one length at which the end of known is the beginning of replay.
func overlap(known, replay []byte) (int, bool) {
	found := 0
	for n := min(len(known), len(replay)); n >= minOverlap; n-- {
		if !bytes.HasSuffix(known, replay[:n]) {
			continue
		}
		if found > 0 {
			return 0, false
		}
		found = n
	}
	return found, found > 0
}
