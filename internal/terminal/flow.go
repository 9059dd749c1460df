package terminal

// maxJumps bounds the gaps that are under way to one viewer; further ones wait until it has shown some.
const maxJumps = 16

// flow counts how much of what was sent a flow-controlled viewer has yet to show. What a gap skips was never sent and
// takes no room: counted by offsets alone, one gap wider than the window would close it for ever. The session's lock
// protects it.
type flow struct {
	shown int64  // the offset up to which the viewer has shown everything
	jumps []jump // the gaps beyond shown, oldest first
}

// jump is a gap on its way: at is the offset before it.
type jump struct{ at, bytes int64 }

// begin starts the count at the offset of a viewer's first byte.
func (f *flow) begin(offset int64) { *f = flow{shown: offset} }

// ahead is how many bytes were sent up to cursor and not yet shown.
func (f *flow) ahead(cursor int64) int64 {
	n := cursor - f.shown
	for _, j := range f.jumps {
		n -= j.bytes
	}
	return n
}

// skip notes a gap; false when too many are under way already.
func (f *flow) skip(at, bytes int64) bool {
	if len(f.jumps) == maxJumps {
		return false
	}
	f.jumps = append(f.jumps, jump{at: at, bytes: bytes})
	return true
}

// ack takes the offset up to which the viewer says that it has shown output; false when that opens nothing. An offset
// within a gap, where nothing can be shown, counts as the one before it.
func (f *flow) ack(offset, cursor int64) bool {
	if offset <= f.shown || offset > cursor {
		return false
	}
	for len(f.jumps) > 0 && f.jumps[0].at < offset {
		j := f.jumps[0]
		if offset < j.at+j.bytes {
			offset = j.at
			break
		}
		f.jumps = f.jumps[1:]
	}
	opened := offset > f.shown
	f.shown = max(f.shown, offset)
	return opened
}
