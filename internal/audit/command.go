package audit

import (
	"strings"
	"unicode/utf8"
)

// MaxCommand is the longest command in a record, in bytes.
const MaxCommand = 1 << 10

// Command is a command as records show it: redacted, then capped at MaxCommand bytes. argv is judged item by item, so
// that a value is redacted whole whatever it contains.
func Command(argv []string, shell string) string {
	if len(argv) == 0 {
		return capped(Redact(shell), MaxCommand)
	}
	shown := make([]string, 0, len(argv))
	for i, arg := range argv {
		switch name, _, assigned := strings.Cut(arg, "="); {
		case i > 0 && announces(argv[i-1], arg):
			arg = redacted
		case assigned && secretName(strings.ToLower(name)):
			arg = name + "=" + redacted
		default:
			arg = Redact(arg)
		}
		shown = append(shown, arg)
	}
	return capped(Redact(strings.Join(shown, " ")), MaxCommand)
}

// announces reports whether a flag says that the next item is a secret.
func announces(flag, next string) bool {
	switch flag {
	case "-u", "--user", "--proxy-user":
		return strings.Contains(next, ":")
	}
	return strings.HasPrefix(flag, "-") && !strings.Contains(flag, "=") && secretName(strings.ToLower(flag))
}

// capped cuts text to at most limit bytes at a character's border and says so.
func capped(text string, limit int) string {
	const more = "…"
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	cut := limit - len(more)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}
