package attach

import "time"

// maxEnds bounds how often the end of the input is typed. With a pause that doubles, the default makes it about two minutes.
const maxEnds = 8

// ending types the input's end until the shell hears it: what is typed before the shell reads by itself is lost on it, for
// taking the terminal over flushes it. The zero value has not begun.
type ending struct {
	wait  <-chan time.Time // nil before the input has ended
	pause time.Duration
	typed int
}

// begin counts the Ctrl-D that was just typed as the first.
func (e *ending) begin(pause time.Duration) {
	e.typed, e.pause, e.wait = 1, pause, time.After(pause)
}

// again says whether Ctrl-D is to be typed once more. One for a connection that is not there yet is not counted.
func (e *ending) again(answered bool) (typeIt bool) {
	if answered {
		e.typed++
		e.pause *= 2
	}
	e.wait = time.After(e.pause)
	return answered
}

// spent says that the shell does not end for it.
func (e *ending) spent() bool { return e.typed >= maxEnds }
