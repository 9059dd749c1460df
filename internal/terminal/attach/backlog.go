package attach

import "github.com/wakebus/wakebus/internal/terminal/frame"

// maxBacklog bounds what was typed and not acked; beyond it no more is read from the keyboard.
const maxBacklog = 64 << 10

// backlog is what was typed and is not yet acked. Positions count this client's input in the present session.
type backlog struct {
	data  []byte
	acked int64 // position of data's first byte
	sent  int64 // position of the next byte to send
}

func (b *backlog) full() bool { return len(b.data) >= maxBacklog }

func (b *backlog) add(p []byte) { b.data = append(b.data, p...) }

// ack forgets what has arrived.
func (b *backlog) ack(position int64) {
	n := min(position-b.acked, int64(len(b.data)))
	if n <= 0 {
		return
	}
	b.data = append([]byte(nil), b.data[n:]...)
	b.acked += n
	b.sent = max(b.sent, b.acked)
}

// resume starts sending again from what the gateway said has arrived.
func (b *backlog) resume(position int64) {
	b.ack(position)
	b.sent = b.acked
}

// restart begins a new session's count. What was sent to the old one and not acked is lost, and how much is returned;
// what was not sent is typed into the new one.
func (b *backlog) restart() (lost int) {
	lost = int(b.sent - b.acked)
	b.data = append([]byte(nil), b.data[lost:]...)
	b.acked, b.sent = 0, 0
	return lost
}

// next is the next frame to send, or nil when the window is full or nothing waits.
func (b *backlog) next() []byte {
	from := b.sent - b.acked
	n := min(int64(len(b.data))-from, frame.InputWindow-from, frame.MaxInput)
	if n <= 0 {
		return nil
	}
	b.sent += n
	return b.data[from : from+n]
}
