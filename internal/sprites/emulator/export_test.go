package emulator

import "context"

// OutputLog gives tests the log that attaches read.
type OutputLog struct{ log *outputLog }

// NewOutputLog makes one that keeps limit bytes.
func NewOutputLog(limit int) OutputLog { return OutputLog{newOutputLog(limit)} }

// Append adds output; nobody stops it.
func (l OutputLog) Append(stream byte, p []byte) { l.log.append(append([]byte{stream}, p...), nil) }

// Close ends the log.
func (l OutputLog) Close() { l.log.close() }

// Read gives everything from offset on, each byte with its stream, and where it
// began.
func (l OutputLog) Read(from int64, merged bool) (at int64, bytes, streams []byte) {
	r := l.log.open(from, merged)
	defer r.close()
	at = r.at
	for f := r.next(context.Background()); f != nil; f = r.next(context.Background()) {
		for _, b := range f[1:] {
			bytes, streams = append(bytes, b), append(streams, f[0])
		}
	}
	return at, bytes, streams
}
