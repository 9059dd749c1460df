package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wakebus/wakebus/internal/config"
	"github.com/wakebus/wakebus/internal/terminal/attach"
	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// attachFlags are the flags of `terminal-gw attach`.
type attachFlags struct {
	page, url, ticket, ticketCommand string
	viewer                           bool
}

func newAttachCmd(c *cli) *cobra.Command {
	var f attachFlags
	cmd := &cobra.Command{
		Use:   "attach",
		Short: "Connect this terminal to a shell in a sandbox",
		Long: `Connect this terminal to a page's shell. Ctrl-] then d detaches, and the shell goes on; Ctrl-] twice types it once.
When the connection breaks it comes back by itself, with nothing lost or repeated. Exit codes: the shell's own, 0
detached, 125 refused, 255 lost or not reachable. The end of a piped input is typed as Ctrl-D; a shell that has not ended
about two minutes later is detached from.

A ticket is good for one connection, and for a minute of it where the gateway asks nobody else. --ticket-command names a
command that prints a fresh one, for each connection and every 40 s of it.`,
		Example: "  terminal-gw attach\n  terminal-gw attach --page home --viewer\n" +
			"  terminal-gw attach --url https://term.example --page home \\\n    --ticket-command 'worker grant --tenant t --user ann --page home --ticket --key signing.jwk'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.attach(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.page, "page", "dev", "the terminal's page")
	fs.BoolVar(&f.viewer, "viewer", false, "look, do not type (with a ticket its role decides)")
	fs.StringVar(&f.url, "url", "", "the gateway's address; TERMINAL_URL or the dev instance's without it")
	fs.StringVar(&f.ticket, "ticket", "", "a ticket, for one connection")
	fs.StringVar(&f.ticketCommand, "ticket-command", "", "a command whose output is a fresh ticket")
	return cmd
}

// lost ends with the code of what could not be reached.
func lost(err error) error { return &exitError{code: attach.CodeLost, err: err} }

func (c *cli) attach(ctx context.Context, f attachFlags) error {
	settings, _, err := config.LoadClient(nil, c.lookup, c.environ, c.dir)
	if err != nil {
		return &exitError{code: attach.CodeRefused, err: err}
	}
	named := f.url != ""
	if !named {
		f.url = settings.TerminalURL.Reveal()
	}
	if f.url == "" {
		return lost(errors.New("nothing says where the gateway is: give --url or TERMINAL_URL, or start a dev instance with: worker dev"))
	}
	// SIGHUP detaches: the terminal is gone, the shell goes on.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGTERM)
	defer stop()
	keys, err := attach.OpenKeyboard(c.in)
	if err != nil {
		return lost(err)
	}
	defer keys.Close()
	raw, err := c.raw()
	if err != nil {
		return lost(err)
	}
	end, err := attach.Run(ctx, c.attachConfig(f, keys, raw))
	raw.restore()
	if err != nil {
		if settings.File != nil && !named {
			err = settings.File.Gone(err)
		}
		return lost(err)
	}
	return c.ended(end)
}

func (c *cli) attachConfig(f attachFlags, keys io.Reader, raw *rawTerminal) attach.Config {
	cfg := attach.Config{
		URL: f.url, Page: f.page, Client: clientID(), Input: keys, Output: c.out, Size: raw.size, Resized: raw.resized,
		Ticket: func(ctx context.Context) (string, error) { return f.ticketFor(ctx) },
		Notice: func(line string) { fmt.Fprintf(c.err, "\r[terminal-gw: %s]\r\n", line) },
	}
	if f.ticketCommand != "" {
		cfg.Grant = func(ctx context.Context) (string, error) { return f.ticketFor(ctx) }
	}
	return cfg
}

// ended says how it ended, where the shell itself did not.
func (c *cli) ended(end attach.End) error {
	switch {
	case c.json:
		line, err := json.Marshal(map[string]any{"reason": end.Reason, "exit_code": end.ExitCode, "message": end.Message})
		if err == nil { // plain values cannot fail
			fmt.Fprintf(c.err, "%s\n", line)
		}
	case end.Reason == frame.ReasonExited:
	case end.Message != "":
		fmt.Fprintf(c.err, "\nterminal-gw: %s: %s\n", end.Reason, end.Message)
	default:
		fmt.Fprintf(c.err, "\nterminal-gw: %s\n", end.Reason)
	}
	if code := end.Code(); code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// ticketFor gives the ticket of one connection.
func (f attachFlags) ticketFor(ctx context.Context) (string, error) {
	switch {
	case f.ticketCommand != "":
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", f.ticketCommand)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("run the ticket command: %w", err)
		}
		return spelled(strings.TrimSpace(string(out))), nil
	case f.ticket != "":
		return spelled(f.ticket), nil
	case f.viewer:
		return spelled(`{"role":"viewer"}`), nil
	}
	return "", nil
}

// spelled makes bare claims, which a dev instance believes, fit into a subprotocol, which holds no braces.
func spelled(ticket string) string {
	if strings.HasPrefix(ticket, "{") {
		return base64.RawURLEncoding.EncodeToString([]byte(ticket))
	}
	return ticket
}

func clientID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}

// rawTerminal is this process's terminal while its keys go to the shell uninterpreted.
type rawTerminal struct {
	fd      int
	state   *term.State
	resized chan struct{} // one pending signal; never closed
	stop    func()
}

// raw takes the terminal over; what is no terminal is left as it is.
func (c *cli) raw() (*rawTerminal, error) {
	r := &rawTerminal{fd: int(c.in.Fd()), resized: make(chan struct{}, 1), stop: func() {}}
	if !term.IsTerminal(r.fd) {
		return r, nil
	}
	state, err := term.MakeRaw(r.fd)
	if err != nil {
		return nil, fmt.Errorf("take the terminal over: %w", err)
	}
	r.state = state
	winch, quit := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(winch, syscall.SIGWINCH)
	done := make(chan struct{}) // closed when the watcher has ended
	go func() {
		defer close(done)
		for {
			select {
			case <-winch:
				select {
				case r.resized <- struct{}{}:
				default:
				}
			case <-quit:
				return
			}
		}
	}()
	r.stop = func() { signal.Stop(winch); close(quit); <-done }
	return r, nil
}

func (r *rawTerminal) size() frame.Size {
	cols, rows, err := term.GetSize(r.fd)
	if err != nil {
		return frame.Size{}
	}
	return frame.Size{Cols: cols, Rows: rows}
}

func (r *rawTerminal) restore() {
	r.stop()
	if r.state != nil {
		_ = term.Restore(r.fd, r.state) // a terminal that is gone needs none
	}
}
