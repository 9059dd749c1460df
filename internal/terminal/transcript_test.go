package terminal_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// stretch is output that was shown without a break. missing is what was said to be missing before it, in bytes: 0 for
// the first, unknown when nobody knows.
type stretch struct {
	text    string
	missing int64
}

const unknown = -1

// said are the words in which the clients show a gap.
var said = regexp.MustCompile(`\x1bc|\x18\x1b\[0m\r\n(?:\x1b\[2m)?\[(\d+) bytes were skipped\](?:\x1b\[0m)?\r\n`)

// transcriptOf cuts what a terminal was shown at the gaps that were said.
func transcriptOf(text string) []stretch {
	out := []stretch{{}}
	for {
		m := said.FindStringSubmatchIndex(text)
		if m == nil {
			out[len(out)-1].text += text
			return out
		}
		out[len(out)-1].text += text[:m[0]]
		next := stretch{missing: unknown}
		if m[2] >= 0 {
			next.missing, _ = strconv.ParseInt(text[m[2]:m[3]], 10, 64) // digits
		}
		out, text = append(out, next), text[m[1]:]
	}
}

var wholeLine = regexp.MustCompile(`\d{6}`)

// The first and the last words of what is compared.
const firstLine, lastLine = "000000", "the last line"

// agrees holds what was shown to the shell's own log: every byte of the log in its place, none twice within a stretch,
// but for exactly the gaps that were said. A gap of known size moves on by just that; after one of unknown size comes
// the sandbox's own picture, which may begin anywhere but must be the log's own text, and the last stretch must reach
// the log's end.
func agrees(got []stretch, want string) error {
	if len(want) == 0 {
		return errors.New("the log is empty")
	}
	pos := 0
	for i, s := range got {
		text := s.text
		if k := strings.Index(text, firstLine); k >= 0 {
			if s.missing > 0 {
				return fmt.Errorf("stretch %d begins before a gap of known size", i)
			}
			text, pos = text[k:], 0
		} else if i == 0 {
			return fmt.Errorf("no first line in %.200q", text)
		}
		if i == len(got)-1 {
			k := strings.LastIndex(text, lastLine)
			if k < 0 {
				return fmt.Errorf("no last line in %q", text[max(0, len(text)-200):])
			}
			text = text[:k]
		}
		switch {
		case s.missing > 0:
			pos += int(s.missing)
		case s.missing == unknown && i < len(got)-1 && !wholeLine.MatchString(text):
			continue // the picture was cut short before its first number
		case s.missing == unknown && !strings.HasPrefix(text, firstLine):
			at := strings.Index(want, text)
			if at < 0 || (len(text) >= 16 && strings.LastIndex(want, text) != at) {
				return fmt.Errorf("stretch %d of %d bytes is none of the log: %.100q", i, len(text), text)
			}
			pos = at
		}
		if pos > len(want) || !strings.HasPrefix(want[pos:], text) {
			rest := want[min(pos, len(want)):]
			return fmt.Errorf("stretch %d differs from the log's %d bytes from %d on at byte %d: %.60q", i, len(rest), pos, differ(text, rest), text[min(differ(text, rest), len(text)):])
		}
		pos += len(text)
	}
	if pos != len(want) {
		return fmt.Errorf("ends at byte %d of %d", pos, len(want))
	}
	return nil
}

func differ(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// gaps counts the gaps that were said.
func gaps(got []stretch) int { return len(got) - 1 }

// The comparison itself must catch every lie.
func TestATranscriptAgreesOnlyWhenItIsTrue(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 200 {
		fmt.Fprintf(&log, "%06d\r\n", i)
	}
	want := log.String()
	skip := func(n int) string { return fmt.Sprintf("\x18\x1b[0m\r\n[%d bytes were skipped]\r\n", n) }
	for name, c := range map[string]struct {
		shown string
		holds bool
	}{
		"all":                          {want + lastLine, true},
		"with a prompt before":         {"$ ready\r\n" + want + lastLine, true},
		"a gap of the right size":      {want[:80] + skip(40) + want[120:] + lastLine, true},
		"a picture from the beginning": {want[:80] + "\x1bcready\r\n" + want + lastLine, true},
		"a picture from the middle":    {want[:80] + "\x1bc" + want[44:] + lastLine, true},
		"a picture that lost some":     {want[:80] + "\x1bc" + want[804:] + lastLine, true},
		"two pictures, one cut short":  {want[:80] + "\x1bc" + want[:33] + "\x1bc" + want[44:] + lastLine, true},
		"a byte lost":                  {want[:80] + want[81:] + lastLine, false},
		"a line twice":                 {want[:80] + want[72:] + lastLine, false},
		"the end lost":                 {want[:len(want)-8] + lastLine, false},
		"the beginning lost":           {want[8:] + lastLine, false},
		"a gap of the wrong size":      {want[:80] + skip(41) + want[120:] + lastLine, false},
		"a gap that was not said":      {want[:80] + want[120:] + lastLine, false},
		"a picture with a hole":        {want[:80] + "\x1bc" + want[44:80] + want[88:] + lastLine, false},
		"a picture that ends early":    {want[:80] + "\x1bc" + want[44:len(want)-8] + lastLine, false},
		"a byte changed":               {want[:80] + "x" + want[81:] + lastLine, false},
		"cut off":                      {want[:80], false},
	} {
		if err := agrees(transcriptOf(c.shown), want); (err == nil) != c.holds {
			t.Errorf("%s: %v", name, err)
		}
	}
}
