package guest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A frame is a five byte head (length, number of descriptors) followed by JSON.
// Descriptors ride on the head, so that a short read of the body cannot part
// them from their message.
const (
	headSize     = 5
	maxFrame     = 64 << 20
	maxFrameFDs  = 4
	exitEvent    = "exit"
	opBoot       = "boot"
	opExec       = "exec"
	opSignal     = "signal"
	opFreeze     = "freeze"
	opThaw       = "thaw"
	opDial       = "dial"
	opPorts      = "ports"
	opArgv       = "argv"
	opOpen       = "fs.open"
	opList       = "fs.list"
	opDelete     = "fs.delete"
	opRename     = "fs.rename"
	opCopy       = "fs.copy"
	opChmod      = "fs.chmod"
	opChown      = "fs.chown"
	opWatch      = "fs.watch"
	controlFD    = 3
	guestMarker  = "WAKEBUS_EMULATOR_GUEST"
	maxInFlight  = 256
	defaultPath  = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	firstProcess = 20
)

// message is one frame between host and init: a request, its answer (same ID),
// or an event (ID 0).
type message struct {
	ID    uint64          `json:"id,omitempty"`
	Op    string          `json:"op,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
	Error *Failure        `json:"error,omitempty"`
}

// link frames messages over one Unix socket. Sends may be concurrent; receives
// belong to one goroutine.
type link struct {
	conn *net.UnixConn
	wmu  sync.Mutex // keeps head, descriptors and body of one message together
}

func newLink(f *os.File) (*link, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(ErrProtocol, c.Close())
	}
	return &link{conn: uc}, nil
}

func (l *link) send(m message, fds ...int) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Op, err)
	}
	if len(body) > maxFrame || len(fds) > maxFrameFDs {
		return fmt.Errorf("send %s of %d bytes: %w", m.Op, len(body), ErrTooLarge)
	}
	head := make([]byte, headSize)
	binary.BigEndian.PutUint32(head, uint32(len(body)))
	head[4] = byte(len(fds))
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if _, _, err := l.conn.WriteMsgUnix(head, oob, nil); err != nil {
		return fmt.Errorf("send %s: %w", m.Op, err)
	}
	if _, err := l.conn.Write(body); err != nil {
		return fmt.Errorf("send %s: %w", m.Op, err)
	}
	return nil
}

// recv blocks for the next message. The caller owns the files it returns.
func (l *link) recv() (message, []*os.File, error) {
	head := make([]byte, headSize)
	oob := make([]byte, unix.CmsgSpace(maxFrameFDs*4))
	n, oobn, _, _, err := l.conn.ReadMsgUnix(head, oob)
	if err != nil {
		return message{}, nil, err
	}
	if n == 0 {
		return message{}, nil, io.EOF
	}
	files, err := receivedFiles(oob[:oobn])
	if err != nil {
		return message{}, nil, err
	}
	m, err := l.body(head, n)
	if err != nil {
		closeAll(files)
		return message{}, nil, err
	}
	return m, files, nil
}

func (l *link) body(head []byte, have int) (message, error) {
	if _, err := io.ReadFull(l.conn, head[have:]); err != nil {
		return message{}, err
	}
	size := binary.BigEndian.Uint32(head)
	if size > maxFrame {
		return message{}, ErrTooLarge
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(l.conn, raw); err != nil {
		return message{}, err
	}
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		return message{}, fmt.Errorf("decode frame: %w", err)
	}
	return m, nil
}

func receivedFiles(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse descriptors: %w", err)
	}
	var files []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("parse descriptors: %w", err)
		}
		for _, fd := range fds {
			// Non-blocking first: os.NewFile then hands it to the poller, so
			// that reads can be interrupted by deadlines and Close.
			_ = unix.SetNonblock(fd, true)
			files = append(files, os.NewFile(uintptr(fd), "guest"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
