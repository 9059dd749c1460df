// Package frame is the edge protocol's control frames: what a browser and the terminal gateway say to each other in
// JSON beside the terminal's own bytes.
package frame

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// The limits of the edge protocol, in bytes unless said.
const (
	// Protocol is the WebSocket subprotocol that the server selects.
	Protocol = "wakebus.terminal.v1"
	// TicketPrefix begins the subprotocol that carries the ticket; the server never selects it.
	TicketPrefix = "wakebus.ticket."
	// MaxInput is the largest binary frame that a client may send.
	MaxInput = 4 << 10
	// MaxControl is the largest text frame either way.
	MaxControl = 16 << 10
	// MaxTail is the longest tail that a hello may carry.
	MaxTail = 1 << 10
	// MaxSide is the largest number of columns or rows that is believed.
	MaxSide = 1000
	// InputWindow is how many bytes a client may have under way without an ack.
	InputWindow = 16 << 10
)

// Type is the word in a control frame's "type".
type Type string

// The closed set of frame types; the first group come from the client, the second from the server. An ack goes both
// ways: the server's counts input, the client's output.
const (
	TypeHello  Type = "hello"
	TypeResize Type = "resize"
	TypeGrant  Type = "grant"
	TypeDetach Type = "detach"
	TypeAck    Type = "ack"

	TypePhase  Type = "phase"
	TypeGap    Type = "gap"
	TypeError  Type = "error"
	TypeClosed Type = "closed"
)

// Client is a control frame from a client. Which fields matter depends on Type.
type Client struct {
	Type Type
	// Page and ClientID go with hello; ClientID is random and kept over reconnects.
	Page, ClientID string
	// Session, Offset and Tail go with the hello of a client that comes back: the numbering it knows, how many bytes it
	// has shown, and the last of them.
	Session string
	Offset  int64
	Tail    []byte
	// Flow is true when the client acks output and wants no more than a window ahead of that.
	Flow bool
	// Size goes with hello and resize; it is zero when what was sent cannot be a size, and is then to be ignored.
	Size Size
	// Grant goes with grant.
	Grant string
	// Output goes with ack: the offset up to which the client has shown output.
	Output int64
}

// Size is a terminal's size in characters.
type Size struct{ Cols, Rows int }

// Valid reports whether both sides are 1 to MaxSide.
func (s Size) Valid() bool {
	return s.Cols >= 1 && s.Cols <= MaxSide && s.Rows >= 1 && s.Rows <= MaxSide
}

// ErrMalformed is wrapped by every error of ParseClient and ParseServer.
var ErrMalformed = errors.New("malformed control frame")

// clientJSON is a client's frame on the wire. Numbers stay floats until they are judged: a hidden browser tab measures
// itself as 0x0, NaN or fractions, and that must not end a terminal.
type clientJSON struct {
	Type    Type            `json:"type"`
	Page    string          `json:"page,omitempty"`
	Client  string          `json:"client,omitempty"`
	Cols    json.RawMessage `json:"cols,omitempty"`
	Rows    json.RawMessage `json:"rows,omitempty"`
	Session string          `json:"session,omitempty"`
	Offset  int64           `json:"offset,omitempty"`
	Tail    []byte          `json:"tail,omitempty"`
	Flow    bool            `json:"flow,omitempty"`
	Grant   string          `json:"grant,omitempty"`
	Output  int64           `json:"output,omitempty"`
}

// ParseClient reads a client's control frame. Fields it does not know are ignored, so that newer clients work; a type
// it does not know is an error, as are bytes after the object. Every error wraps ErrMalformed.
func ParseClient(data []byte) (Client, error) {
	var in clientJSON
	if err := decode(data, &in); err != nil {
		return Client{}, err
	}
	out := Client{Type: in.Type, Page: in.Page, ClientID: in.Client, Session: in.Session, Offset: in.Offset,
		Tail: in.Tail, Flow: in.Flow, Grant: in.Grant, Output: in.Output, Size: parseSize(in.Cols, in.Rows)}
	switch in.Type {
	case TypeHello:
		return out, out.checkHello()
	case TypeGrant:
		if in.Grant == "" {
			return Client{}, fmt.Errorf("%w: a grant frame without a grant", ErrMalformed)
		}
	case TypeAck:
		if in.Output < 0 {
			return Client{}, fmt.Errorf("%w: a negative offset", ErrMalformed)
		}
	case TypeResize, TypeDetach:
	case TypePhase, TypeGap, TypeError, TypeClosed:
		return Client{}, fmt.Errorf("%w: %q is a frame of the server", ErrMalformed, in.Type)
	default:
		return Client{}, fmt.Errorf("%w: %q is no frame of a client", ErrMalformed, short(string(in.Type)))
	}
	return out, nil
}

func (c Client) checkHello() error {
	switch {
	case !token(c.ClientID):
		return fmt.Errorf("%w: hello needs a client of 1 to 64 letters, digits, - or _", ErrMalformed)
	case len(c.Session) > 64, len(c.Page) > 64:
		return fmt.Errorf("%w: session and page have at most 64 bytes", ErrMalformed)
	case c.Offset < 0:
		return fmt.Errorf("%w: a negative offset", ErrMalformed)
	case len(c.Tail) > MaxTail:
		return fmt.Errorf("%w: a tail has at most %d bytes", ErrMalformed, MaxTail)
	}
	return nil
}

// parseSize gives the zero Size for all that cannot be one.
func parseSize(cols, rows json.RawMessage) Size {
	s := Size{Cols: side(cols), Rows: side(rows)}
	if !s.Valid() {
		return Size{}
	}
	return s
}

func side(raw json.RawMessage) int {
	var f float64
	if len(raw) == 0 || json.Unmarshal(raw, &f) != nil || math.IsNaN(f) || f < 1 || f > MaxSide {
		return 0
	}
	return int(f)
}

// Encode gives the frame as it goes over the wire.
func (c Client) Encode() []byte {
	out := clientJSON{Type: c.Type, Page: c.Page, Client: c.ClientID, Session: c.Session, Offset: c.Offset,
		Tail: c.Tail, Flow: c.Flow, Grant: c.Grant, Output: c.Output}
	if c.Size.Valid() {
		out.Cols, out.Rows = mustJSON(c.Size.Cols), mustJSON(c.Size.Rows)
	}
	return mustJSON(out)
}

// decode reads exactly one JSON object.
func decode(data []byte, into any) error {
	if len(data) > MaxControl {
		return fmt.Errorf("%w: more than %d bytes", ErrMalformed, MaxControl)
	}
	if !utf8.Valid(data) {
		return fmt.Errorf("%w: not UTF-8", ErrMalformed)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w: not the JSON of a frame", ErrMalformed)
	}
	if dec.More() || len(bytes.TrimSpace(data[dec.InputOffset():])) > 0 {
		return fmt.Errorf("%w: bytes after the frame", ErrMalformed)
	}
	return nil
}

// mustJSON encodes our own structs, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("frame: " + err.Error())
	}
	return b
}

func token(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return s != "" && len(s) <= 64 && strings.Trim(s, letters) == ""
}

func short(s string) string {
	if len(s) > 32 {
		s = s[:32]
	}
	return s
}
