package terminal

import "github.com/wakebus/wakebus/internal/sprites"

// SpriteShells are spriteShells, for the measurement of real sockets.
func SpriteShells(c *sprites.Client) Shells { return spriteShells{c} }

// Align is align, for its property.
var Align = align

// Flow is flow, for its property.
type Flow struct{ flow }

// Begin starts the count; the others are the window's own too.
func (f *Flow) Begin(offset int64)            { f.begin(offset) }
func (f *Flow) Skip(at, n int64) bool         { return f.skip(at, n) }
func (f *Flow) Ack(offset, cursor int64) bool { return f.ack(offset, cursor) }
func (f *Flow) Ahead(cursor int64) int64      { return f.ahead(cursor) }

// ModesAfter are the sequences that restore the modes after output that came in pieces.
func ModesAfter(pieces ...string) string {
	var m modes
	for _, p := range pieces {
		m.scan([]byte(p))
	}
	return string(m.restore())
}
