package sprites

import (
	"encoding/binary"
	"encoding/json"
	"strings"
)

// Stream is one of a command's two output streams.
type Stream byte

// The streams, by their numbers on the wire (Sprites API reference, exec).
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// String returns stdout or stderr.
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// The frame ids of a socket without a PTY (Sprites API reference, exec).
const (
	frameStdin    = 0
	frameStdout   = 1
	frameStderr   = 2
	frameExit     = 3
	frameStdinEOF = 4
)

// frameKind is what a frame means to us.
type frameKind byte

const (
	frameIgnored frameKind = iota // unknown, empty or not for us
	frameOutput                   // data on stream
	frameEnded                    // the process ended with code
	frameInfo                     // session_info
	frameTrailer                  // a text exit frame without a PTY: nothing follows it, and its code is not believed
)

// frame is a parsed WebSocket message.
type frame struct {
	kind   frameKind
	stream Stream
	data   []byte
	code   int // of frameEnded; noCode when the frame carried none that makes sense
	info   sessionInfo
}

// noCode marks an exit frame without a code. It is treated as no exit at all.
const noCode = -1

// sessionInfo introduces the session of a socket.
type sessionInfo struct {
	id      string
	created int64
	tty     bool
	offset  *int64 // where the replay begins, in bytes of output; nil where the server does not say
}

// parseBinary reads a binary message of a socket without a PTY. It is pure and takes any bytes.
//
// The exit payload is one byte. An empty one is no code: the SDKs read it as 0, which would make a success of nothing.
// Four bytes are read as a big-endian code; any other length is no code.
func parseBinary(msg []byte) frame {
	if len(msg) == 0 {
		return frame{}
	}
	payload := msg[1:]
	switch msg[0] {
	case frameStdout, frameStderr:
		if len(payload) == 0 {
			return frame{}
		}
		return frame{kind: frameOutput, stream: Stream(msg[0]), data: payload}
	case frameExit:
		return frame{kind: frameEnded, code: exitPayload(payload)}
	}
	return frame{}
}

func exitPayload(p []byte) int {
	switch len(p) {
	case 1:
		return int(p[0])
	case 4:
		return validCode(int64(binary.BigEndian.Uint32(p)))
	}
	return noCode
}

func validCode(n int64) int {
	if n < 0 || n > 255 {
		return noCode
	}
	return int(n)
}

// parseText reads a text message. It is pure and takes any bytes; unknown types are ignored.
func parseText(msg []byte) frame {
	var m struct {
		Type      string          `json:"type"`
		SessionID json.RawMessage `json:"session_id"`
		Created   json.Number     `json:"created"`
		TTY       bool            `json:"tty"`
		ExitCode  *int64          `json:"exit_code"`
		Offset    *int64          `json:"output_offset"`
	}
	if json.Unmarshal(msg, &m) != nil {
		return frame{}
	}
	switch m.Type {
	case "session_info":
		// The id is a decimal string; older servers sent the number.
		id := strings.Trim(string(m.SessionID), `"`)
		if !validSessionID(id) {
			return frame{}
		}
		created, _ := m.Created.Int64()
		return frame{kind: frameInfo, info: sessionInfo{id: id, created: created, tty: m.TTY, offset: m.Offset}}
	case "exit":
		code := noCode
		if m.ExitCode != nil {
			code = validCode(*m.ExitCode)
		}
		return frame{kind: frameEnded, code: code}
	}
	return frame{}
}

// validSessionID accepts what may go into a path. Ids are PIDs today.
func validSessionID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	return strings.IndexFunc(id, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '_')
	}) < 0
}
