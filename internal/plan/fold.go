package plan

import (
	"strings"
	"unicode/utf8"
)

// foldText lowers ASCII letters and replaces the characters that resolvers fold to ASCII: full-width forms, circled
// digits and letters, the ideographic full stops. Other characters become spaces, which end an address.
func foldText(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		b.WriteByte(foldRune(r))
	}
	return b.String()
}

func foldRune(r rune) byte {
	switch {
	case r >= 'A' && r <= 'Z':
		return byte(r) + 'a' - 'A'
	case r < utf8.RuneSelf:
		return byte(r)
	case r >= 0xFF01 && r <= 0xFF5E:
		return foldRune(r - 0xFF01 + '!')
	case r == 0x3002 || r == 0xFF61:
		return '.'
	case r == 0x24EA:
		return '0'
	case r >= 0x2460 && r <= 0x2468:
		return byte(r-0x2460) + '1'
	case r >= 0x24B6 && r <= 0x24CF:
		return byte(r-0x24B6) + 'a'
	case r >= 0x24D0 && r <= 0x24E9:
		return byte(r-0x24D0) + 'a'
	}
	return ' '
}

// percentDecode decodes each %XX once and leaves everything else as it is.
func percentDecode(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, ok := digits(strings.ToLower(s[i+1:i+3]), 16); ok {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// stripQuoting removes what a shell removes inside a word.
func stripQuoting(s string) string {
	if !strings.ContainsAny(s, "\"'\\") {
		return s
	}
	return strings.NewReplacer("\\\n", "", "\"", "", "'", "", "\\", "").Replace(s)
}
