package attach

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Keyboard reads a terminal or pipe and can be woken: a plain read of a terminal cannot, and would hold the process or
// eat the next program's first key.
type Keyboard struct {
	file    *os.File
	in, out *os.File // a byte written to out ends Read
	once    sync.Once
}

// OpenKeyboard wraps file, which stays the caller's. Close it.
func OpenKeyboard(file *os.File) (*Keyboard, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open keyboard: %w", err)
	}
	return &Keyboard{file: file, in: in, out: out}, nil
}

var _ io.ReadCloser = (*Keyboard)(nil)

// Read blocks until something is typed, the input has ended, or Close; the last two give io.EOF.
func (k *Keyboard) Read(p []byte) (int, error) {
	fds := []unix.PollFd{{Fd: int32(k.file.Fd()), Events: unix.POLLIN}, {Fd: int32(k.in.Fd()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait for a key: %w", err)
		}
		if fds[1].Revents != 0 {
			return 0, io.EOF
		}
		return k.file.Read(p)
	}
}

// Close makes Read return. It may be called more than once, and from anywhere.
func (k *Keyboard) Close() error {
	k.once.Do(func() { k.out.Close() }) // a hang-up wakes the poll; in is left to the collector, for Read may poll it still
	return nil
}
