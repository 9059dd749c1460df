package audit

import "strings"

// redacted stands in for a secret.
const redacted = "[redacted]"

// secretMarks make a name that of a secret, wherever in the name they stand.
var secretMarks = []string{
	"token", "secret", "passw", "passphrase", "passwd", "pwd", "apikey", "api_key", "api-key", "access_key", "access-key",
	"accesskey", "private_key", "private-key", "privatekey", "credential", "authorization", "auth_key", "authkey",
	"cookie", "session_id", "sessionid", "connection_string", "signature", "encryption_key", "signing_key",
}

// tokenPrefixes begin tokens of well-known issuers.
var tokenPrefixes = []string{
	"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk-", "sk_live_", "sk_test_", "rk_live_", "xoxb-",
	"xoxp-", "xoxa-", "xapp-", "npm_", "pypi-", "hf_", "AKIA", "ASIA", "AIza", "eyJ", "SG.", "dop_v1_", "shpat_",
}

// maxLabel is how far behind "-----BEGIN " a private key's label is looked for, in bytes.
const maxLabel = 64

// The shortest runs of characters that count as a token: of a known issuer, of letters and digits, of base64.
const (
	minIssued = 16
	minMixed  = 32
	minBase64 = 40
)

// Redact replaces what looks like a secret: values assigned to secret-like names (in a shell, as a flag, in JSON, as a
// header), bearer and basic credentials, user:password in URLs, private keys in PEM, and long tokens. It is a net for
// records, not a proof. Time is linear in the text, and redacting twice changes nothing more.
func Redact(text string) string {
	return redactTokens(redactNamed(redactPEM(text)))
}

func redactPEM(text string) string {
	const begin, end, mark = "-----BEGIN ", "-----END ", "PRIVATE KEY-----"
	var b strings.Builder
	for {
		i := strings.Index(text, begin)
		if i < 0 {
			break
		}
		rest := text[i+len(begin):]
		// The kind of key stands between the two, a few words; a bounded look keeps the time linear.
		j := strings.Index(rest[:min(len(rest), maxLabel)], mark)
		if j < 0 {
			b.WriteString(text[:i+len(begin)])
			text = rest
			continue
		}
		b.WriteString(text[:i] + redacted)
		rest = rest[j+len(mark):]
		k := strings.Index(rest, end)
		if k < 0 {
			return b.String()
		}
		text = rest[k+len(end):]
		if j := strings.Index(text[:min(len(text), maxLabel)], mark); j >= 0 {
			text = text[j+len(mark):]
		}
	}
	b.WriteString(text)
	return b.String()
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

func space(c byte) bool { return c == ' ' || c == '\t' }

// redactNamed walks from name to name; what it redacts it never looks at again.
func redactNamed(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		if !nameByte(text[i]) {
			b.WriteByte(text[i])
			i++
			continue
		}
		end := i
		for end < len(text) && nameByte(text[end]) {
			end++
		}
		b.WriteString(text[i:end])
		from, to := secretAfter(text, text[i:end], end)
		if to > from {
			b.WriteString(text[end:from] + redacted)
			end = to
		}
		i = end
	}
	return b.String()
}

// secretAfter finds the secret that the name ending at end announces: text[from:to], empty when it announces none.
func secretAfter(text, name string, end int) (from, to int) {
	lower := strings.ToLower(name)
	switch {
	case strings.HasPrefix(text[end:], "://"):
		return userinfo(text, end+3)
	case lower == "bearer" || lower == "basic":
		from = skip(text, end)
		if from == end {
			return end, end
		}
		return from, word(text, from)
	case !secretName(lower):
		return end, end
	}
	at := end
	if at < len(text) && (text[at] == '"' || text[at] == '\'') {
		at++
	}
	sep := skip(text, at)
	assigned := sep < len(text) && (text[sep] == '=' || text[sep] == ':')
	switch {
	case assigned && strings.HasPrefix(text[sep:], ":="):
		from = skip(text, sep+2)
	case assigned:
		from = skip(text, sep+1)
	case name[0] == '-' && sep > end && at == end:
		from = sep
	default:
		return end, end
	}
	if assigned && text[sep] == ':' && (strings.Contains(lower, "authorization") || strings.Contains(lower, "cookie")) {
		return from, line(text, from)
	}
	return from, word(text, from)
}

func secretName(lower string) bool {
	if lower == "pwd" || lower == "oldpwd" {
		return false
	}
	for _, mark := range secretMarks {
		if strings.Contains(lower, mark) {
			return true
		}
	}
	return false
}

func skip(text string, i int) int {
	for i < len(text) && space(text[i]) {
		i++
	}
	return i
}

// word is where a value that starts at from ends: behind its closing quotes and what is stuck to them, or at a space
// or what ends a shell word.
func word(text string, from int) int {
	i := from
	for i < len(text) && (text[i] == '"' || text[i] == '\'') {
		i = quoted(text, i)
	}
	for i < len(text) && strings.IndexByte(" \t\r\n\"'`;|&<>(){},", text[i]) < 0 {
		i++
	}
	return i
}

// quoted is where the quote that opens at from ends; without an end it is the end of the text.
func quoted(text string, from int) int {
	q := text[from]
	for i := from + 1; i < len(text); i++ {
		if text[i] == '\\' && q == '"' {
			i++
		} else if text[i] == q {
			return i + 1
		}
	}
	return len(text)
}

// line is where a header's value that starts at from ends.
func line(text string, from int) int {
	for i := from; i < len(text); i++ {
		if strings.IndexByte("\r\n\"'`", text[i]) >= 0 {
			return i
		}
	}
	return len(text)
}

// userinfo is the part before the last @ of the authority that starts at from.
func userinfo(text string, from int) (int, int) {
	at := from
	for i := from; i < len(text) && strings.IndexByte("/?# \t\r\n\"'`<>", text[i]) < 0; i++ {
		if text[i] == '@' {
			at = i
		}
	}
	return from, at
}

func tokenByte(c byte) bool { return nameByte(c) || c == '+' || c == '=' }

// redactTokens replaces long runs that no person types: mixed letters and digits, base64, known issuers' tokens.
func redactTokens(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		if !tokenByte(text[i]) {
			b.WriteByte(text[i])
			i++
			continue
		}
		end := i
		for end < len(text) && (tokenByte(text[end]) || text[end] == '/' || text[end] == '.') {
			end++
		}
		if run := text[i:end]; issued(run) || len(run) >= minBase64 && base64Like(run) {
			b.WriteString(redacted)
		} else {
			b.WriteString(redactParts(run))
		}
		i = end
	}
	return b.String()
}

// redactParts looks at the parts of a path or a dotted name one by one.
func redactParts(run string) string {
	var b strings.Builder
	for run != "" {
		end := strings.IndexAny(run, "/.")
		part := run
		if end >= 0 {
			part = run[:end]
		}
		if issued(part) || len(part) >= minMixed && mixed(part) {
			part = redacted
		}
		b.WriteString(part)
		if end < 0 {
			break
		}
		b.WriteByte(run[end])
		run = run[end+1:]
	}
	return b.String()
}

func issued(run string) bool {
	if len(run) < minIssued {
		return false
	}
	for _, p := range tokenPrefixes {
		if strings.HasPrefix(run, p) {
			return true
		}
	}
	return false
}

func classes(s string) (lower, upper, digit bool) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z':
			lower = true
		case c >= 'A' && c <= 'Z':
			upper = true
		case c >= '0' && c <= '9':
			digit = true
		}
	}
	return lower, upper, digit
}

func mixed(s string) bool {
	lower, upper, digit := classes(s)
	return digit && (lower || upper)
}

// base64Like: a path that has upper and lower case and digits in 40 characters without a dot is taken for one too.
func base64Like(s string) bool {
	lower, upper, digit := classes(s)
	return lower && upper && digit && !strings.Contains(s, ".")
}
