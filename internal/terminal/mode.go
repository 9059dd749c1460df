package terminal

import (
	"bytes"
	"fmt"
	"slices"
)

// modes follows the private modes that programs set and that outlive the bytes which set them: the alternate screen, the
// mouse, bracketed paste. Who is shown a history whose beginning is lost needs them first, or vim's screen comes up in
// the scrollback and its keys are the wrong ones. It takes output in any pieces.
type modes struct {
	on    []int  // set and not reset, in order; of the tracked ones only
	count int    // of the switches that changed something
	state int    // of the parser
	args  []byte // of the sequence that it is in
}

// tracked are the modes that start reset (xterm control sequences, DEC private mode set).
var tracked = []int{1, 47, 1000, 1002, 1003, 1006, 1015, 1047, 1049, 2004}

const (
	inText = iota
	inEscape
	inBracket
	inPrivate
)

// maxArgs bounds the arguments of one sequence; a longer one is no mode's.
const maxArgs = 32

func (m *modes) scan(p []byte) {
	for len(p) > 0 {
		if m.state == inText {
			next := bytes.IndexByte(p, 0x1b)
			if next < 0 {
				return
			}
			m.state, p = inEscape, p[next+1:]
			continue
		}
		m.take(p[0])
		p = p[1:]
	}
}

// take moves the parser on by one byte of a sequence.
func (m *modes) take(c byte) {
	was := m.state
	m.state = inText
	switch {
	case c == 0x1b:
		m.state = inEscape
	case was == inEscape && c == '[':
		m.state = inBracket
	case was == inEscape && c == 'c': // full reset
		m.count += len(m.on)
		m.on = nil
	case was == inBracket && c == '?':
		m.state, m.args = inPrivate, m.args[:0]
	case was == inPrivate && (c >= '0' && c <= '9' || c == ';') && len(m.args) < maxArgs:
		m.state, m.args = inPrivate, append(m.args, c)
	case was == inPrivate && (c == 'h' || c == 'l'):
		for arg := range bytes.SplitSeq(m.args, []byte(";")) {
			m.switchTo(number(arg), c == 'h')
		}
	}
}

// number reads at most maxArgs digits; what is no tracked mode's number does not matter.
func number(digits []byte) (n int) {
	for _, d := range digits {
		n = (n*10 + int(d-'0')) % 1_000_000
	}
	return n
}

func (m *modes) switchTo(mode int, on bool) {
	if !slices.Contains(tracked, mode) {
		return
	}
	if slices.Contains(m.on, mode) != on {
		m.count++
	}
	m.on = slices.DeleteFunc(m.on, func(have int) bool { return have == mode })
	if on {
		m.on = append(m.on, mode)
	}
}

// clone is a copy that can be scanned on without changing m.
func (m *modes) clone() *modes {
	return &modes{on: slices.Clone(m.on), count: m.count, state: m.state, args: slices.Clone(m.args)}
}

// fullScreen is true while a program draws on the alternate screen.
func (m *modes) fullScreen() bool {
	return slices.Contains(m.on, 1049) || slices.Contains(m.on, 1047) || slices.Contains(m.on, 47)
}

// restore sets the modes on a terminal that was just reset.
func (m *modes) restore() []byte {
	var out []byte
	for _, mode := range m.on {
		out = fmt.Appendf(out, "\x1b[?%dh", mode)
	}
	return out
}

// renew sets the modes on a terminal of which nobody knows what is set. It leaves the alternate screen by 1047, which
// moves no cursor on a terminal that is not there.
func (m *modes) renew() []byte {
	out := []byte("\x1b[?1;1000;1002;1003;1006;1015;2004l")
	if !m.fullScreen() {
		out = append(out, "\x1b[?1047l"...)
	}
	return append(out, m.restore()...)
}
