package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/wakebus/wakebus/internal/terminal/frame"
)

// Config says what to attach to and with what.
type Config struct {
	// URL is the gateway's address, http(s) or ws(s). It is needed.
	URL string
	// Page names the terminal. Defaults to dev.
	Page string
	// Client names this client over its reconnects. It is needed: 1 to 64 letters, digits, - or _.
	Client string
	// Ticket gives a ticket for each connection; an empty one means none. Defaults to none.
	Ticket func(ctx context.Context) (string, error)
	// Grant gives a fresh grant, or ticket, of the same person for the same page; it is asked for every GrantEvery while
	// connected. Defaults to none: then a gateway in grant mode cuts the terminal once its ticket has ended.
	Grant func(ctx context.Context) (string, error)
	// GrantEvery is the pause between grants; the gateway asks every 60 s. Defaults to 40s.
	GrantEvery time.Duration
	// Input is what is typed. Its end is typed as Ctrl-D, up to 8 times; a shell that goes on is then left. It is needed;
	// whoever passes it must make its Read return once Run has.
	Input io.Reader
	// Output takes the terminal's bytes. It is needed.
	Output io.Writer
	// Notice takes our own words, one line without its end at a time. Defaults to nothing.
	Notice func(line string)
	// Size is the terminal's size now; zero when it is not known. Defaults to not known.
	Size func() frame.Size
	// Resized ticks when the size has changed. Defaults to never.
	Resized <-chan struct{}
	// Patience is how long a gateway that was reached before may be away. Defaults to 2m.
	Patience time.Duration
	// Pause is the first pause between dials; it doubles up to 5 s. Defaults to 250ms.
	Pause time.Duration
	// EndPause is the pause before the input's end is typed again; it doubles. Defaults to 500ms.
	EndPause time.Duration
	// HTTP dials. Defaults to http.DefaultClient.
	HTTP *http.Client
}

func (c *Config) setDefaults() {
	if c.Page == "" {
		c.Page = "dev"
	}
	if c.Ticket == nil {
		c.Ticket = func(context.Context) (string, error) { return "", nil }
	}
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
	if c.Size == nil {
		c.Size = func() frame.Size { return frame.Size{} }
	}
	if c.Patience == 0 {
		c.Patience = 2 * time.Minute
	}
	if c.GrantEvery == 0 {
		c.GrantEvery = 40 * time.Second
	}
	if c.EndPause == 0 {
		c.EndPause = 500 * time.Millisecond
	}
	if c.Pause == 0 {
		c.Pause = 250 * time.Millisecond
	}
}

// address checks the configuration and makes the socket's address of it. It reports every problem at once.
func (c *Config) address() (string, error) {
	var errs []error
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "":
		errs = append(errs, errors.New("the gateway's address is not a URL"))
	case u.RawQuery != "" || u.User != nil:
		errs = append(errs, errors.New("the gateway's address must hold neither a query nor a password"))
	default:
		switch u.Scheme {
		case "http", "ws":
			u.Scheme = "ws"
		case "https", "wss":
			u.Scheme = "wss"
		default:
			errs = append(errs, fmt.Errorf("the gateway's address must begin with http or https, not %s", u.Scheme))
		}
		u.Path = strings.TrimRight(u.Path, "/") + "/v1/terminal"
	}
	for name, missing := range map[string]bool{"client": c.Client == "", "input": c.Input == nil, "output": c.Output == nil} {
		if missing {
			errs = append(errs, fmt.Errorf("%s is missing", name))
		}
	}
	if c.Patience < 0 || c.Pause < 0 || c.EndPause < 0 || c.GrantEvery < 0 {
		errs = append(errs, errors.New("patience, the pauses and grant every must not be negative"))
	}
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("attach config: %w", err)
	}
	return u.String(), nil
}

// End is how an attachment ended.
type End struct {
	// Reason is the gateway's word, or detached when the person left.
	Reason frame.CloseReason
	// ExitCode is the shell's, when it said one.
	ExitCode *int
	// Message is a sentence for the person; it may be empty.
	Message string
}

// The exit codes of `terminal-gw attach` that are not the shell's own.
const (
	CodeDetached = 0
	CodeRefused  = 125
	CodeLost     = 255
)

// Code is the process's exit code: the shell's own, 0 when detached, 125 when refused, 255 when it was lost.
func (e End) Code() int {
	switch e.Reason {
	case frame.ReasonExited:
		if e.ExitCode != nil {
			return *e.ExitCode
		}
		return CodeLost
	case frame.ReasonDetached, frame.ReasonReplaced:
		return CodeDetached
	case frame.ReasonDenied, frame.ReasonRevoked, frame.ReasonTooMany, frame.ReasonFailed:
		return CodeRefused
	case frame.ReasonGone, frame.ReasonRestarting, frame.ReasonSlow:
		return CodeLost
	}
	return CodeLost
}
