package guest

import (
	"net"
)

// ParseListener gives tests the reader of /proc/net/tcp.
func ParseListener(line string) (Port, bool) {
	p, _, ok := parseListener(line)
	return p, ok
}

// ReadFrames reads frames until one is refused, and says how many it took.
func ReadFrames(c *net.UnixConn) (n int) {
	l := &link{conn: c}
	for {
		_, files, err := l.recv()
		closeAll(files)
		if err != nil {
			return n
		}
		n++
	}
}

// Inside gives tests the rule for paths of a mapped machine.
func Inside(p string) (string, bool) { return inside(p) }
