package plan

// MaxToken is the longest identifier that may become a subject token, a key or a name, in bytes.
const MaxToken = 64

// NoTenant is the reserved tenant of requests that were published without one.
const NoTenant = "_"

// ValidToken reports whether s may become one subject token: 1 to 64 bytes of [A-Za-z0-9_-].
func ValidToken(s string) bool {
	if s == "" || len(s) > MaxToken {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// ValidPrincipal reports whether s may name a user, a drive or an agent page: 1 to 128 printable ASCII bytes.
// Such a name must still be encoded wherever it enters a key.
func ValidPrincipal(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
