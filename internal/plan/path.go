package plan

import (
	"strings"
	"unicode/utf8"
)

// Workspace is the only folder that requests may name.
const Workspace = "/workspace"

// The limits of a path, in bytes; those of Linux.
const (
	maxPath    = 4096
	maxSegment = 255
)

// ConfinePath joins path to cwd (each absolute, or relative to /workspace; empty = /workspace) and returns the clean
// absolute path, which is /workspace or below it. It refuses (*Violation, path_escape) whatever leaves /workspace on
// its way, also percent-encoded once or twice or with backslashes, control characters, NUL and text that is not UTF-8.
// Symbolic links are beyond a pure function: whoever opens the path must resolve them in the sandbox.
func ConfinePath(cwd, path string) (string, error) {
	base, why := confine(nil, cwd)
	if why == "" {
		base, why = confine(base, path)
	}
	if why != "" {
		return "", &Violation{Reason: ReasonPathEscape, Detail: why, Anomaly: true}
	}
	if len(base) == 0 {
		return Workspace, nil
	}
	joined := Workspace + "/" + strings.Join(base, "/")
	if len(joined) > maxPath {
		return "", &Violation{Reason: ReasonPathEscape, Detail: "the path is too long"}
	}
	return joined, nil
}

// confine walks path from base, the segments below /workspace, and says why it must not when it must not.
func confine(base []string, path string) (segments []string, why string) {
	if len(path) > maxPath {
		return nil, "the path is too long"
	}
	// What the path would be if something behind us decoded it is judged too, but the path is used as it stands.
	spelled := path
	for range 3 {
		if why = unclean(spelled); why != "" {
			return nil, why
		}
		if _, ok := walk(base, strings.ReplaceAll(spelled, "\\", "/")); !ok {
			return nil, "the path leaves /workspace"
		}
		decoded := percentDecode(spelled)
		if decoded == spelled {
			break
		}
		spelled = decoded
	}
	segments, ok := walk(base, path)
	if !ok {
		return nil, "the path leaves /workspace"
	}
	for _, s := range segments {
		if len(s) > maxSegment {
			return nil, "a part of the path is too long"
		}
	}
	return segments, ""
}

func unclean(path string) string {
	if !utf8.ValidString(path) {
		return "the path is not UTF-8"
	}
	for i := 0; i < len(path); i++ {
		if path[i] < 0x20 || path[i] == 0x7f {
			return "the path contains a control character"
		}
	}
	return ""
}

// walk follows path and fails as soon as it stands outside /workspace. An absolute path starts at the root and must
// go to /workspace at once.
func walk(base []string, path string) ([]string, bool) {
	at := append([]string(nil), base...)
	if strings.HasPrefix(path, "/") {
		rest := strings.TrimLeft(path, "/")
		below, ok := strings.CutPrefix(rest, Workspace[1:])
		if !ok || (below != "" && below[0] != '/') {
			return nil, false
		}
		at, path = nil, below
	}
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "", ".":
		case "..":
			if len(at) == 0 {
				return nil, false
			}
			at = at[:len(at)-1]
		default:
			at = append(at, part)
		}
	}
	return at, true
}
