package emulator

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wakebus/wakebus/internal/sprites/emulator/guest"
)

// instant is a command that is answered in process (Config.Instant): a handful
// of programs, and the client's own scripts by what they are known for. Nothing
// here knows files; what it cannot run exits 127.
type instant struct {
	s      *session
	stdin  io.Reader
	once   sync.Once
	signal chan struct{} // closed by the first signal
	done   chan struct{} // closed at the end
	code   int
}

// instantGuards are the guard files of one Sprite.
type instantGuards struct {
	mu     sync.Mutex // protects lines
	lines  map[string][]string
	lastID int
}

func (s *session) startInstant(c spec) {
	g := &s.sp.guards
	g.mu.Lock()
	g.lastID++
	s.pid = guest.UserID + g.lastID
	g.mu.Unlock()
	s.id = strconv.Itoa(s.pid)
	r, w := io.Pipe()
	p := &instant{s: s, stdin: r, signal: make(chan struct{}), done: make(chan struct{})}
	s.proc, s.stdin = p, w
	if !c.stdin {
		_ = w.Close()
	}
	s.sp.srv.goOwned(func() {
		code := p.run(c.Argv)
		p.once.Do(func() { p.code = code })
		_ = r.Close()
		close(p.done)
		s.finish()
	})
}

// Done is closed at the end.
func (p *instant) Done() <-chan struct{} { return p.done }

// Exit gives the code.
func (p *instant) Exit() (int, bool) { return p.code, true }

// Resize does nothing.
func (p *instant) Resize(uint16, uint16) error { return nil }

// kill ends what waits.
func (p *instant) kill(sig syscall.Signal) {
	p.once.Do(func() {
		p.code = 128 + int(sig)
		close(p.signal)
	})
}

func (p *instant) say(stream byte, format string, args ...any) {
	p.s.out.append(append([]byte{stream}, fmt.Sprintf(format, args...)...), p.s.lost)
}

func (p *instant) run(argv []string) int {
	if len(argv) == 0 {
		return 127
	}
	name, args := argv[0], argv[1:]
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	switch name {
	case "true", ":":
		return 0
	case "false":
		return 1
	case "echo":
		p.say(streamStdout, "%s\n", strings.Join(args, " "))
		return 0
	case "cat":
		return p.cat()
	case "head":
		return p.head(args)
	case "date":
		if len(args) == 1 && args[0] == "+%s%N" {
			p.say(streamStdout, "%d\n", p.s.sp.srv.cfg.Clock.Now().UnixNano())
			return 0
		}
	case "sleep":
		return p.sleep(args)
	case "sh", "bash":
		if len(args) >= 2 && args[0] == "-c" {
			return p.shell(args[1], args[min(3, len(args)):])
		}
	}
	p.say(streamStderr, "instant: %s: not one of the commands that are answered in process\n", name)
	return 127
}

func (p *instant) cat() int {
	buf := make([]byte, readSize)
	for {
		n, err := p.stdin.Read(buf)
		if n > 0 {
			p.s.out.append(append([]byte{streamStdout}, buf[:n]...), p.s.lost)
		}
		if err != nil {
			return 0
		}
	}
}

// head is "head -c N /dev/zero", which is what throughput is measured with.
func (p *instant) head(args []string) int {
	if len(args) != 3 || args[0] != "-c" || args[2] != "/dev/zero" {
		return 127
	}
	left, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return 1
	}
	frame := make([]byte, 1+readSize) // shared by all chunks: they are only read
	frame[0] = streamStdout
	for left > 0 {
		n := min(left, readSize)
		p.s.out.append(frame[:1+n], p.s.lost)
		left -= n
		select {
		case <-p.signal:
			return 0 // the code is the signal's
		case <-p.s.lost:
			return 1
		default:
		}
	}
	return 0
}

// sleep waits by the server's clock; without a number of seconds for a signal alone.
func (p *instant) sleep(args []string) int {
	over := make(chan struct{})
	if len(args) == 1 {
		if seconds, err := strconv.ParseFloat(args[0], 64); err == nil && seconds >= 0 {
			timer := p.s.sp.srv.cfg.Clock.AfterFunc(time.Duration(seconds*float64(time.Second)), func() { close(over) })
			defer timer.Stop()
		}
	}
	select {
	case <-over:
	case <-p.signal:
	case <-p.s.lost:
	case <-p.s.sp.srv.ctx.Done():
	}
	return 0
}

// shell knows the scripts of the client by their marks, and lists of the
// commands above. args are the script's $1 and on.
func (p *instant) shell(script string, args []string) int {
	switch {
	case strings.Contains(script, "exit 97") && len(args) > 5:
		return p.guard(args)
	case strings.Contains(script, "workspace yes") && len(args) == 3:
		for _, line := range []string{"workspace yes", "guard yes", "bash yes", "time " + p.now(), "done yes"} {
			p.say(streamStdout, "%s %s\n", args[0], line)
		}
		return 0
	case strings.Contains(script, "end %s") && len(args) == 4:
		return p.inspect(args)
	case strings.HasPrefix(script, "mkdir -p"):
		return 0
	case strings.Contains(script, `head -c "$WAKEBUS_R"`) && len(args) > 1:
		n, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return 1
		}
		p.stdin = io.LimitReader(p.stdin, n)
		return p.run(args[1:])
	case strings.HasPrefix(script, `cd "$1"`) && len(args) > 1:
		return p.run(args[1:])
	}
	code := 0
	for _, line := range strings.FieldsFunc(script, func(r rune) bool { return r == ';' || r == '\n' }) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if words[0] == "exit" && len(words) == 2 {
			n, _ := strconv.Atoi(words[1])
			return n & 0xff
		}
		code = p.run(words)
	}
	return code
}

func (p *instant) now() string { return strconv.FormatInt(p.s.sp.srv.cfg.Clock.Now().Unix(), 10) }

// guard runs args[5:] unless the file args[0] was taken before.
func (p *instant) guard(args []string) int {
	g := &p.s.sp.guards
	g.mu.Lock()
	if g.lines == nil {
		g.lines = map[string][]string{}
	}
	_, taken := g.lines[args[0]]
	if !taken {
		g.lines[args[0]] = []string{fmt.Sprintf("%d 1 %s", p.s.pid, args[1])}
	}
	g.mu.Unlock()
	if taken {
		return 97
	}
	code := p.run(args[5:])
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines[args[0]] = append(g.lines[args[0]], fmt.Sprintf("exit %d", code))
	return code
}

// inspect tells what the guard file args[1] says.
func (p *instant) inspect(args []string) int {
	g := &p.s.sp.guards
	g.mu.Lock()
	lines := append([]string{}, g.lines[args[1]]...)
	g.mu.Unlock()
	if len(lines) == 0 {
		p.say(streamStdout, "%s none\n", args[0])
		return 0
	}
	var out bytes.Buffer
	for _, line := range lines {
		fmt.Fprintf(&out, "%s line %s\n", args[0], line)
	}
	state := "dead"
	if len(lines) == 1 {
		state = "alive"
	}
	fmt.Fprintf(&out, "%s end %s\n", args[0], state)
	p.say(streamStdout, "%s", out.String())
	return 0
}
