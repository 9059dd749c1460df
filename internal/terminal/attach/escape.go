package attach

// escapeKey is Ctrl-]: followed by d it detaches, followed by itself it is typed once, else both keys are typed.
const escapeKey = 0x1d

// escape finds the detach key in what is typed. It belongs to one goroutine.
type escape struct{ pending bool }

// filter returns what is to be typed and whether the person detaches; what follows the detach key is dropped.
func (e *escape) filter(in []byte) (out []byte, detach bool) {
	for _, c := range in {
		switch {
		case e.pending && c == 'd':
			e.pending = false
			return out, true
		case e.pending && c == escapeKey:
			e.pending = false
			out = append(out, c)
		case e.pending:
			e.pending = false
			out = append(out, escapeKey, c)
		case c == escapeKey:
			e.pending = true
		default:
			out = append(out, c)
		}
	}
	return out, false
}
