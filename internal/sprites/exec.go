package sprites

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// InputMax bounds a command's standard input, in bytes: one message, which connections and pipes take in whether or not
// the command reads it. More belongs into a file.
const InputMax = 64 << 10

const (
	guestHome      = "/home/sprite"
	guestWorkspace = "/workspace"
	guardFolder    = guestHome + "/.wakebus"

	// guardGrace is how much later than ours the guard's own limit is: it stops what nobody watches any more.
	guardGrace = 10 * time.Second
	// orphanGrace is how long past the limit the platform may keep a command that lost its socket.
	orphanGrace = 60 * time.Second
	// takenCode is the guard's exit code when its file exists. The command may end with it, too; the file tells.
	takenCode = 97
)

//go:embed guard.sh
var guardScript string

//go:embed input.sh
var inputScript string

// guardEscaped is the script as it stands in every exec's address: escaping it anew was most of what an address cost.
var guardEscaped = url.QueryEscape(guardScript)

// Command is one command to run, once.
type Command struct {
	// Sprite is where.
	Sprite string
	// Tenant is whose, for the gate.
	Tenant string
	// Guard names this run's guard file, by convention <tenant>.<job>.<run>: [A-Za-z0-9_.-]{1,240}, never reused.
	Guard string
	// Job is what WAKEBUS_JOB says inside.
	Job string
	// Argv is the program and its arguments; exactly one of Argv and Shell is given.
	Argv []string
	// Shell is a script for bash -c, or sh -c when HasBash is false.
	Shell string
	// HasBash is what Provision found.
	HasBash bool
	// Cwd is an absolute folder; it is made when missing. Defaults to /workspace.
	Cwd string
	// Env is laid over the base environment.
	Env map[string]string
	// Stdin, at most InputMax bytes, is sent whole, then EOF, before Start returns. Nil is off. The command sees it once,
	// however often [Client.Attach] sends it again, and need not read it.
	Stdin []byte
	// Limit is the caller's time limit, at least 1 ms. Start does not enforce it; the guard does 10 s later.
	Limit time.Duration
	// Contested says that an earlier dial, of whoever, may have started this run.
	Contested bool
	// Ahead is a connection for the first dial, and may be nil. It stays its maker's to close.
	Ahead *Ahead
	// BeforeDial is called before each dial with its number from 1, and may be nil. Its error ends Start as it is.
	BeforeDial func(ctx context.Context, try int) error
}

// Format keeps environment, stdin and script out of logs.
func (c Command) Format(s fmt.State, _ rune) {
	fmt.Fprintf(s, "sprites.Command{Sprite:%q Guard:%q}", c.Sprite, c.Guard)
}

var guardShape = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,239}$`)

func guardPath(guard string) string { return guardFolder + "/" + guard }

func (c *Command) validate() error {
	var problems []error
	if !ValidName(c.Sprite) {
		problems = append(problems, errors.New("sprite name is not a DNS label"))
	}
	if !guardShape.MatchString(c.Guard) {
		problems = append(problems, errors.New("guard name has other than letters, digits, dot, dash and underscore"))
	}
	if (len(c.Argv) == 0) == (c.Shell == "") {
		problems = append(problems, errors.New("exactly one of argv and shell is needed"))
	}
	if len(c.Argv) > 0 && (c.Argv[0] == "" || strings.HasPrefix(c.Argv[0], "-")) {
		problems = append(problems, errors.New("argv must begin with a program"))
	}
	if !strings.HasPrefix(c.Cwd, "/") {
		problems = append(problems, errors.New("cwd must be absolute"))
	}
	if len(c.Stdin) > InputMax {
		problems = append(problems, fmt.Errorf("more than %d bytes of stdin", InputMax))
	}
	if c.Limit < time.Millisecond {
		problems = append(problems, errors.New("limit must be at least 1 ms"))
	}
	if hasNUL(append([]string{c.Cwd, c.Shell, c.Job}, c.Argv...)...) {
		problems = append(problems, errors.New("NUL byte in command"))
	}
	for k, v := range c.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || hasNUL(v) {
			problems = append(problems, errors.New("malformed environment variable"))
		}
	}
	return errors.Join(problems...)
}

func hasNUL(words ...string) bool {
	for _, w := range words {
		if strings.ContainsRune(w, 0) {
			return true
		}
	}
	return false
}

// argv is the command under its guard. cwd and the caller's words travel as arguments of their own, never as text.
func (c *Command) argv(nonce string) []string {
	command := c.Argv
	if c.Shell != "" {
		shell := "sh"
		if c.HasBash {
			shell = "bash"
		}
		command = []string{shell, "-c", c.Shell}
	}
	if c.Stdin != nil {
		command = append([]string{"sh", "-c", inputScript, "wakebus", strconv.Itoa(len(c.Stdin))}, command...)
	}
	limit := int64((c.Limit + guardGrace + time.Second - 1) / time.Second)
	own := []string{"sh", "-c", guardScript, "wakebus", guardPath(c.Guard), nonce, strconv.FormatInt(limit, 10), c.Job, c.Cwd}
	return append(own, command...)
}

// Start runs a command under its guard and returns once the session is known and stdin, if any, is in. The dial is tried
// again only while its socket has not opened; the guard keeps such a redial from running the command twice. It blocks
// for at most a few DialTimeouts.
//
// An *Error with Opened false means that nothing is running as far as anybody can tell, though the last dial may still
// have started it: the guard's file knows. With Opened true it may be running; see [Client.Rejoin]. *GuardTaken means
// that an earlier dial started it.
func (c *Client) Start(ctx context.Context, cmd Command) (*Process, error) {
	if cmd.Cwd == "" {
		cmd.Cwd = guestWorkspace
	}
	if err := cmd.validate(); err != nil {
		return nil, fmt.Errorf("start command: %w", &Error{Op: OpExec, Class: ClassInvalid, cause: err})
	}
	var p *Process
	err := c.retrying(ctx, OpExec, cmd.Tenant, func(ctx context.Context, try int) error {
		if cmd.BeforeDial != nil {
			if err := cmd.BeforeDial(ctx, try); err != nil {
				return fmt.Errorf("before dial %d: %w", try, err)
			}
		}
		nonce := c.cfg.Nonce()
		if cmd.Ahead != nil {
			ctx = context.WithValue(ctx, aheadKey{}, cmd.Ahead)
		}
		s, info, err := c.dial(ctx, OpExec, c.execURL(&cmd, nonce), false)
		if err != nil {
			return err
		}
		p = newProcess(c, s, info, cmd.Sprite, cmd.Guard, nonce)
		cmd.Contested = cmd.Contested || try > 1
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("start command in %s: %w", cmd.Sprite, err)
	}
	if err := p.begin(ctx, &cmd); err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("start command in %s: %w", cmd.Sprite, err)
	}
	return p, nil
}

// execURL is the address of one dial of the command.
func (c *Client) execURL(cmd *Command, nonce string) string {
	query := url.Values{
		"path":  {"sh"},
		"env":   c.environment(cmd.Env, false, map[string]string{"WAKEBUS_JOB": cmd.Job}),
		"stdin": {strconv.FormatBool(cmd.Stdin != nil)},
		// A socket that is lost must not take the command with it: a peer may take over.
		"max_run_after_disconnect": {(cmd.Limit + orphanGrace).Round(time.Second).String()},
	}
	return c.spriteURL(cmd.Sprite, nil, "exec") + "?" + commandQuery(cmd.argv(nonce)) + query.Encode()
}

// commandQuery is the words of a command as the first part of a query, in their order.
func commandQuery(argv []string) string {
	var b strings.Builder
	b.Grow(len(guardEscaped) + 512)
	for _, word := range argv {
		b.WriteString("cmd=")
		if word == guardScript {
			b.WriteString(guardEscaped)
		} else {
			b.WriteString(url.QueryEscape(word))
		}
		b.WriteByte('&')
	}
	return b.String()
}

// begin sends stdin and, when an earlier dial may have won, asks the guard's file who did.
func (p *Process) begin(ctx context.Context, cmd *Command) error {
	if cmd.Stdin != nil {
		if err := p.socket.sendInput(ctx, cmd.Stdin); err != nil {
			return fmt.Errorf("send stdin: %w", err)
		}
	}
	if !cmd.Contested {
		return nil
	}
	state, err := p.client.Guard(ctx, cmd.Sprite, cmd.Guard)
	if err != nil {
		return nil // not known now; a 97 is judged by the file when it comes
	}
	if state.Nonce != "" && state.Nonce != p.nonce {
		return &GuardTaken{State: state}
	}
	return nil
}
