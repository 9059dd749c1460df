package sprites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// enterScript recreates a missing working directory ($1) and becomes the command, so that signals and the terminal are
// the command's own.
const enterScript = `cd "$1" 2>/dev/null || { mkdir -p "$1" || sudo -n install -d -o "$(id -u)" "$1"; } >/dev/null 2>&1; cd "$1" 2>/dev/null; shift; exec "$@"`

// PTYRequest asks for a new terminal.
type PTYRequest struct {
	// Sprite is where. It should be awake (EnsureAwake): the dial is not guarded, so it is not tried again.
	Sprite string
	// Tenant is whose, for the gate.
	Tenant string
	// Argv is the program. Defaults to a login bash, else sh.
	Argv []string
	// Env is laid over the base environment.
	Env map[string]string
	// Cwd is an absolute folder, made when missing. Defaults to /workspace.
	Cwd string
	// Cols and Rows are the size in characters. Default to 80 and 24.
	Cols, Rows int
	// MaxRunAfterDisconnect ends the terminal when nobody was attached for that long. Defaults to 30 min.
	MaxRunAfterDisconnect time.Duration
}

// Format keeps the environment out of logs.
func (r PTYRequest) Format(s fmt.State, _ rune) {
	fmt.Fprintf(s, "sprites.PTYRequest{Sprite:%q}", r.Sprite)
}

func (r *PTYRequest) setDefaults() {
	setDefault(&r.Cwd, guestWorkspace)
	setDefault(&r.Cols, 80)
	setDefault(&r.Rows, 24)
	setDefault(&r.MaxRunAfterDisconnect, 30*time.Minute)
	if len(r.Argv) == 0 {
		r.Argv = []string{"sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash -l || exec sh -l"}
	}
}

func (r *PTYRequest) validate() error {
	if err := checkName(OpExec, r.Sprite); err != nil {
		return err
	}
	switch {
	case !strings.HasPrefix(r.Cwd, "/"):
		return refused(OpExec, "cwd must be absolute")
	case r.Cols < 1 || r.Rows < 1 || r.Cols > 4096 || r.Rows > 4096:
		return refused(OpExec, "size must be 1 to 4096")
	case strings.HasPrefix(r.Argv[0], "-") || r.Argv[0] == "":
		return refused(OpExec, "argv must begin with a program")
	case r.MaxRunAfterDisconnect < time.Second:
		return refused(OpExec, "detach window must be at least 1 s; less would mean for ever")
	}
	return nil
}

// PTY is a terminal's socket. Read is for one goroutine; the rest may be called from any.
type PTY struct {
	socket  *socket
	session Session
	held    piece // not yet read; owned by Read
	pos     int
	over    error // what Read ends with; owned by Read

	mu   sync.Mutex // protects exit
	exit *Exit
}

var _ io.ReadWriteCloser = (*PTY)(nil)

// OpenPTY opens a new terminal. The session is the one that this very socket announced. It blocks for DialTimeout at
// most. With Opened true a terminal may have been left behind; it ends after MaxRunAfterDisconnect.
func (c *Client) OpenPTY(ctx context.Context, req PTYRequest) (*PTY, error) {
	req.setDefaults()
	if err := req.validate(); err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	query := url.Values{
		"cmd":  append([]string{"sh", "-c", enterScript, "wakebus", req.Cwd}, req.Argv...),
		"path": {"sh"}, "env": c.environment(req.Env, true, nil), "tty": {"true"}, "stdin": {"true"},
		"cols": {strconv.Itoa(req.Cols)}, "rows": {strconv.Itoa(req.Rows)},
		"max_run_after_disconnect": {req.MaxRunAfterDisconnect.Round(time.Second).String()},
	}
	pass, err := c.enter(ctx, OpExec, req.Tenant)
	if err != nil {
		return nil, fmt.Errorf("open terminal in %s: %w", req.Sprite, err)
	}
	s, info, err := c.dial(ctx, OpExec, c.spriteURL(req.Sprite, query, "exec"), true)
	_ = c.report(ctx, OpExec, pass, err) // the caller returns err itself
	if err != nil {
		return nil, fmt.Errorf("open terminal in %s: %w", req.Sprite, err)
	}
	return newPTY(s, info)
}

// AttachPTY opens the socket of a running terminal; its replay comes first. ClassNotFound means that it is over, or that
// its id names another process by now.
func (c *Client) AttachPTY(ctx context.Context, sprite string, session Session) (*PTY, error) {
	if err := checkName(OpAttach, sprite); err != nil {
		return nil, fmt.Errorf("attach to terminal: %w", err)
	}
	if !validSessionID(session.ID) {
		return nil, fmt.Errorf("attach to terminal: %w", refused(OpAttach, "malformed session id"))
	}
	s, info, err := c.attach(ctx, sprite, "", session, url.Values{"stdin": {"true"}})
	if err != nil {
		return nil, err
	}
	return newPTY(s, info)
}

func newPTY(s *socket, info sessionInfo) (*PTY, error) {
	if !info.tty {
		s.close()
		return nil, &Error{Op: s.op, Class: ClassInvalid, Opened: true, cause: errors.New("session is no terminal")}
	}
	return &PTY{socket: s, session: Session{ID: info.id, Created: info.created}}, nil
}

// Session returns what to attach to and to kill.
func (t *PTY) Session() Session { return t.session }

// Exit returns how the terminal's program ended, once Read returned io.EOF.
func (t *PTY) Exit() (Exit, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit == nil {
		return Exit{}, false
	}
	return *t.exit, true
}

// Read returns terminal output as it comes. It blocks until there is some. io.EOF means that the program ended and Exit
// tells how; any other error that the socket ended while it may still run. Close wakes it.
func (t *PTY) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for t.pos >= len(t.held.data) {
		if t.over != nil {
			return 0, t.over
		}
		t.held.release()
		t.held, t.pos = piece{}, 0
		got, err := t.socket.next(context.Background())
		switch {
		case err != nil:
			t.over = err
		case got.kind == frameOutput:
			t.held = got
		case got.kind == frameEnded:
			t.over = t.ended(got.code)
			t.socket.close()
		}
	}
	n := copy(b, t.held.data[t.pos:])
	t.pos += n
	return n, nil
}

func (t *PTY) ended(code int) error {
	if code == noCode {
		return &Error{Op: t.socket.op, Class: ClassTransport, Opened: true, cause: fmt.Errorf("%w: exit frame carries no code", ErrNoExit)}
	}
	exit := newExit(code, ExitFrame)
	t.mu.Lock()
	t.exit = &exit
	t.mu.Unlock()
	return io.EOF
}

// Write sends input to the terminal, in one message. It blocks for 10 s at most; a failed write ends the socket.
func (t *PTY) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if err := t.socket.write(context.Background(), websocket.MessageBinary, b); err != nil {
		return 0, fmt.Errorf("write to terminal: %w", err)
	}
	return len(b), nil
}

// Resize tells the terminal its new size in characters.
func (t *PTY) Resize(ctx context.Context, cols, rows int) error {
	if cols < 1 || rows < 1 || cols > 4096 || rows > 4096 {
		return fmt.Errorf("resize terminal: %w", refused(OpExec, "size must be 1 to 4096"))
	}
	msg, err := json.Marshal(struct {
		Type string `json:"type"`
		Cols int    `json:"cols"`
		Rows int    `json:"rows"`
	}{"resize", cols, rows})
	if err == nil {
		err = t.socket.write(ctx, websocket.MessageText, msg)
	}
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// Close ends the socket and its goroutines, not the terminal. It may be called more than once.
func (t *PTY) Close() error {
	t.socket.close()
	return nil
}
