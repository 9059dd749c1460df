package plan

import (
	"fmt"
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
// its way, also percent-encoded once or twice or with backslashes, and (invalid_request) what is no path that it takes:
// one with control characters or NUL, too long, or not UTF-8. The violation's Detail says which.
// Symbolic links are beyond a pure function: whoever opens the path must resolve them in the sandbox.
func ConfinePath(cwd, path string) (string, error) {
	base, v := confine(nil, cwd)
	if v == nil {
		base, v = confine(base, path)
	}
	if v != nil {
		return "", v
	}
	if len(base) == 0 {
		return Workspace, nil
	}
	joined := Workspace + "/" + strings.Join(base, "/")
	if len(joined) > maxPath {
		return "", tooLong()
	}
	return joined, nil
}

// confine walks path from base, the segments below /workspace, and says why it must not when it must not.
func confine(base []string, path string) (segments []string, v *Violation) {
	if len(path) > maxPath {
		return nil, tooLong()
	}
	// What the path would be if something behind us decoded it is judged too, but the path is used as it stands.
	spelled := path
	for range 3 {
		if why := unclean(spelled); why != "" {
			return nil, &Violation{Reason: ReasonInvalidRequest, Detail: why, Anomaly: true}
		}
		if _, ok := walk(base, strings.ReplaceAll(spelled, "\\", "/")); !ok {
			return nil, leaves(spelled == path)
		}
		decoded := percentDecode(spelled)
		if decoded == spelled {
			break
		}
		spelled = decoded
	}
	segments, ok := walk(base, path)
	if !ok {
		return nil, leaves(true)
	}
	for _, s := range segments {
		if len(s) > maxSegment {
			return nil, &Violation{Reason: ReasonInvalidRequest, Detail: fmt.Sprintf("a part of the path is longer than %d bytes", maxSegment)}
		}
	}
	return segments, nil
}

func tooLong() *Violation {
	return &Violation{Reason: ReasonInvalidRequest, Detail: fmt.Sprintf("the path is longer than %d bytes", maxPath)}
}

// leaves is a path that leads out, as it stands or once it is decoded.
func leaves(asItStands bool) *Violation {
	v := &Violation{Reason: ReasonPathEscape, Detail: "the path leaves /workspace", Anomaly: true}
	if !asItStands {
		v.Detail = "the path would leave /workspace once it is percent-decoded"
	}
	return v
}

func unclean(path string) string {
	if strings.ContainsRune(path, utf8.RuneError) {
		// JSON puts U+FFFD in the place of what was not UTF-8: the file would get another name than its caller meant.
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
