package bus

import (
	"encoding/json"
	"regexp"
	"strconv"
)

// maxShown is how much of one text a redacted request shows, in bytes.
const maxShown = 512

// secretWords finds what callers put beside a password or token; a redacted copy is read by people who need neither.
var secretWords = regexp.MustCompile(`(?i)((?:[a-z0-9_-]*(?:token|secret|passw(?:or)?d|api[_-]?key|credential)[a-z0-9_-]*["']?\s*[=:]|` +
	`\b(?:authorization:\s*)?(?:bearer|basic)\s|--?(?:token|secret|password|api-key)[ =])\s*)("[^"]*"|'[^']*'|[^\s"']+)`)

// userInfo finds credentials in URLs.
var userInfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s@]+@`)

// Redact makes the copy of a request that a person may read: env values, stdin and what looks like a secret are
// replaced, long texts are cut. What is no JSON object becomes its size. It never fails.
func Redact(body []byte) json.RawMessage {
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		out, _ := json.Marshal(map[string]any{"unreadable_bytes": len(body)})
		return out
	}
	for name, value := range fields {
		switch name {
		case "stdin":
			fields[name] = hidden(value)
		case "env":
			if env, ok := value.(map[string]any); ok {
				for k, v := range env {
					env[k] = hidden(v)
				}
				continue
			}
			fields[name] = hidden(value)
		default:
			fields[name] = redactValue(value, 0)
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		out, _ = json.Marshal(map[string]any{"unreadable_bytes": len(body)})
	}
	return out
}

func hidden(v any) string {
	if s, ok := v.(string); ok {
		return "[" + strconv.Itoa(len(s)) + " bytes]"
	}
	return "[hidden]"
}

// redactValue keeps two levels; what nests deeper is no request of ours.
func redactValue(v any, depth int) any {
	switch v := v.(type) {
	case string:
		return RedactText(v)
	case []any:
		if depth > 0 {
			return "[hidden]"
		}
		for i := range v {
			v[i] = redactValue(v[i], depth+1)
		}
		return redactArgs(v)
	case map[string]any:
		return "[hidden]"
	}
	return v
}

// secretFlag is an argument whose successor is the secret.
var secretFlag = regexp.MustCompile(`(?i)^--?[a-z0-9_-]*(token|secret|passw(or)?d|api[_-]?key|credential)[a-z0-9_-]*$`)

func redactArgs(args []any) []any {
	for i := 1; i < len(args); i++ {
		if flag, ok := args[i-1].(string); ok && secretFlag.MatchString(flag) {
			args[i] = hidden(args[i])
		}
	}
	return args
}

// RedactText replaces what looks like a secret in a line for people and cuts it to 512 bytes.
func RedactText(s string) string {
	s = userInfo.ReplaceAllString(s, "${1}[hidden]@")
	s = secretWords.ReplaceAllString(s, "${1}[hidden]")
	return clipTo(s, maxShown)
}
